"""Which checkpoint counts: the order of states by their history, never by their step alone.

    order = list(ranked([a, b, c], lineage="3f2a9c1d"))     # indices, best first; the lineage is the one etcd knows
    superseded([a, b, c], written, keep=2)                   # indices that are not needed after ``written``

A *lineage* is one sequence of generations in etcd. It gets a random name when etcd's record of the job is created, so
it ends if etcd loses its data: then the numbers of the generations begin again. Within a lineage the higher generation
counts, as with the terms of a replicated log. Workers that were cut off may have saved more steps in an older
generation, but the others have continued without those.

A history has one segment for each time that a state was continued from a checkpoint or in a new lineage. So it is known
of each checkpoint whether a state builds on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from tidewater.elastic.errors import RecordError


class Undecided(RecordError):
    """Two states are of lineages that do not continue each other. ``indices`` has the best one of each lineage."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(
            "it is unknown which of two lines of training counts, because neither continues the other: "
            "move away the checkpoints that must not count, or give the job a new name"
        )
        self.indices = tuple(indices)


@dataclass(frozen=True)
class Segment:
    """A part of a history in which every step was applied to the state after the step before."""

    lineage: str
    since: int
    """The generation that began this segment."""
    generation: int
    """The generation of the last step of this segment."""
    step: int
    """The last step of this segment."""

    @property
    def reached(self) -> tuple[int, int]:
        """Return what orders the states of one lineage."""
        return self.generation, self.step


@dataclass(frozen=True)
class History:
    """How a state came about: segments, oldest first. The end of the last one is the state itself."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, values: Sequence[Sequence[Any]]) -> History:
        """Return the history that ``values`` describes. Raise ValueError or TypeError if it is none."""
        segments = tuple(
            Segment(str(lineage), int(since), int(generation), int(step)) for lineage, since, generation, step in values
        )
        if not segments:
            raise ValueError("a history has at least one segment")
        return cls(segments)

    def values(self) -> list[list[Any]]:
        """Return the history as values for JSON, see ``of``."""
        return [list(astuple(segment)) for segment in self.segments]

    @property
    def now(self) -> Segment:
        """Return the segment that ends with the state."""
        return self.segments[-1]

    @property
    def step(self) -> int:
        """Return the number of applied steps."""
        return self.now.step

    def at(self, generation: int, step: int) -> History:
        """Return the history of a later state of the same segment."""
        now = replace(self.now, generation=max(generation, self.now.since), step=step)
        return History((*self.segments[:-1], now))

    def continued(self, lineage: str, generation: int) -> History:
        """Return the history of this state, after that generation has continued from it."""
        return History((*self.segments, Segment(lineage, generation, generation, self.step)))

    def contains(self, other: History) -> bool:
        """Return whether this state builds on the other one, or is the same."""
        at = other.now
        return any(
            each.lineage == at.lineage and each.since <= at.generation <= each.generation and at.step <= each.step
            for each in self.segments
        )


def begun(lineage: str, generation: int) -> History:
    """Return the history of a new training."""
    return History((Segment(lineage, generation, generation, 0),))


def ranked(histories: Sequence[History], lineage: str) -> Iterator[int]:
    """Yield the indices of all histories, the one that counts first. Of equal ones the first counts.

    First the states of the lineage that etcd knows, otherwise of the one that continues all others. In it the highest
    generation counts. Then come the states that it builds on, then abandoned ones.

    Args:
        histories: Of the states to choose from.
        lineage: The lineage that etcd knows; empty if it knows none.

    Raises:
        Undecided: The next index depends on which of two lineages counts. Nothing says so.
    """
    left = list(range(len(histories)))
    while left:
        best = histories[_best(histories, left, lineage)]
        known = _known(histories, left, best)
        yield from (index for index in known if best.contains(histories[index]))
        yield from (index for index in known if not best.contains(histories[index]))
        left = [index for index in left if index not in known]


def superseded(histories: Sequence[History], written: History, keep: int) -> set[int]:
    """Return the indices of the histories of checkpoints that are not needed after ``written`` is stored.

    Kept are the last ``keep`` checkpoints on its history, all that are newer, and all of other lineages. Abandoned ones
    are kept until its last segment has ``keep`` checkpoints.

    Args:
        histories: Of the stored checkpoints. Of equal ones the first counts.
        written: The history of the checkpoint just written; at least this one is kept.
        keep: The number of checkpoints to keep.
    """
    least = max(keep, 1)
    known = _known(histories, range(len(histories)), written)
    path = [index for index in known if written.contains(histories[index])]
    recent = [index for index in path if _began(histories[index].now, written.now)]
    gone = set(path[least:])
    if len(recent) >= least:
        # Newer ones come first in the order.
        gone |= {index for index in known[known.index(path[0]) :] if index not in path}
    return gone


def _began(segment: Segment, now: Segment) -> bool:
    """Return whether a state before ``now`` is in the same segment."""
    return segment.lineage == now.lineage and segment.generation >= now.since


def _known(histories: Sequence[History], left: Iterable[int], last: History) -> list[int]:
    """Return the indices of the histories in a lineage that ``last`` has; later lineages and generations first."""
    lines = {segment.lineage: number for number, segment in enumerate(last.segments)}
    known = [index for index in left if histories[index].now.lineage in lines]
    return sorted(
        known, key=lambda index: (lines[histories[index].now.lineage], *histories[index].now.reached), reverse=True
    )


def _best(histories: Sequence[History], left: Sequence[int], lineage: str) -> int:
    """Return the index of the state that counts among those of ``left``. Raise Undecided."""
    lines = {histories[index].now.lineage for index in left}
    before = {
        segment.lineage
        for index in left
        for segment in histories[index].segments
        if segment.lineage != histories[index].now.lineage
    }
    last = {lineage} if lineage in lines else lines - before or lines
    best = [
        max(
            (index for index in left if histories[index].now.lineage == line),
            key=lambda index: (*histories[index].now.reached, -index),
        )
        for line in sorted(last)
    ]
    if len(best) > 1:
        raise Undecided(best)
    return best[0]
