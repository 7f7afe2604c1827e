"""Runs faults of one system after another. The jobs are kept in between, stopped at their gates.

    campaign = Campaign(open_job, say=print, keep=True)
    campaign.run(system, KILL, number=0)        # values by measure
    campaign.end()

One job runs at a time. If a job breaks, it is restarted and the run is repeated. If the survivors don't continue within
the fault's cap, the cap counts as the time of the run, and the job is restarted too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from benchmarks.elastic.faults import Capped, Cycle, Fault
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import System
from benchmarks.harness.command import Say, TurnFailed

FAILURES = 3
"""Number of times that a system's job may break at one fault before the fault is skipped."""


class Campaign:
    """Makes cycles of faults."""

    def __init__(self, open_job: Callable[[System], Job], *, say: Say, keep: bool) -> None:
        """Args:
        open_job: Makes a job, not started.
        say: Called with the progress.
        keep: Keep the jobs of all systems until `end`. Otherwise a job ends when it is another system's turn.
        """
        self._open_job, self._say, self._keep = open_job, say, keep
        self._jobs: dict[str, Job] = {}
        self._broken: dict[tuple[str, str], int] = defaultdict(int)

    def run(self, system: System, fault: Fault, number: int) -> dict[str, float]:
        """Make run `number`, which determines the worker that is hit. Return the values by measure.

        Raises:
            TurnFailed: The system's job has broken too often at this fault.
        """
        for name in [name for name in self._jobs if name != system.name and not self._keep]:
            self._end(name)
        while self._broken[system.name, fault.name] < FAILURES:
            try:
                job = self._ready(system)
                values = Cycle(job, fault).run(victim=number % job.site.nodes)
                job.park()
                return values
            except Capped:
                self._end(system.name)
                return {fault.headline: fault.cap_seconds}
            except TurnFailed as error:
                self._broken[system.name, fault.name] += 1
                self._say(f"{error}\nthis run is repeated with a new job")
                self._end(system.name)
        raise TurnFailed(f"{system.name}: its job has broken {FAILURES} times at {fault.name}")

    def end(self) -> None:
        """End every process. Safe to call again."""
        for name in list(self._jobs):
            self._end(name)

    def _ready(self, system: System) -> Job:
        if system.name not in self._jobs:
            self._jobs[system.name] = job = self._open_job(system)
            job.start()
            job.steady(world=job.site.nodes)
        return self._jobs[system.name]

    def _end(self, name: str) -> None:
        if job := self._jobs.pop(name, None):
            job.end()
