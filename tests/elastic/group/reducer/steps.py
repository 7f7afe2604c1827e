"""Makes steps with a model, next to a copy of it that plain autograd trains."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.elastic.alone import stepper_of
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.group.group import Group

WIDE = 600
"""Of a layer: its 1.4 MB fill the first bucket."""
Gradients = list[torch.Tensor | None]
Loss = Callable[[nn.Module, Any], torch.Tensor]


def total(model: nn.Module, batch: Any) -> torch.Tensor:
    result = model(batch)
    return (torch.view_as_real(result) if result.is_complex() else result.float()).square().mean()


class Steps:
    """Makes steps with a model, next to a copy of it that plain autograd trains.

    ``sums`` says whether a group of one sums the gradients, too, as those of several do.
    """

    def __init__(
        self,
        group: Group,
        model: nn.Module,
        loss: Loss = total,
        sum_dtype: torch.dtype | None = None,
        *,
        sums: bool = True,
    ) -> None:
        self.model, self.plain, self._loss = model, copy.deepcopy(model), loss
        self._optimizers = [
            torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1) for each in (model, self.plain)
        ]
        self._stepper, _ = stepper_of(group, model, loss, self._optimizers[0], sum_dtype=sum_dtype)
        self.rehearsal = self._stepper.rehearsal
        self._summing = contextlib.ExitStack()
        if sums:
            self._summing.enter_context(self.rehearsal())

    def step(self, *batches: Any) -> Gradients:
        """Make a step of these micro-batches. Return the gradients."""
        weight = 1 / len(batches)
        parts = tuple(Micro(batch, weight, len(batch)) for batch in batches)
        outcome = self._stepper.gradients(Prepared(Step((0,), Cursor()), parts))
        found = gradients(self.model)
        self._stepper.apply(outcome, factor=1.0)
        return found

    def expected(self, *batches: Any) -> Gradients:
        """Make the same step with plain autograd."""
        self._optimizers[1].zero_grad()
        for batch in batches:
            loss = self._loss(self.plain, batch)
            torch.autograd.backward(loss, torch.full_like(loss, 1 / len(batches)))
        found = gradients(self.plain)
        self._optimizers[1].step()
        return found

    def agree(self, *steps: Sequence[Any]) -> None:
        """Make these steps both ways, and compare the gradients and parameters of each, bit for bit."""
        for batches in steps:
            mine, plain = self.step(*batches), self.expected(*batches)
            assert [gradient is None for gradient in mine] == [gradient is None for gradient in plain]
            for one, other in zip(mine, plain, strict=True):
                assert one is None or other is None or torch.equal(one, other)
                assert one is None or other is None or one.stride() == other.stride()
            for one, other in zip(self.model.parameters(), self.plain.parameters(), strict=True):
                assert torch.equal(one, other)


def gradients(model: nn.Module) -> Gradients:
    return [None if each.grad is None else each.grad.clone() for each in model.parameters()]


def storages(model: nn.Module) -> set[int]:
    return {each.grad.untyped_storage().data_ptr() for each in model.parameters() if each.grad is not None}


def batch(samples: int = 4, width: int = WIDE, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(samples, width, dtype=dtype)


class Branches(nn.Module):
    """Uses one of its layers, depending on the sign of the batch's first value, and never ``unused``."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDE, WIDE)
        self.branches = nn.ModuleList(nn.Linear(WIDE, WIDE) for _ in range(2))
        self.unused = nn.Linear(3, 3)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.branches[int(batch[0, 0] > 0)](self.first(batch))
        return result


def signed(sign: int) -> torch.Tensor:
    values = batch()
    values[0, 0] = sign
    return values


class InParts(nn.Module):
    """Uses one layer in each of several segments, which are computed again in the backward pass."""

    def __init__(self, last_segment: int = 2) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
        self.segments = last_segment

    def forward(self, batch: torch.Tensor) -> Any:
        batch = self.first(batch)
        for _ in range(self.segments):
            batch = checkpoint(self.layer, batch, use_reentrant=True)
        return batch
