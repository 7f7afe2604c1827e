"""Decide how many minibatches each worker contributes to an update of the model; workers may come and go. Pure.

    rows = [Row(passes=1, records=32, full=True), Row(passes=0, full=True)]
    decide(rows, batches=4, turn=7)      # Decision(COMPUTE, quotas=(1, 2))

An update takes `batches` whole minibatches. Workers exchange rows when they have contributed what was agreed on, or
have no more records. Each worker that has a whole minibatch gets a share of what is missing. The remains of the last
shards are used only if no worker has a whole minibatch and these workers hold all shards that are not done. The last
update then has fewer records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Row(NamedTuple):
    """What one worker reports to the others."""

    passes: int = 0
    """Minibatches with gradients that it has collected for the next update."""
    records: int = 0
    """Records in them."""
    full: bool = False
    """Whether it has another whole minibatch."""
    remains: bool = False
    """Whether it has records, but fewer than a minibatch, and the master has no more shards now."""
    held: int = 0
    """Shards that it has not reported as done."""
    outstanding: int = -1
    """Shards that are not done, as the master says; -1 if it was not asked."""
    stopped: bool = False
    """Whether the master has said that the job has ended."""
    knows: bool = False
    """Whether it knows of a newer generation."""
    enough: bool = False
    """Whether its script has said that the training is to end."""


class Kind(Enum):
    """What all workers do now."""

    MOVE = "all know of the next generation, and form it"
    UPDATE = "the global batch is whole: update the model"
    COMPUTE = "some compute further minibatches"
    WAIT = "shards are with a worker that is gone, and will come back"
    FINISH = "the job has ended"


@dataclass(frozen=True)
class Decision:
    """The same in all workers."""

    kind: Kind
    quotas: tuple[int, ...] = ()
    """With COMPUTE: the number of further minibatches of each worker."""
    remains: bool = False
    """With COMPUTE: whether they are the remains of shards."""


def decide(rows: Sequence[Row], *, batches: int, turn: int) -> Decision:
    """Return what the workers do.

    Args:
        rows: Of all workers, by rank.
        batches: Minibatches of an update.
        turn: A number that grows with each update, so that with more workers than minibatches each gets its turn.
    """
    if any(row.enough for row in rows):
        return Decision(Kind.FINISH)
    if all(row.knows for row in rows):
        return Decision(Kind.MOVE)
    missing = batches - sum(row.passes for row in rows)
    if missing <= 0:
        return Decision(Kind.UPDATE)
    able = [row.full for row in rows]
    if any(able):
        return Decision(Kind.COMPUTE, shares(able, [row.passes for row in rows], missing, turn))
    if any(row.records or row.remains for row in rows):
        if _are_elsewhere(rows):
            return Decision(Kind.WAIT)
        able = [row.remains for row in rows]
        if any(able):
            one_each = sum(able) if sum(able) < missing else missing
            return Decision(Kind.COMPUTE, shares(able, [0] * len(rows), one_each, turn), remains=True)
        return Decision(Kind.UPDATE)
    return Decision(Kind.FINISH if all(row.stopped for row in rows) else Kind.WAIT)


def shares(able: Sequence[bool], passes: Sequence[int], missing: int, turn: int) -> tuple[int, ...]:
    """Return what each worker adds, so that all contribute alike as far as that is possible."""
    size = len(able)
    order = [rank for rank in ((turn + offset) % size for offset in range(size)) if able[rank]]
    added = [0] * size
    for _ in range(missing):
        rank = min(order, key=lambda each: passes[each] + added[each])
        added[rank] += 1
    return tuple(added)


def _are_elsewhere(rows: Sequence[Row]) -> bool:
    """Return whether a shard that is not done is with none of these workers. Each held shard is one of those."""
    known = [row.outstanding for row in rows if row.outstanding >= 0]
    return not known or min(known) > sum(row.held for row in rows)
