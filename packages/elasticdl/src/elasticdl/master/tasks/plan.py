"""Which records each task has: a pure function of the shards, the seed and the epoch.

    plan = Plan.of(reader.shards(), Cut(records_per_task=4096, epochs=5, seed=0))
    plan.tasks                        # range(1, 76)
    plan.piece(17)                    # Piece(epoch=1, shard="train-0", start=0, end=4096, indices=())

So a master that is started again makes the same tasks under the same numbers, and has to remember only numbers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass

from elasticdl.data.reader import Shard
from elasticdl.errors import InputError

EVALUATIONS = 1 << 40
"""Where the numbers of evaluation tasks begin: training has fewer tasks than that."""
EXPORTS = 1 << 50
"""The number of the task that writes the final model."""


@dataclass(frozen=True)
class Cut:
    """How shards are cut into tasks."""

    records_per_task: int
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    """Whether the order of the tasks differs from epoch to epoch."""
    shuffle_records: bool = False
    """Whether a task says in which order its records are to be taken."""
    first: int = 1
    """Number of the first task."""


@dataclass(frozen=True)
class Piece:
    """The records of a task."""

    epoch: int
    shard: str
    start: int
    end: int
    indices: tuple[int, ...] = ()
    """The records in their order; empty: from start to end."""


@dataclass(frozen=True)
class Plan:
    """All tasks of all epochs. The tasks of one epoch have successive numbers."""

    pieces: tuple[Shard, ...]
    """One for each task of an epoch, in the order of the data."""
    cut: Cut

    @classmethod
    def of(cls, shards: Iterable[Shard], cut: Cut) -> Plan:
        """Return the plan; no task has records of two shards."""
        size = cut.records_per_task
        pieces = (
            Shard(shard.name, start, min(start + size, shard.end))
            for shard in shards
            for start in range(shard.start, shard.end, size)
        )
        return cls(tuple(pieces), cut)

    @property
    def tasks(self) -> range:
        """Return the numbers of all tasks."""
        return range(self.cut.first, self.cut.first + self.cut.epochs * len(self.pieces))

    @property
    def records(self) -> int:
        """Return the number of records of one epoch."""
        return sum(piece.count for piece in self.pieces)

    def piece(self, task: int) -> Piece:
        """Return the records of a task."""
        epoch, place = divmod(task - self.cut.first, len(self.pieces))
        if self.cut.shuffle:
            place = _order(f"{self.cut.seed}/{epoch}", len(self.pieces))[place]
        shard = self.pieces[place]
        indices: tuple[int, ...] = ()
        if self.cut.shuffle_records:
            order = list(range(shard.start, shard.end))
            random.Random(f"{self.cut.seed}/{epoch}/{place}").shuffle(order)
            indices = tuple(order)
        return Piece(epoch, shard.name, shard.start, shard.end, indices)

    def digest(self) -> str:
        """Return a text that differs if any task has other records."""
        cut = [self.cut.epochs, self.cut.seed, self.cut.shuffle, self.cut.shuffle_records, self.cut.first]
        pieces = [[piece.name, piece.start, piece.end] for piece in self.pieces]
        return hashlib.sha256(json.dumps([cut, pieces]).encode()).hexdigest()[:32]


def not_empty(plan: Plan, flag: str, address: str) -> Plan:
    """Return the plan; raise InputError that names the flag if there is not a single record."""
    if not plan.records:
        raise InputError(f"{flag}: there is not a single record in {address!r}", "Check the address and the files.")
    return plan


@functools.lru_cache(maxsize=4)  # of the epoch that is under way and its neighbours
def _order(seed: str, count: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return tuple(order)
