"""Measures what a lost, frozen, leaving or returning worker costs the others.

    cycle = Cycle(job, KILL)
    cycle.run(victim=1)       # -> {"SIGKILL: next committed step": 0.21, …}

One cycle: three workers train; one gets the signal; the survivors make their first step as two; the worker is started
again; three train. All times come from the workers' records.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections import Counter
from dataclasses import dataclass

from benchmarks.elastic.jobs import Job
from benchmarks.elastic.timeline import Line, first_step, longest_gap, step_seconds, steps_lost

_NUMBERS = {2: "two", 3: "three"}
UNDISTURBED_SECONDS = 1.0
LEAVE_SECONDS = 20.0
AFTERWARDS_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """A signal to one worker (for torchrun also to its agent), and how long to wait for its effect."""

    name: str
    signal: signal.Signals
    cap_seconds: float
    frozen_or_gone: bool
    """Whether the worker ends without notice. Then the time until the others continue counts, otherwise their pause."""

    @property
    def headline(self) -> str:
        """The measure that this fault is about."""
        return f"{self.name}: next committed step" if self.frozen_or_gone else f"{self.name}: pause"


KILL = Fault("SIGKILL", signal.SIGKILL, 180.0, True)
STOP = Fault("SIGSTOP", signal.SIGSTOP, 120.0, True)
TERM = Fault("SIGTERM", signal.SIGTERM, 180.0, False)
FAULTS = {"kill": KILL, "stop": STOP, "term": TERM}


def join_of(workers: int) -> str:
    """Return the beginning of the measures of a join, after which there are so many workers."""
    return f"join {workers - 1} to {workers}"


def step_of(workers: int) -> str:
    """Return the measure of a step without a fault: what a pause contains, since it ends with a committed step."""
    return f"a step of {_NUMBERS[workers]} workers"


JOIN, STEP = join_of(3), step_of(3)
"""Of the jobs with an undivided model."""


def unit(measure: str) -> str:
    """Of a measure that a cycle gives."""
    return "steps" if measure.endswith("lost") else "s"


class Capped(Exception):
    """The survivors had not continued when the cap was reached."""


class Cycle:
    """One fault and the recovery from it, on a running job. Create a new one for the next fault."""

    def __init__(self, job: Job, fault: Fault) -> None:
        self._job, self._fault = job, fault

    def run(self, victim: int) -> dict[str, float]:
        """Return seconds and steps by measure.

        Raises:
            Capped: The survivors did not continue in time; the job can't be used any more.
            TurnFailed: Something else went wrong than what is measured.
        """
        job = self._job
        job.forget()
        job.open_gate()
        job.steady(world=job.site.nodes, after=time.monotonic())
        time.sleep(UNDISTURBED_SECONDS)
        return self._lose(victim) | self._rejoin(victim)

    def _lose(self, victim: int) -> dict[str, float]:
        job, fault = self._job, self._fault
        survivors, world = self._survivors(victim), job.site.nodes - 1
        step = statistics.median(step_seconds(job.lines, node=min(survivors)))
        process = job.nodes.pop(victim)
        at = time.monotonic()
        try:
            # SIGTERM goes to the process that would be the first one of a pod, which must stop its children.
            process.signal(fault.signal, whole_tree=fault.frozen_or_gone)
            resumed = self._resumed(survivors, world, at)
            self._settle(survivors, world, at)
            if not fault.frozen_or_gone:
                process.wait(LEAVE_SECONDS)
        finally:
            process.end()
        gap = longest_gap(job.lines, nodes=survivors, begin=at, end=resumed.at + UNDISTURBED_SECONDS)
        seconds = resumed.at - at if fault.frozen_or_gone else gap
        return {
            step_of(job.site.nodes): step,
            fault.headline: seconds,
            f"{fault.name}: steps lost": float(steps_lost(job.lines, resumed)),
        }

    def _rejoin(self, victim: int) -> dict[str, float]:
        job, survivors, world = self._job, self._survivors(victim), self._job.site.nodes
        job.forget()
        begin = job.start_node(victim)
        cap = self._fault.cap_seconds
        joined = job.wait(
            lambda lines: first_step(lines, nodes=survivors, world=world, after=begin), cap, f"a step as {world}"
        )
        job.steady(world=world, after=begin)
        return {
            f"{join_of(world)}: pause": longest_gap(
                job.lines, nodes=survivors, begin=begin, end=joined.at + UNDISTURBED_SECONDS
            ),
            f"{join_of(world)}: steps lost": float(steps_lost(job.lines, joined)),
            f"{join_of(world)}: from the process's start": joined.at - begin,
        }

    def _resumed(self, survivors: set[int], world: int, at: float) -> Line:
        deadline = time.monotonic() + self._fault.cap_seconds
        while True:
            line = first_step(self._job.lines, nodes=survivors, world=world, after=at)
            if line is not None:
                return line
            if time.monotonic() > deadline:
                raise Capped
            self._job.check()
            time.sleep(0.05)

    def _settle(self, survivors: set[int], world: int, at: float) -> None:
        """Wait until all survivors have made some steps without the victim."""

        def settled(lines: list[Line]) -> bool | None:
            made = Counter(line.node for line in lines if line.world == world and line.at > at)
            return True if all(made[node] >= self._job.site.steady_steps for node in survivors) else None

        self._job.wait(settled, AFTERWARDS_SECONDS, f"steady training by {world}")

    def _survivors(self, victim: int) -> set[int]:
        return set(range(self._job.site.nodes)) - {victim}
