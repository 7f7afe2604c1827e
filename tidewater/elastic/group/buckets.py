"""Buckets of gradients: which gradients are summed together, and the memory in which they are summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.sharding import is_divided, is_sharded, like, local

FIRST_BYTES, BYTES = 1 << 20, 25 << 20
"""Sizes of the first bucket and of the others. They are those of DistributedDataParallel: the first sum begins early.
https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (``bucket_cap_mb``)"""

Named = tuple[str, nn.Parameter]


def assign(
    parameters: Sequence[Named],
    device: torch.device,
    *,
    first_bytes: int,
    most_bytes: int,
    sum_dtype: torch.dtype | None = None,
) -> list[Bucket]:
    """Return buckets of parameters of one type: at least one bucket, and the same ones in all processes.

    With a ``sum_dtype`` of 16 bits the last bucket has no parameters: its tail needs more bits.

    The parameters are in reverse order of registration, which is nearly the order in which a backward pass computes
    their gradients. The true order is not used: it may differ between processes.
    """
    closed: list[list[Named]] = []
    open_: dict[torch.dtype, list[Named]] = {}
    for named in reversed(parameters):
        members = open_.setdefault(named[1].dtype, [])
        members.append(named)
        size = sum(local(each).numel() * each.element_size() for _, each in members)
        if size >= (most_bytes if closed else first_bytes):
            closed.append(open_.pop(named[1].dtype))
    all_ = [Bucket(members, device, sum_dtype) for members in [*closed, *open_.values()]]
    return all_ if all_ and sum_dtype is None else [*all_, Bucket([], device)]


class Memory:
    """The gradients of one bucket, and a tail of other numbers that are summed with them.

    Gradients of the type in which they are summed, ``sum_dtype`` or their own with at least 32 bits, are summed in this
    memory. Others are summed in a copy of real numbers, which exists only while it is summed.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        tail: Sequence[int],
        device: torch.device,
        sum_dtype: torch.dtype | None,
    ) -> None:
        dtype, self._wide = _types(parameters, sum_dtype)
        self.in_place = dtype is self._wide
        own: list[torch.Tensor] = list(map(local, parameters))
        sizes, self._lengths = [each.numel() for each in own], list(tail)
        if self.in_place:
            sizes += self._lengths
        self._values = torch.empty(sum(sizes), dtype=dtype, device=device)
        parts = self._values.split_with_sizes(sizes)
        self.gradients = [
            part.as_strided(each.size(), torch.empty_like(each, device="meta").stride()).data
            for part, each in zip(parts, own, strict=False)
        ]
        """A view for each parameter, or for this process's part of it. It has the parameter's strides, or dense ones if
        the parameter is not dense, and (by ``data``) a version of its own, which says whether anything was added to
        it."""
        self.given = list(self.gradients)
        """What the parameters get as gradients."""
        for index, parameter in enumerate(parameters):
            if is_sharded(parameter):
                self.given[index] = like(self.gradients[index], parameter)
                self.gradients[index] = local(self.given[index])
        self._tail: Sequence[torch.Tensor] = parts[len(parameters) :]
        self._sums = self._values

    def fits(self, lengths: Sequence[int]) -> bool:
        """Return whether the memory was made for a tail of these lengths."""
        return self._lengths == list(lengths)

    def fill(self, gradients: Sequence[torch.Tensor | None], tail: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copy the gradients that are not here yet (zeros for missing ones) and the tail.

        Return the tensor that has to be summed.
        """
        pairs = list(zip(self.gradients, gradients, strict=True))
        missing = [own for own, gradient in pairs if gradient is None]
        targets = [own for own, gradient in pairs if gradient is not None and gradient is not own]
        sources = [gradient for own, gradient in pairs if gradient is not None and gradient is not own]
        if missing:
            torch._foreach_zero_(missing)
        if self.in_place:
            # In one call: each takes 20 us when the processor's caches are cold.
            targets += self._tail
            sources += tail
        if targets:
            torch._foreach_copy_(targets, sources)
        if not self.in_place:
            real = self._real()
            self._sums = real.new_empty(real.numel() + sum(self._lengths), dtype=self._wide)
            torch.cat([real, *tail], out=self._sums)
        return self._sums

    def finish(self) -> Sequence[torch.Tensor]:
        """Make the sums the gradients. Return the sums of the tail."""
        if not self.in_place:
            real = self._real()
            sums, *self._tail = self._sums.split_with_sizes([real.numel(), *self._lengths])
            real.copy_(sums)
            self._sums = self._values
        return self._tail

    def _real(self) -> torch.Tensor:
        return torch.view_as_real(self._values).view(-1) if self._values.is_complex() else self._values


class Bucket:
    """Parameters of one type. Their gradients are summed together."""

    def __init__(self, members: Sequence[Named], device: torch.device, sum_dtype: torch.dtype | None = None) -> None:
        self.names = [name for name, _ in members]
        self.parameters = [parameter for _, parameter in members]
        self._is_divided = is_divided(self.parameters)
        self._device, self._sum_dtype = device, sum_dtype
        own, wide = _types(self.parameters, sum_dtype)
        self.in_place = own is wide
        """Whether the gradients have the type in which they are summed."""
        self.tail: list[int] = []
        """Lengths of what is usually sent with the gradients."""
        self._versions: list[int] = []
        """Of the memory's gradients while they were zero, if passes add to them."""
        self.arrivals = 0
        """How many times the parameters have got gradients in this pass."""
        self.expected = 0
        """The most arrivals in any pass so far; 0 before the first. A parameter that is never used has none. One has
        several if its gradient is computed in parts (reentrant activation checkpointing)."""
        self.had: list[bool] = []
        """Which parameters had a gradient in this step."""
        self._memory: Memory | None = None
        """That of the last step. None while it is in use, and after a failure: an abandoned sum may still write to
        it."""

    def expect(self, tail: list[int]) -> None:
        """Expect a tail of these lengths from now on. The memory for another one is released before there are two."""
        self.tail = tail
        if self._memory is not None and not self._memory.fits(tail):
            self._memory = None

    def accumulate(self) -> None:
        """Let the next passes add to the memory that is summed, so that several need no more memory than one."""
        if self._memory is None:
            self._memory = Memory(self.parameters, self.tail, self._device, self._sum_dtype)
        gradients = self._memory.gradients
        if gradients:
            torch._foreach_zero_(gradients)
        self._versions = [gradient._version for gradient in gradients]
        for parameter, gradient in zip(self.parameters, self._memory.given, strict=True):
            parameter.grad = gradient

    def release(self) -> None:
        """Release the memory of the last step, if this is not summed now."""
        self._memory = None

    def take(self) -> list[torch.Tensor | None]:
        """Remove the gradients from the parameters and return them."""
        gradients = [parameter.grad for parameter in self.parameters]
        if self._is_divided:
            gradients = list(map(local, gradients))
        if self._memory is not None and self._versions:  # a parameter that no pass has used still has the zeros
            for place, (own, version) in enumerate(zip(self._memory.gradients, self._versions, strict=False)):
                if gradients[place] is own and own._version == version:
                    gradients[place] = None
        for parameter in self.parameters:
            parameter.grad = None
        self._versions = []
        self.had = [gradient is not None for gradient in gradients]
        return gradients

    def fill(
        self, gradients: Sequence[torch.Tensor | None], tail: Sequence[torch.Tensor]
    ) -> tuple[Memory, torch.Tensor]:
        """Copy the gradients and the tail to memory. Return it, and the tensor that has to be summed.

        Raise ConfigError if a gradient is sparse.
        """
        memory, self._memory = self._memory, None
        lengths = [each.numel() for each in tail]
        if memory is None or not memory.fits(lengths):
            memory = Memory(self.parameters, lengths, self._device, self._sum_dtype)
        try:
            return memory, memory.fill(gradients, tail)
        except RuntimeError:
            self._refuse_sparse(gradients)
            raise

    def has_own(self) -> bool:
        """Return whether a parameter has a gradient, which stays where it is. Raise ConfigError if one is sparse."""
        gradients = [parameter.grad for parameter in self.parameters]
        self._refuse_sparse(gradients)
        return any(gradient is not None for gradient in gradients)

    def _refuse_sparse(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for name, gradient in zip(self.names, gradients, strict=True):
            if gradient is not None and gradient.layout is not torch.strided:
                raise ConfigError(
                    f"the gradient of the parameter {name} is sparse, and only dense gradients can be summed: "
                    "create its layer with sparse=False"
                )

    def keep(self, memory: Memory) -> None:
        """Use this memory again in the next step: its sum is finished."""
        self._memory = memory


def _types(parameters: Sequence[nn.Parameter], sum_dtype: torch.dtype | None) -> tuple[torch.dtype, torch.dtype]:
    """Return the type of the parameters of a bucket, and that in which their gradients are summed."""
    own = parameters[0].dtype if parameters else torch.float32
    return own, sum_dtype or torch.promote_types(own.to_real(), torch.float32)
