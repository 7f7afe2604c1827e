"""Two ranks that use different parameters in the same step: python uneven_ranks.py fp32

Prints, for each step, which gradients differ from those of one process that has the samples of both, and whether the
ranks have the same bits. The argument is the value of ``--sum-dtype``.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import zlib
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.elastic.alone import stepper_of
from tests.elastic.group.frozen_rank import meet
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.group.group import Group
from tidewater.elastic.session.step import SUM_TYPES

WIDTH = 600
"""Of a layer: its 1.4 MB fill the first bucket."""
SECONDS = 30.0
Branch = str
"""The layer that a rank uses, with ``twice`` in two parts that are computed again in the backward pass."""
STEPS: dict[str, tuple[Branch, Branch]] = {
    "the same parameters": ("first", "first"),
    "the same parameters again": ("first", "first"),
    "different parameters": ("first", "last"),
    "different parameters again": ("last", "first"),
    "other parameters": ("last", "last"),
    "gradients in parts on one rank": ("first", "first twice"),
    "gradients in parts on the other rank": ("last twice", "last"),
    "gradients in parts again": ("first twice", "last twice"),
    "no samples on one rank": ("first", ""),
    "no samples on the other rank": ("", "last"),
    "the same parameters at last": ("last", "last"),
}


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(
            {name: nn.Linear(WIDTH, WIDTH) for name in ("common", "first", "unused", "last", "end")}
        )

    def forward(self, batch: tuple[torch.Tensor, Branch]) -> Any:
        values, (name, *twice) = batch[0], (batch[1] or "first").split()
        values = self.layers["common"](values)
        for _ in range(2 if twice else 1):
            values = checkpoint(self.layers[name], values, use_reentrant=bool(twice))
        return self.layers["end"](values)


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    result: torch.Tensor = model(batch).square().mean()
    return result


def differing(one: nn.Module, other: nn.Module, rounding: float) -> Sequence[str]:
    """Return the names of the parameters with different gradients. ``rounding`` is relative to the largest value."""
    pairs = zip(one.named_parameters(), other.parameters(), strict=True)
    return [name for (name, mine), its in pairs if not same(mine.grad, its.grad, rounding)]


def same(one: torch.Tensor | None, other: torch.Tensor | None, rounding: float) -> bool:
    if one is None or other is None:
        return one is other
    return torch.allclose(one, other, rtol=1e-4, atol=1e-7 + rounding * float(other.abs().max()))


def bits(model: nn.Module) -> int:
    return zlib.crc32(b"".join(each.grad.numpy().tobytes() for each in model.parameters() if each.grad is not None))


def train(group: Group, rank: int, sum_dtype: str) -> list[tuple[str, int]]:
    """Make all steps. Return a line for each, and a checksum of the gradients."""
    torch.manual_seed(0)
    model = Branches()
    alone, lines = copy.deepcopy(model), []
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    (stepper, _), draw = stepper_of(group, model, loss, sgd, sum_dtype=SUM_TYPES[sum_dtype]), torch.Generator()
    draw.manual_seed(1)
    for name, branches in STEPS.items():
        batches = [(torch.randn(4, WIDTH, generator=draw), branch) for branch in branches]
        weight = 1 / sum(bool(branch) for branch in branches)
        mine = Micro(batches[rank], weight if branches[rank] else 0.0, 4)
        outcome = stepper.gradients(Prepared(Step((0,), Cursor()), (mine,)))
        alone.zero_grad()
        for batch in batches:
            if batch[1]:
                torch.autograd.backward(loss(alone, batch), torch.tensor(weight))
        found = differing(model, alone, 0.01 if SUM_TYPES[sum_dtype] else 0.0)
        lines.append((f"{name}: {', '.join(found) or 'equal'}", bits(model)))
        stepper.apply(outcome, factor=0.0)
    return lines


def as_peer(pipe: Connection) -> None:
    """Train, tell the result, and wait to be killed."""
    pipe.send(train(meet(1, pipe, SECONDS), 1, sys.argv[1]))
    signal.pause()


def main() -> None:
    mine, its = Pipe()
    peer = os.fork()
    if not peer:
        return as_peer(its)
    try:
        lines = train(meet(0, mine, SECONDS), 0, sys.argv[1])
        for (one, checksum), (other, its_checksum) in zip(lines, mine.recv(), strict=True):
            print(one, "|", other, "|", "the same bits" if checksum == its_checksum else "other bits")
    finally:
        os.kill(peer, signal.SIGKILL)
        os.waitpid(peer, 0)
    return None


if __name__ == "__main__":
    main()
