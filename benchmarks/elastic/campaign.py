"""Runs faults of one system after another. The jobs are kept in between, stopped at their gates.

    campaign = Campaign(open_job, found=record, say=print, keep=True)
    campaign.run(system, KILL, number=0)
    campaign.end()

One job runs at a time. If a job breaks, it is restarted and the run is repeated. If the survivors don't continue within
the fault's cap, the cap counts as the time of the run, and the job is restarted too.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from benchmarks.elastic.faults import Capped, Cycle, Fault
from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.systems import System

FAILURES = 3
"""Number of times that a system's job may break at one fault before the fault is skipped."""


class Campaign:
    """Makes cycles of faults and tells their values."""

    def __init__(
        self,
        open_job: Callable[[System], Job],
        *,
        found: Callable[[str, str, float], None],
        say: Callable[[str], None],
        keep: bool,
    ) -> None:
        """Args:
        open_job: Makes a job, not started.
        found: Told of measure, system and value, as soon as a cycle is over.
        say: Told of the progress.
        keep: Keep the jobs of all systems until `end`. Otherwise a job ends when it is another system's turn.
        """
        self._open_job, self._found, self._say, self._keep = open_job, found, say, keep
        self._jobs: dict[str, Job] = {}
        self._broken: dict[tuple[str, str], int] = defaultdict(int)

    def run(self, system: System, fault: Fault, number: int) -> None:
        """Make run `number`, which determines the worker that is hit. It is left out if the job breaks too often."""
        for name in [name for name in self._jobs if name != system.name and not self._keep]:
            self._end(name)
        while self._broken[system.name, fault.name] < FAILURES:
            if self._one(system, fault, number):
                return

    def end(self) -> None:
        """End every process. Safe to call again."""
        for name in list(self._jobs):
            self._end(name)

    def _one(self, system: System, fault: Fault, number: int) -> bool:
        """Return whether it gave a result."""
        begin = time.monotonic()
        try:
            job = self._ready(system)
            values = Cycle(job, fault).run(victim=number % job.site.nodes)
            job.park()
        except Capped:
            values = {fault.headline: fault.cap_seconds}
            self._end(system.name)
        except JobBroken as error:
            self._broken[system.name, fault.name] += 1
            self._say(f"{error}\nthis run is left out")
            self._end(system.name)
            return False
        for measure, value in values.items():
            self._found(measure, system.name, value)
        took = time.monotonic() - begin
        figures = ", ".join(f"{measure} {value:.3f}" for measure, value in values.items())
        self._say(f"run {number + 1}, {system.name}, {fault.name}: {figures} ({took:.0f} s)")
        return True

    def _ready(self, system: System) -> Job:
        if system.name not in self._jobs:
            self._jobs[system.name] = job = self._open_job(system)
            job.start()
            job.steady(world=job.site.nodes)
        return self._jobs[system.name]

    def _end(self, name: str) -> None:
        if job := self._jobs.pop(name, None):
            job.end()
