"""Memory for what the ranks sum: gradients, bucket by bucket, and what rides along with them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C._distributed_c10d import GradBucket


class Sums:
    """Memory for what is summed over the ranks: a bucket of gradients, and what it carries along.

    All that can be is made once and kept: a call of torch takes 20 us when the passes have emptied the processor's
    caches.
    """

    def __init__(self, bucket: GradBucket, buffer: torch.Tensor, load: Sequence[torch.Tensor]) -> None:
        self.index = bucket.index()
        self._buffer = buffer
        self._address = buffer.data_ptr()
        self._parameters = bucket.parameters()
        self._gradients: Sequence[torch.Tensor] = ()
        wide = buffer.to(torch.promote_types(buffer.dtype, torch.float32))
        self.whole = torch.cat([wide, *load])
        self._sums, *parts = self.whole.split_with_sizes([buffer.numel(), *(part.numel() for part in load)])
        self.load = tuple(parts)
        self.done: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else None
        )
        """What DDP waits for: that the bucket is as it is."""
        self.done.set_result(buffer)

    def take(self, buffer: torch.Tensor, load: Sequence[torch.Tensor]) -> bool:
        """Whether these are what it was made for, and then are in it.

        As it holds the bucket it was made for, another bucket, of another order of the parameters, lies elsewhere.
        """
        fits = buffer.data_ptr() == self._address and len(load) == len(self.load)
        if fits:
            torch.cat([buffer, *load], out=self.whole)
        return fits

    def give(self, *, lend: bool) -> None:
        """Make the sums the gradients. To ``lend`` is to have those lie in this memory until the next pass."""
        if not (lend and self._lend()):
            self._buffer.copy_(self._sums)

    def _lend(self) -> bool:
        """Make the gradients views of the sums; False if the gradients don't lie in the bucket, or not as wide."""
        self._gradients = self._gradients or self._views()
        if not self._gradients:
            return False
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return True

    def _views(self) -> Sequence[torch.Tensor]:
        """Of the sums, one for each gradient; none if that can't be."""
        if self._buffer.dtype != self._sums.dtype:
            return ()
        bucket = self._buffer.untyped_storage().data_ptr()
        views = [
            self._sums.as_strided(gradient.size(), gradient.stride(), gradient.storage_offset())
            for gradient in (parameter.grad for parameter in self._parameters)
            if gradient is not None and gradient.untyped_storage().data_ptr() == bucket
        ]
        return views if len(views) == len(self._parameters) else ()
