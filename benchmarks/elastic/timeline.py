"""Evaluates the workers' records: how long a job paused, what it lost, and its speed.

    lines = parse(0, "17 3 52000000000 0.41 48\\n")
    resumed = first_step(lines, nodes={0, 1}, world=2, after=51.5)

A worker of any system writes one line per committed step (see `workers/record.py`), so that all systems are timed by
the same clock at the same point. Everything here is a pure function of those lines; times are seconds of the
machine's monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

NANOSECONDS = 1_000_000_000
FIELDS = 5
APART_SECONDS = 10.0
"""Minimum time between two disturbances that is long enough to measure a pace."""
NEAR_SECONDS = 20.0
"""Time on either side of a disturbance in which the undisturbed pace is measured."""


@dataclass(frozen=True)
class Line:
    """One step that one worker saw committed."""

    node: int
    step: int
    world: int
    at: float
    loss: float
    samples: int
    """Of all workers together."""


@dataclass(frozen=True)
class Span:
    """A stretch of time."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin

    def within(self, other: Span) -> Span:
        """Return the part that lies in `other`, of no length if there is none."""
        begin = min(max(self.begin, other.begin), other.end)
        return Span(begin, max(begin, min(self.end, other.end)))


def parse(node: int, text: str) -> list[Line]:
    """Return the complete lines of a record. An incomplete line of a killed worker is skipped."""
    lines = []
    for line in text.splitlines(keepends=True):
        fields = line.split()
        if line.endswith("\n") and len(fields) == FIELDS:
            step, world, at, loss, samples = fields
            lines.append(Line(node, int(step), int(world), int(at) / NANOSECONDS, float(loss), int(samples)))
    return lines


@dataclass(frozen=True)
class Pair:
    """The time of a step of the system, and of the step of plain training right after it."""

    system: float
    plain: float


def pairs(records: Sequence[str]) -> list[Pair]:
    """From the records of all workers: a step has ended when the last of them has ended it.

    Otherwise a rank's wait for a rank that is still busy with a step would count for the next step, which belongs to
    the other system. A line has the times at which the system's step ended, and at which the plain one began and ended.
    """
    moments = [[tuple(map(int, line.split())) for line in record.splitlines()] for record in records]
    latest = [tuple(map(max, zip(*rows, strict=True))) for rows in zip(*moments, strict=False)]
    return [
        Pair(system=(end - before) / NANOSECONDS, plain=(after - begin) / NANOSECONDS)
        for (_, _, before), (end, begin, after) in pairwise(latest)
    ]


def first_step(lines: Iterable[Line], *, nodes: Collection[int], world: int, after: float) -> Line | None:
    """Return the first step that one of `nodes` made after `after` as one of `world` workers."""
    fitting = (line for line in lines if line.at > after and line.world == world and line.node in nodes)
    return min(fitting, key=lambda line: line.at, default=None)


def longest_gap(lines: Iterable[Line], *, nodes: Collection[int], begin: float, end: float) -> float:
    """Return the longest time between two consecutive steps of one of `nodes`, of those that touch `begin`..`end`."""
    times = defaultdict(list)
    for line in lines:
        if line.node in nodes:
            times[line.node].append(line.at)
    pairs = (pair for node in times.values() for pair in pairwise(sorted(node)))
    return max((late - early for early, late in pairs if late > begin and early < end), default=0.0)


def steps_lost(lines: Iterable[Line], resumed: Line) -> int:
    """Return how many steps the worker that made `resumed` had seen committed before, and had to see again."""
    before = (line.step for line in lines if line.node == resumed.node and line.at < resumed.at)
    return max(0, max(before, default=0) - resumed.step + 1)


def kept_samples(lines: Sequence[Line], begin: float, end: float) -> int:
    """Return samples of the steps first committed in `begin`..`end`; a step that is made again doesn't count again."""
    done = {line.step for line in lines if line.at < begin}
    return _made((line for line in lines if line.step not in done), Span(begin, end))


def disturbances(lines: Sequence[Line], kills: Iterable[tuple[float, int]], *, world: int, end: float) -> list[Span]:
    """From each kill, given by its time and node, until that node makes steps as one of `world` again, or until `end`.

    Those that are less than APART_SECONDS apart are one.
    """
    spans: list[Span] = []
    for at, node in sorted(kills):
        back = first_step(lines, nodes={node}, world=world, after=at)
        span = Span(at, back.at if back else end)
        if spans and span.begin < spans[-1].end + APART_SECONDS:
            last = spans.pop()
            span = Span(last.begin, max(last.end, span.end))
        spans.append(span)
    return spans


def undisturbed_samples(
    lines: Sequence[Line],
    disturbed: Sequence[Span],
    trace: Span,
    record: Span,
    *,
    absent: Sequence[Span] = (),
    world: int = 1,
) -> float:
    """Return the samples of `trace` at the pace that the job had just before and after each disturbance.

    A pace from another time would mean little, because a shared machine is slower at times. Repeated steps count here,
    because the disturbance causes the repetition.

    Args:
        lines: All of the record.
        disturbed: See `disturbances`.
        trace: The time in question.
        record: From some time before the first disturbance to some time after the last.
        absent: When one of the workers, each for itself, could not have worked; within the disturbances.
        world: How many workers there are. Each does an equal part.
    """
    edges = [record.begin, *(edge for span in disturbed for edge in (span.begin, span.end)), record.end]
    quiet = [Span(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    total: float = sum(_made(lines, span.within(trace)) for span in quiet)
    for span, before, after in zip(disturbed, quiet, quiet[1:], strict=False):
        before = before.within(Span(span.begin - NEAR_SECONDS, span.begin))
        after = after.within(Span(span.end, span.end + NEAR_SECONDS))
        pace = (_made(lines, before) + _made(lines, after)) / (before.seconds + after.seconds)
        inside = span.within(trace)
        total += pace * (inside.seconds - sum(each.within(inside).seconds for each in absent) / world)
    return total


def _made(lines: Iterable[Line], span: Span) -> int:
    """Return samples of the steps in a stretch of time."""
    return sum({line.step: line.samples for line in lines if span.begin <= line.at < span.end}.values())


def step_seconds(lines: Iterable[Line], *, node: int, first: int = 0, last: int | None = None) -> list[float]:
    """Return how long each of the steps `first`..`last` took one worker, from the step before it."""
    times = {line.step: line.at for line in lines if line.node == node}
    steps = [step for step in sorted(times) if step >= first and (last is None or step <= last)]
    return [times[step] - times[step - 1] for step in steps if step - 1 in times]
