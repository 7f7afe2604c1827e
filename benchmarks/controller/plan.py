"""The turns of each system and number of jobs, how long one takes, and what happens in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.controller import results
from benchmarks.harness.plan import Series

SIZES = (100, 1000, 5000)
HEADLINE = 1000
"""The number of jobs at which the systems are compared; the others show growth."""

LARGE_TURNS = 3
"""Most turns with one large job."""

LIMITS = {
    (results.DEFAULTS, 100): 3,
    (results.DEFAULTS, 1000): 2,
    (results.DEFAULTS, 5000): 0,
    (results.TIDEWATER, 5000): 3,
    (results.TUNED, 5000): 3,
}
"""Most turns of a system at a size. With 20 requests a second, a thousand jobs take more than ten minutes, as the limit
decides and not the machine; five thousand would take an hour."""

REST_FROM = 1000
"""From this number of jobs on, a turn ends with a measure of rest."""

_RATES = {results.TIDEWATER: 50.0, results.TUNED: 50.0, results.DEFAULTS: 1.6}
"""Jobs a second that the plan expects, on a quiet machine with 2 cores."""

_EVENTS_EACH, _EVENTS_WAITING, _EVENTS_RATE = 3, 2000, 20.0
"""Of Tidewater, which sends its events after the pods, and slowly. The turn waits for that."""

_OVERHEAD_SECONDS = 35.0
_CLEANING_SECONDS = 0.01
_LARGE_SECONDS = 20.0
"""Three times `quiet_seconds`, and the events of one job."""


@dataclass(frozen=True)
class Pace:
    """How many resizes a turn makes, how often, and how long it rests."""

    resizes: int = 100
    resize_seconds: float = 0.5
    """From one resize to the next at least: with 20 requests a second, the work of one is over before the next."""
    rest_seconds: float = 60.0
    quiet_seconds: float = 5.0
    """Without a call for so long, a controller is at rest."""

    def seconds(self, system: str, jobs: int) -> float:
        """Return how long a turn probably takes."""
        resizes = min(self.resizes, jobs) * self.resize_seconds
        rest = self.rest_seconds if jobs >= REST_FROM else 0.0
        waiting = min(jobs * _EVENTS_EACH, _EVENTS_WAITING) if system == results.TIDEWATER else 0
        events = waiting / _EVENTS_RATE
        return _OVERHEAD_SECONDS + jobs * (1 / _RATES[system] + _CLEANING_SECONDS) + resizes + rest + events


def blocks(
    sizes: Sequence[int], systems: Sequence[str], runs: int, pace: Pace, pods: Sequence[int] = ()
) -> list[list[Series]]:
    """Return the series of each number of jobs, with as many turns as LIMITS allows, and of one job with many pods."""

    def series(system: str, jobs: int) -> Series:
        limit = min(runs, LIMITS.get((system, jobs), runs))
        counted = results.named(jobs, results.RATE)
        return Series(f"{jobs:5} jobs", (system,), counted, limit, pace.seconds(system, jobs))

    def large(system: str, count: int) -> Series:
        seconds = _OVERHEAD_SECONDS + _LARGE_SECONDS + count * (3 / _RATES[system] + _CLEANING_SECONDS)
        counted = results.large(count, results.ALL_CREATED)
        return Series(f"{count:5} pods", (system,), counted, min(runs, LARGE_TURNS), seconds)

    several = [[series(system, jobs) for system in systems] for jobs in sizes]
    return several + [[large(system, count) for system in systems] for count in pods]
