"""Which turns a run of the benchmark makes, in which order, and how long that takes.

    turns = wanted(names, measures, runs=5, have=records.count)
    print(told(turns))

In each round every system has one turn of every measure, in every second round in the reverse order, so that all see
the same machine. The turns that need a cluster come last, since its processes would take time from the others. What an
earlier run has recorded is not wanted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.elasticdl.systems import (
    BOTH_DONE,
    BY_NAME,
    COMPUTING,
    PACED,
    REPLACED,
    REPLACEMENT,
    SHARING,
    System,
)

REPLACE = "replace"
"""The turn that gives both measures of a replacement."""
ROOMS = "rooms"
"""The turn that gives both measures of two jobs on a cluster."""
SECONDS = {"computing": 25.0, "paced": 25.0, REPLACE: 25.0, ROOMS: 75.0}
"""Of one turn of a measure, with the start of its processes, on a quiet machine with 2 cores."""
CLUSTER_SECONDS = 120.0
"""To make a cluster for all turns that need one, and to stop it."""
MEASURES = {"computing": COMPUTING, "paced": PACED, REPLACE: REPLACED, ROOMS: BOTH_DONE}
"""What may be asked for, and the measure by which its turns are counted."""


@dataclass(frozen=True)
class Turn:
    """One job."""

    measure: str
    """A key of MEASURES."""
    system: System
    number: int
    """From 0."""

    @property
    def on_cluster(self) -> bool:
        """Return whether it needs a cluster."""
        return self.measure == ROOMS


def wanted(names: Sequence[str], measures: Sequence[str], *, runs: int, have: Callable[[str, str], int]) -> list[Turn]:
    """Return the missing turns, in the order in which they are made.

    Args:
        names: of systems.
        measures: keys of MEASURES.
        runs: how many there are of each in the end.
        have: how many records there are of a measure and a system.
    """
    rates = [(measure, name) for measure in measures if measure not in (REPLACE, ROOMS) for name in names]
    kills = [(REPLACE, REPLACEMENT.name)] if REPLACE in measures else []
    shared = [(ROOMS, system.name) for system in SHARING] if ROOMS in measures else []
    return [
        Turn(measure, BY_NAME[name], number)
        for part in ([*rates, *kills], shared)
        for number in range(runs)
        for measure, name in (part if number % 2 == 0 else reversed(part))
        if have(MEASURES[measure], name) <= number
    ]


def told(turns: Sequence[Turn]) -> str:
    """Return a table of the turns and the time that they need."""
    count = Counter((turn.measure, turn.system.name) for turn in turns)
    lines = [
        f"{measure:10} {name:28} {number:3} turns {number * SECONDS[measure] / 60:6.1f} min"
        for (measure, name), number in count.items()
    ]
    whole = sum(SECONDS[turn.measure] for turn in turns)
    whole += CLUSTER_SECONDS if any(turn.on_cluster for turn in turns) else 0.0
    return "\n".join([*lines, f"{'in all':39} {len(turns):3} turns {whole / 60:6.1f} min"])
