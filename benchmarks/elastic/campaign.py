"""Rounds of faults, one system after another in each round, until every measure has enough runs.

    campaign = Campaign(open_job, [KILL, TERM], runs=10, say=print)
    campaign.run(systems)
    campaign.values          # (measure, system) -> results of the runs

The jobs of all systems exist at the same time, stopped at their gates, and run one at a time. If a job breaks, it is
restarted and the run is repeated. If the survivors don't continue within the fault's cap, the cap counts as the time of
the run, and the job is restarted too.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks.elastic.faults import Capped, Cycle, Fault
from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.systems import System

FAILURES = 3
"""Number of times that a system's job may break at one fault before the fault is skipped."""


class Campaign:
    """Collects the results of cycles of faults; `values` is valid at any time."""

    def __init__(
        self,
        open_job: Callable[[System], Job],
        faults: Sequence[Fault],
        *,
        runs: int,
        say: Callable[[str], None],
    ) -> None:
        self._open_job, self._faults, self._runs, self._say = open_job, faults, runs, say
        self._jobs: dict[str, Job] = {}
        self._broken: dict[tuple[str, str], int] = defaultdict(int)
        self.values: dict[tuple[str, str], list[float]] = defaultdict(list)

    def run(self, systems: Sequence[System]) -> None:
        """Run all rounds. Every process has ended afterwards."""
        try:
            for number in range(self._runs):
                for system in systems:
                    for fault in self._faults:
                        while self._broken[system.name, fault.name] < FAILURES:
                            if self._one(system, fault, number):
                                break
        finally:
            for name in list(self._jobs):
                self._end(name)

    def _one(self, system: System, fault: Fault, number: int) -> bool:
        """Return whether it gave a result."""
        begin = time.monotonic()
        try:
            job = self._ready(system)
            found = Cycle(job, fault).run(victim=number % job.site.nodes)
            job.park()
        except Capped:
            found = {fault.headline: fault.cap_seconds}
            self._end(system.name)
        except JobBroken as error:
            self._broken[system.name, fault.name] += 1
            self._say(f"{error}\nthis run is left out")
            self._end(system.name)
            return False
        for measure, value in found.items():
            self.values[measure, system.name].append(value)
        took = time.monotonic() - begin
        figures = ", ".join(f"{measure} {value:.3f}" for measure, value in found.items())
        self._say(f"run {number + 1} of {self._runs}, {system.name}, {fault.name}: {figures} ({took:.0f} s)")
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
