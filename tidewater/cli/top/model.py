"""From one sample to the next: what `top` shows. Pure, and frozen.

    model = advance(None, first_sample)
    model = advance(model, second_sample)

Workers lose their counters when they end, and all workers of a job count the same recoveries. So the model adds up
what has been new from sample to sample (`recoveries`). What no worker that is still there has seen is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from tidewater.cli.top.changes import Line, changes
from tidewater.cli.top.recoveries import Behind, behind, most, recovered
from tidewater.cli.top.samples import Job, Sample
from tidewater.cli.top.sampling import NO_ANSWERS, Answers, Process
from tidewater.cli.top.scrape import Reading, Recoveries

HISTORY = 240
"""Points of a curve that are kept."""
LINES = 200
"""Changes that are kept."""


@dataclass(frozen=True)
class Curve:
    """One value of each sample, the newest last."""

    points: tuple[float, ...] = ()

    def then(self, value: float | None) -> Curve:
        """Return the curve with one more point; None adds none."""
        return self if value is None else Curve((*self.points, value)[-HISTORY:])

    @property
    def last(self) -> float | None:
        """Return the newest point."""
        return self.points[-1] if self.points else None


@dataclass(frozen=True)
class Followed:
    """One job, and what was learned about it since `top` was started."""

    job: Job
    processes: Mapping[Process, Reading] = field(default_factory=dict)
    """The newest reading of each process that has a pod, also if it has not answered this time."""
    loss: Curve = Curve()
    throughput: Curve = Curve()
    """Samples per second of all workers together."""
    recoveries: Mapping[str, Recoveries] = field(default_factory=dict)
    """By cause, since the oldest worker of the first sample started."""
    behind: Mapping[Process, Behind] = field(default_factory=dict)
    """The recoveries that are counted and that a process has not counted yet, as it was read too early."""
    lines: tuple[Line, ...] = ()

    @property
    def lead(self) -> Reading | None:
        """Return the reading that is furthest in training: others may be cut off, or have been read earlier."""
        trained = [each for each in self.processes.values() if each.steps]
        return max(trained, key=lambda each: (each.generation or 0, each.step or 0), default=None)

    @property
    def goodput(self) -> float | None:
        """Return the goodput as the worker has seen it that has trained longest."""
        trained = [each for each in self.processes.values() if each.steps]
        oldest = max(trained, key=lambda each: each.steps, default=None)
        return oldest.goodput if oldest else None


@dataclass(frozen=True)
class Model:
    """All jobs that are shown."""

    at: datetime
    jobs: tuple[Followed, ...]
    changed: bool = True
    """Whether anything has happened since the last sample but progress."""
    trouble: str = ""
    """Why the sample is old: the API server's answer, or that there was none."""
    none: str = ""
    """If there are no jobs: where there are some."""
    answers: Answers = NO_ANSWERS
    """The workers' answers up to this sample."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the changes of all jobs, in order."""
        return tuple(sorted((line for each in self.jobs for line in each.lines), key=lambda line: line.at))


def advance(model: Model | None, sample: Sample) -> Model:
    """Return what to show after one more sample."""
    before = {each.job.key: each for each in model.jobs} if model else {}
    jobs = tuple(_follow(before.get(job.key), job, sample.at) for job in sample.jobs)
    old = {(key, line) for key, each in before.items() for line in each.lines}
    new = any((each.job.key, line) not in old for each in jobs for line in each.lines)
    gone = before.keys() - {job.key for job in sample.jobs}
    changed = model is None or new or bool(gone) or len(jobs) != len(before)
    return Model(sample.at, jobs, changed=changed, none=sample.none, answers=sample.answers)


def _follow(before: Followed | None, job: Job, at: datetime) -> Followed:
    if before is None or before.job.uid != job.uid:
        processes = _processes(job, {})
        first = Followed(job, processes, recoveries=most(each.recoveries for each in processes.values()))
        return _with_loss(first, None)
    processes = _processes(job, before.processes)
    new = recovered(before.processes, processes, before.behind)
    unasked = sum(worker.scraped.unasked for worker in job.workers)
    now = Followed(
        job=job,
        processes=processes,
        loss=before.loss,
        throughput=before.throughput.then(throughput(before.processes, processes, unasked)),
        recoveries=_sum(before.recoveries, new),
        behind=behind(before.processes, processes, before.behind, new),
        lines=(*before.lines, *changes(before.job, job, new, at))[-LINES:],
    )
    return _with_loss(now, before.lead)


def _processes(job: Job, before: Mapping[Process, Reading]) -> dict[Process, Reading]:
    """Return the newest reading of every process of the pods that exist."""
    uids = {worker.uid for worker in job.workers}
    kept = {process: reading for process, reading in before.items() if process[0] in uids}
    new = {(worker.uid, port): reading for worker in job.workers for port, reading in worker.scraped.readings.items()}
    return {**kept, **new}


def _with_loss(now: Followed, previous: Reading | None) -> Followed:
    """Add the loss of the newest step, unless it has a point already."""
    lead = now.lead
    if lead is None or (previous and (previous.generation, previous.step) == (lead.generation, lead.step)):
        return now
    return replace(now, loss=now.loss.then(lead.loss))


def throughput(before: Mapping[Process, Reading], now: Mapping[Process, Reading], unasked: int = 0) -> float | None:
    """Return samples per second between two samples, summed over the processes; None if none was read twice.

    Processes that were not asked are assumed to be as fast as the mean of those that have answered.
    """
    rates = [
        # A counter that is less than before belongs to a process that was started again.
        (reading.samples - (old.samples if reading.samples >= old.samples else 0.0)) / (reading.at - old.at)
        for process, reading in now.items()
        if (old := before.get(process)) and reading.at > old.at
    ]
    return math.fsum(rates) * (1 + unasked / len(rates)) if rates else None


def _sum(one: Mapping[str, Recoveries], other: Mapping[str, Recoveries]) -> dict[str, Recoveries]:
    return {cause: one.get(cause, Recoveries()) + other.get(cause, Recoveries()) for cause in one.keys() | other.keys()}
