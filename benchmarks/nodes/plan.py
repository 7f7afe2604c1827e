"""Which turns a run of the benchmark makes, in which order, and how long that takes.

    turns = wanted(SYSTEMS, turns=3, have=records.count)
    print(told(turns))

In each round every system has one turn, in every second round in the reverse order. What an earlier run has recorded is
not wanted again, so an interrupted run continues where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.nodes.results import WHOLE, named

SMALL, LARGE = 2, 8
"""From one worker to so many: one newcomer, and seven at once."""

REPEATS = 2
"""How often a job grows to SMALL and back, and to LARGE and back, in a turn: three turns are six values each."""

_STACK_SECONDS = 90.0
"""To make a stack and to remove it, on a quiet machine with 2 cores."""

_CHANGES_SECONDS = 150.0
"""From one worker to SMALL and back, and to LARGE and back. Much of it is the time for which a node stays empty."""


@dataclass(frozen=True)
class Turn:
    """A stack with one system, made, resized and removed."""

    system: str
    number: int
    """Of the turn, from 0."""

    @property
    def changes(self) -> tuple[int, ...]:
        """The sizes to which the job grows from one worker, one after the other."""
        return (SMALL, LARGE) * REPEATS

    @property
    def seconds(self) -> float:
        """How long it probably takes."""
        return _STACK_SECONDS + REPEATS * _CHANGES_SECONDS


def wanted(systems: Sequence[str], *, turns: int, have: Callable[[str, str], int]) -> list[Turn]:
    """Return the missing turns, in the order in which they are made.

    Args:
        systems: By name.
        turns: How many turns of each system there are in the end.
        have: How many records there are of a measure of a system. A turn's last one is the growth to LARGE.
    """
    return [
        Turn(system, number)
        for number in range(turns)
        for system in (list(systems) if number % 2 == 0 else list(reversed(systems)))
        if have(named(1, LARGE, WHOLE), system) <= number
    ]


def told(turns: Sequence[Turn]) -> str:
    """Return a table of the turns and the time that they need."""
    count = Counter(turn.system for turn in turns)
    seconds: Counter[str] = Counter()
    for turn in turns:
        seconds[turn.system] += round(turn.seconds)
    lines = [f"{system:12} {number:4} turns {seconds[system] / 60:7.1f} min" for system, number in count.items()]
    return "\n".join([*lines, f"{'in all':12} {len(turns):4} turns {sum(seconds.values()) / 60:7.1f} min"])
