"""Names the rank that the others wait for, step after step.

    stragglers = Stragglers(log, metrics)
    stragglers.step(generation.members, rank, outcome.work_seconds, batch_size)      # on every rank, for every step

Each rank sends, with its gradients, the time that its part of the step before took: from one sum to the next, without
the wait for the others. So all ranks have the same numbers, and no further message is needed.

A rank may take longer only because it has one sample more, or longer for each sample only because it has fewer of them
and some of the time doesn't depend on their number. So a rank is slow only if both are so: the median of its time, and
that of its time per sample, exceed those of the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tidewater.elastic.membership.rules import Seat
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import Metrics

STEPS = 50
"""Ranks are judged by the median over so many steps. A slow checkpoint, sample or evaluation is in fewer than half."""

SLOW = 4 / 3
"""A rank is slow if it takes so many times as long as the others, as in NVIDIA's resiliency extension: its
``identify_stragglers`` names those with less than 0.75 of the performance."""

OVER = 1.1
"""It stays the slow one until it takes less than this: between the two, noise would name it again and again."""

LEAST_SECONDS = 0.005
"""A shorter difference is none: on a busy CPU, the scheduler alone makes it."""


@dataclass(frozen=True)
class Observation:
    """One step."""

    work_seconds: Sequence[float]
    """The time of each rank's own part."""
    batch_size: int

    def per_sample(self, rank: int) -> float:
        """Return a rank's seconds for one sample; ``Step.share`` divides the samples."""
        return self.work_seconds[rank] / len(range(rank, self.batch_size, len(self.work_seconds)))


@dataclass(frozen=True)
class Slow:
    """A rank that the others wait for."""

    rank: int
    seconds: float
    """The median of its own part of a step."""
    usual: float
    """The same of the others."""


def slowest(steps: Sequence[Observation], before: int | None) -> Slow | None:
    """Return the slowest rank, if it is slow; None if the differences are small.

    Args:
        steps: In each, every rank has at least one sample.
        before: The rank that was slow until now. It is still the one if it is slower than ``OVER``.
    """
    ranks = range(len(steps[0].work_seconds))
    seconds = [median(step.work_seconds[rank] for step in steps) for rank in ranks]
    per_sample = [median(step.per_sample(rank) for step in steps) for rank in ranks]

    def excess(rank: int) -> float:
        return min(each[rank] / _of_others(each, rank) for each in (seconds, per_sample))

    if before is not None and excess(before) >= OVER:
        found = before
    else:
        found = max(ranks, key=seconds.__getitem__)
        if excess(found) < SLOW:
            return None
    slow = Slow(found, seconds[found], _of_others(seconds, found))
    return slow if slow.seconds - slow.usual >= LEAST_SECONDS else None


def _of_others(values: Sequence[float], rank: int) -> float:
    return median([*values[:rank], *values[rank + 1 :]])


class Stragglers:
    """Judges the ranks of one generation after the other. For one thread.

    Rank 0 logs who is slow, once until it is over. The slow rank says it in its metrics.
    """

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self._log, self._metrics = log, metrics
        self.work_seconds = 0.0
        """Time of this rank's own part of the last step; 0 if it has made none in the generation."""
        self._together_at = 0.0
        """Monotonic time of the last sum over the ranks."""
        self._members: Sequence[Seat] = ()
        self._batch_size = 0
        """Of the step before, to which the times belong."""
        self._steps: list[Observation] = []
        self._slow: Seat | None = None

    def begin(self) -> None:
        """Note that a generation begins."""
        self.work_seconds = 0.0
        self.together()

    def together(self) -> None:
        """Note that a sum over the ranks is complete."""
        self._together_at = time.monotonic()

    def worked(self, idle_seconds: float) -> None:
        """Note that the sums of a step are complete. ``idle_seconds`` of the time since the last sum were no work."""
        before, self._together_at = self._together_at, time.monotonic()
        self.work_seconds = max(self._together_at - before - idle_seconds, 1e-9)

    def step(self, members: Sequence[Seat], rank: int, work_seconds: Sequence[float], batch_size: int) -> None:
        """Note one step. The times are those of the step before; 0 where a rank has made none in this generation."""
        if members is not self._members:
            self._members, self._steps = members, []
        before, self._batch_size = self._batch_size, batch_size
        if not 1 < len(work_seconds) <= before or not all(work_seconds):
            return
        self._steps.append(Observation(work_seconds, before))
        if len(self._steps) == STEPS:
            known = [each for each, member in enumerate(members) if self._slow and member.id == self._slow.id]
            slow = slowest(self._steps, known[0] if known else None)
            self._steps = []
            self._say(slow, rank)

    def _say(self, slow: Slow | None, rank: int) -> None:
        before, self._slow = self._slow, None if slow is None else self._members[slow.rank]
        self._metrics.straggles(slow.seconds - slow.usual if slow and slow.rank == rank else 0.0)
        if rank or (self._slow and self._slow.id) == (before and before.id):
            return
        if before is not None:
            self._log.event("straggler_over", peer=before.worker)
        if slow is not None and self._slow is not None:
            self._log.event(
                "straggler",
                peer=self._slow.worker,
                host=self._slow.host,
                rank=slow.rank,
                seconds=slow.seconds,
                others_seconds=slow.usual,
                steps=STEPS,
            )
