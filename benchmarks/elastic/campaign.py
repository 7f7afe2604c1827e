"""Rounds of faults, one system after the other in each round, until every measure has its runs.

    campaign = Campaign(open_job, [KILL, TERM], runs=10, patience_seconds=420, say=print)
    campaign.run(systems)
    campaign.values          # (measure, system) -> what the runs gave

All systems' jobs stand side by side, held at their gates, and run one at a time. A job that breaks is started anew and
the run is left out; a fault that a system doesn't survive within the cap is tried once more and then left alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks.elastic.faults import Capped, Cycle, Fault
from benchmarks.elastic.jobs import Job, JobBroken
from benchmarks.elastic.systems import System

CAPPED_RUNS = 2
"""More would only take time: the cap is all that one can learn."""
FEW_RUNS = 3
"""As many are made of what takes longer than one's patience."""
FAILURES = 3
"""So often a system's job may break at one fault."""


class Campaign:
    """Collects what cycles of faults give; `values` is good at any time."""

    def __init__(
        self,
        open_job: Callable[[System], Job],
        faults: Sequence[Fault],
        *,
        runs: int,
        patience_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._open_job, self._faults, self._runs, self._say = open_job, faults, runs, say
        self._patience_seconds = patience_seconds
        self._jobs: dict[str, Job] = {}
        self._spent: dict[tuple[str, str], float] = defaultdict(float)
        self._count: dict[tuple[str, str, str], int] = defaultdict(int)
        self.values: dict[tuple[str, str], list[float]] = defaultdict(list)

    def run(self, systems: Sequence[System]) -> None:
        """All rounds; every process has ended afterwards."""
        try:
            for number in range(self._runs):
                for system in systems:
                    for fault in self._faults:
                        if self._worth_it(system, fault):
                            self._one(system, fault, number)
        finally:
            for name in list(self._jobs):
                self._end(name)

    def _worth_it(self, system: System, fault: Fault) -> bool:
        def count(outcome: str) -> int:
            return self._count[system.name, fault.name, outcome]

        long_enough = self._spent[system.name, fault.name] > self._patience_seconds and count("good") >= FEW_RUNS
        return not (long_enough or count("capped") >= CAPPED_RUNS or count("broken") >= FAILURES)

    def _one(self, system: System, fault: Fault, number: int) -> None:
        begin, outcome = time.monotonic(), "good"
        found: dict[str, float] = {}
        try:
            job = self._ready(system)
            found = Cycle(job, fault).run(victim=number % job.site.nodes)
            job.park()
        except Capped:
            outcome, found = "capped", {fault.headline: fault.cap_seconds}
            self._end(system.name)
        except JobBroken as error:
            outcome = "broken"
            self._say(f"{error}\nthis run is left out")
            self._end(system.name)
        for measure, value in found.items():
            self.values[measure, system.name].append(value)
        self._count[system.name, fault.name, outcome] += 1
        took = time.monotonic() - begin
        self._spent[system.name, fault.name] += took
        figures = ", ".join(f"{measure} {value:.3f}" for measure, value in found.items())
        self._say(f"run {number + 1} of {self._runs}, {system.name}, {fault.name}: {figures or outcome} ({took:.0f} s)")

    def _ready(self, system: System) -> Job:
        if system.name not in self._jobs:
            self._jobs[system.name] = job = self._open_job(system)
            job.start()
            job.steady(world=job.site.nodes)
        return self._jobs[system.name]

    def _end(self, name: str) -> None:
        if job := self._jobs.pop(name, None):
            job.end()
