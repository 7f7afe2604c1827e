"""Which turns a run of the benchmark makes, in which order, and how long that takes.

    turns = wanted([100, 1000], SYSTEMS, turns=5, have=records.count)
    print(told(turns))

In each round every system has one turn, in every second round in the reverse order. What an earlier run has recorded
is not wanted again, so an interrupted run continues where it stopped, and a run can be split by sizes and systems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.controller import results

SIZES = (100, 1000, 5000)
HEADLINE = 1000
"""The number of jobs at which the systems are compared; the others show growth."""

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


@dataclass(frozen=True)
class Pace:
    """How many resizes a turn makes, how often, and how long it rests."""

    resizes: int = 100
    resize_seconds: float = 0.5
    """From one resize to the next at least: with 20 requests a second, the work of one is over before the next."""
    rest_seconds: float = 60.0


@dataclass(frozen=True)
class Turn:
    """One turn of one system: it creates jobs, resizes some, rests, and is stopped."""

    system: str
    jobs: int
    number: int
    """Of the turn, from 0."""

    @property
    def rests(self) -> bool:
        """Whether the calls at rest are measured."""
        return self.jobs >= REST_FROM

    def seconds(self, pace: Pace) -> float:
        """Return how long it probably takes."""
        resizes = min(pace.resizes, self.jobs) * pace.resize_seconds
        rest = pace.rest_seconds if self.rests else 0.0
        waiting = min(self.jobs * _EVENTS_EACH, _EVENTS_WAITING) if self.system == results.TIDEWATER else 0
        events = waiting / _EVENTS_RATE
        return _OVERHEAD_SECONDS + self.jobs * (1 / _RATES[self.system] + _CLEANING_SECONDS) + resizes + rest + events


def wanted(sizes: Sequence[int], systems: Sequence[str], *, turns: int, have: Callable[[str, str], int]) -> list[Turn]:
    """Return the missing turns, in the order in which they are made.

    Args:
        sizes: Numbers of jobs.
        systems: By name.
        turns: How many turns of each system and size there are in the end, if LIMITS allows as many.
        have: How many turns have recorded a measure of a system.
    """
    found = []
    for jobs in sizes:
        for number in range(turns):
            for system in list(systems) if number % 2 == 0 else list(reversed(systems)):
                limit = min(turns, LIMITS.get((system, jobs), turns))
                if have(results.named(jobs, results.RATE), system) <= number < limit:
                    found.append(Turn(system, jobs, number))
    return found


def told(turns: Sequence[Turn], pace: Pace) -> str:
    """Return a table of the turns and the time that they need."""
    count = Counter((turn.jobs, turn.system) for turn in turns)
    seconds: Counter[tuple[int, str]] = Counter()
    for turn in turns:
        seconds[turn.jobs, turn.system] += round(turn.seconds(pace))
    lines = [
        f"{jobs:5} jobs  {system:26} {count[jobs, system]:4} turns {seconds[jobs, system] / 60:7.1f} min"
        for jobs, system in count
    ]
    return "\n".join([*lines, f"{'in all':38} {len(turns):4} turns {sum(seconds.values()) / 60:7.1f} min"])
