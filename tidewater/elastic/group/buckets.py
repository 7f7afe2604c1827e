"""Buckets of gradients: which gradients are summed together, and the memory in which they are summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tidewater.elastic.errors import ConfigError

FIRST_BYTES, BYTES = 1 << 20, 25 << 20
"""Sizes of the first bucket and of the others. They are those of DistributedDataParallel: the first sum begins early.
https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html (``bucket_cap_mb``)"""

Named = tuple[str, nn.Parameter]
_SUMMED_AS_THEY_ARE = (torch.float32, torch.float64)


def assign(parameters: Sequence[Named], device: torch.device, *, first_bytes: int, most_bytes: int) -> list[Bucket]:
    """Return buckets of parameters of one type: at least one bucket, and the same ones in all processes.

    The parameters are in reverse order of registration, which is nearly the order in which a backward pass computes
    their gradients. The true order is not used: it may differ between processes.
    """
    closed: list[list[Named]] = []
    open_: dict[torch.dtype, list[Named]] = {}
    for named in reversed(parameters):
        members = open_.setdefault(named[1].dtype, [])
        members.append(named)
        size = sum(parameter.numel() * parameter.element_size() for _, parameter in members)
        if size >= (most_bytes if closed else first_bytes):
            closed.append(open_.pop(named[1].dtype))
    return [Bucket(members, device) for members in [*closed, *open_.values()] or [[]]]


class Memory:
    """The gradients of one bucket, and a tail of other numbers that are summed with them.

    Gradients of 32 and 64 bits are summed in this memory. Others are summed in a copy of real numbers of at least 32
    bits, which exists only while it is summed.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], tail: Sequence[torch.Tensor], device: torch.device) -> None:
        dtype = parameters[0].dtype if parameters else torch.float32
        self.in_place = dtype in _SUMMED_AS_THEY_ARE
        sizes, self._lengths = [parameter.numel() for parameter in parameters], [each.numel() for each in tail]
        if self.in_place:
            sizes += self._lengths
        self._values = torch.empty(sum(sizes), dtype=dtype, device=device)
        parts = self._values.split_with_sizes(sizes)
        self.gradients = [
            part.as_strided(parameter.size(), torch.empty_like(parameter, device="meta").stride())
            for part, parameter in zip(parts, parameters, strict=False)
        ]
        """A view for each parameter. It has the parameter's strides, or dense ones if the parameter is not dense."""
        self._tail: Sequence[torch.Tensor] = parts[len(parameters) :]
        self._sums = self._values

    def fits(self, tail: Sequence[torch.Tensor]) -> bool:
        """Return whether the memory was made for a tail of these lengths."""
        return self._lengths == [each.numel() for each in tail]

    def fill(self, gradients: Sequence[torch.Tensor | None], tail: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copy the gradients (zeros for missing ones) and the tail. Return the tensor that has to be summed."""
        pairs = list(zip(self.gradients, gradients, strict=True))
        targets = [target for target, source in pairs if source is not None]
        sources = [source for source in gradients if source is not None]
        if len(targets) < len(pairs):
            torch._foreach_zero_([target for target, source in pairs if source is None])
        if self.in_place:
            # In one call: each takes 20 us when the processor's caches are cold.
            targets += self._tail
            sources += tail
        if targets:
            torch._foreach_copy_(targets, sources)
        if not self.in_place:
            real = self._real()
            wide = torch.promote_types(real.dtype, torch.float32)
            self._sums = real.new_empty(real.numel() + sum(self._lengths), dtype=wide)
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

    def __init__(self, members: Sequence[Named], device: torch.device) -> None:
        self.names = [name for name, _ in members]
        self.parameters = [parameter for _, parameter in members]
        self._device = device
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

    def take(self) -> list[torch.Tensor | None]:
        """Remove the gradients from the parameters and return them."""
        gradients = []
        for parameter in self.parameters:
            gradients.append(parameter.grad)
            parameter.grad = None
        self.had = [gradient is not None for gradient in gradients]
        return gradients

    def fill(
        self, gradients: Sequence[torch.Tensor | None], tail: Sequence[torch.Tensor]
    ) -> tuple[Memory, torch.Tensor]:
        """Copy the gradients and the tail to memory. Return it, and the tensor that has to be summed.

        Raise ConfigError if a gradient is sparse.
        """
        memory, self._memory = self._memory, None
        if memory is None or not memory.fits(tail):
            memory = Memory(self.parameters, tail, self._device)
        try:
            return memory, memory.fill(gradients, tail)
        except RuntimeError as error:
            for name, gradient in zip(self.names, gradients, strict=True):
                if gradient is not None and gradient.layout is not torch.strided:
                    raise ConfigError(
                        f"the gradient of the parameter {name} is sparse, and only dense gradients can be summed: "
                        "create its layer with sparse=False"
                    ) from error
            raise

    def keep(self, memory: Memory) -> None:
        """Use this memory again in the next step: its sum is finished."""
        self._memory = memory
