"""Memory for the values that the ranks sum: buckets of gradients, and the numbers sent with them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C._distributed_c10d import GradBucket


class Sums:
    """Memory for one sum over the ranks: a bucket of gradients, and the numbers sent with it.

    As much as possible is created once and kept, because each call of torch takes 20 us when the processor's caches are
    cold.
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
        """A finished future with the unchanged bucket, for DDP."""
        self.done.set_result(buffer)

    def take(self, buffer: torch.Tensor, load: Sequence[torch.Tensor]) -> bool:
        """Copy these values in if the memory was made for them. Return whether it was.

        It keeps a reference to its bucket, so a bucket for another order of parameters has another address.
        """
        fits = buffer.data_ptr() == self._address and len(load) == len(self.load)
        if fits:
            torch.cat([buffer, *load], out=self.whole)
        return fits

    def give(self, *, lend: bool) -> None:
        """Store the sums as gradients. With ``lend``, the gradients are views of this memory until the next pass."""
        if not (lend and self._lend()):
            self._buffer.copy_(self._sums)

    def _lend(self) -> bool:
        """Make the gradients views of the sums. Return False if they are not in the bucket or have another type."""
        self._gradients = self._gradients or self._views()
        if not self._gradients:
            return False
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        return True

    def _views(self) -> Sequence[torch.Tensor]:
        """Return views of the sums, one for each gradient; none if that is impossible."""
        if self._buffer.dtype != self._sums.dtype:
            return ()
        bucket = self._buffer.untyped_storage().data_ptr()
        views = [
            self._sums.as_strided(gradient.size(), gradient.stride(), gradient.storage_offset())
            for gradient in (parameter.grad for parameter in self._parameters)
            if gradient is not None and gradient.untyped_storage().data_ptr() == bucket
        ]
        return views if len(views) == len(self._parameters) else ()
