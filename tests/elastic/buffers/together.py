"""Several ranks in threads of one process, with the real group and steppers above sums in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import nn

from tests.elastic.alone import stepper_of
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.group.backend import Backend
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.rendezvous import MeetingStore

R = TypeVar("R")
Batch = Sequence[Sequence[float]] | torch.Tensor
SECONDS = 60.0


class Wire:
    """Adds up what all ranks have sent, in the order in which they began it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent: list[int] = []
        """Bytes of each sum."""
        self._sums: list[list[torch.Tensor]] = []
        self._changed = threading.Condition()

    def give(self, number: int, tensor: torch.Tensor) -> None:
        """Add one rank's part in the sum of this number."""
        with self._changed:
            if number == len(self._sums):
                self._sums.append([])
                self.sent.append(tensor.numel() * tensor.element_size())
            self._sums[number].append(tensor.clone())
            self._changed.notify_all()

    def take(self, number: int) -> torch.Tensor:
        """Return a sum when all ranks have given their parts."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sums[number]) == self.size, SECONDS):
                raise RuntimeError(f"only {len(self._sums[number])} of {self.size} ranks have begun sum {number}")
            return torch.stack(self._sums[number]).sum(0)


class InMemory(Backend):
    """One rank's connection to the wire."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(torch.device("cpu"), SECONDS)
        self._wire, self._begun = wire, 0

    def begin(self, tensor: torch.Tensor, seconds: float) -> Any:
        number, self._begun = self._begun, self._begun + 1
        self._wire.give(number, tensor)
        return number, tensor

    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        for number, tensor in works:
            tensor.copy_(self._wire.take(number))
        return True

    def prepare(self) -> None:
        pass

    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        pass

    def leave(self) -> None:
        pass

    def waits(self) -> bool:
        return False

    def error(self) -> str:
        return ""

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def ranks(size: int) -> tuple[Wire, list[Group]]:
    """Return the groups of that many ranks, which are one generation."""
    wire = Wire(size)
    groups = [Group(InMemory(wire)) for _ in range(size)]
    for rank, group in enumerate(groups):
        group.uuid, group.rank, group.size = 17, rank, size
    return wire, groups


def all_at_once(do: Callable[[int], R], size: int) -> list[R]:
    """Return the result of each rank, or raise what the first of them has raised."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(do, range(size)))


class Ranks:
    """Steppers of several ranks, each with a model of its own."""

    def __init__(self, size: int, make: Callable[[], nn.Module]) -> None:
        self.size = size
        self.wire, groups = ranks(size)
        self.models = [_seeded(make) for _ in range(size)]
        made = [
            stepper_of(group, model, lambda model, batch: model(batch).mean(), torch.optim.SGD(model.parameters(), 0.1))
            for group, model in zip(groups, self.models, strict=True)
        ]
        self.steppers = [stepper for stepper, _ in made]
        self.states = [state for _, state in made]

    def step(self, *batches: Batch, compare: bool = False) -> list[int]:
        """Make a step in which each rank has these samples. Return the bytes of each sum. No samples: see ``Micro``."""
        return self.step_in_passes(*([batch] for batch in batches), compare=compare)

    def step_in_passes(self, *batches: Sequence[Batch], compare: bool = False) -> list[int]:
        """Make a step in which each rank has a pass for each of its batches."""
        before, tensors = len(self.wire.sent), [[torch.as_tensor(batch) for batch in each] for each in batches]
        total = sum(len(batch) for each in tensors for batch in each)

        def make(rank: int) -> None:
            micro = tuple(
                Micro(mine if len(mine) else torch.ones(1, 1), len(mine) / total, max(1, len(mine)))
                for mine in tensors[rank]
            )
            step = Prepared(Step(tuple(range(total)), Cursor()), micro)
            stepper = self.steppers[rank]
            stepper.apply(stepper.gradients(step, compare=compare), factor=1.0)
            self.states[rank].step += 1

        all_at_once(make, self.size)
        return self.wire.sent[before:]


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()
