"""Which turns a run of a benchmark makes, in which order, and how long that takes.

    turns = wanted([[Series("kill", ("tidewater",), "SIGKILL: pause", runs=10, seconds=9.0), ...]], have=records.count)
    print(table(turns))

In each round every series of a block has one turn, in every second round in the reverse order, so that all see the
same machine. Turns that an earlier run has recorded are not made again. So an interrupted run continues where it
stopped, and a run can be split by measures, systems and rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """Equal turns of one system, or of several that are measured together."""

    label: str
    """What is measured, as the plan shows it."""
    systems: tuple[str, ...]
    counted: str
    """The recorded measure of the first system that shows how many turns have been made."""
    runs: int
    """Number of turns that the file has in the end."""
    seconds: float
    """Of one turn, on a quiet machine with 2 cores."""

    @property
    def system(self) -> str:
        """Return the system that counts the turns."""
        return self.systems[0]

    def __str__(self) -> str:
        """Return the columns of the plan that name the series."""
        return f"{self.label:12} {', '.join(self.systems):32}"


@dataclass(frozen=True)
class Turn:
    """One turn of a series."""

    series: Series
    number: int
    """From 0."""


def wanted(blocks: Sequence[Sequence[Series]], have: Callable[[str, str], int]) -> list[Turn]:
    """Return the missing turns, in the order in which they are made.

    Args:
        blocks: One after another; the series of a block take turns.
        have: Returns how many records there are of a measure and a system.
    """
    return [
        Turn(series, number)
        for block in blocks
        for number in range(max((series.runs for series in block), default=0))
        for series in (block if number % 2 == 0 else reversed(block))
        if have(series.counted, series.system) <= number < series.runs
    ]


def table(turns: Sequence[Turn], setup_seconds: float = 0.0) -> str:
    """Return a table of the turns and of the time that they need; the last line adds what is set up once for all."""
    count = Counter(turn.series for turn in turns)
    lines = [f"{series} {n:4} turns {n * series.seconds / 60:7.1f} min" for series, n in count.items()]
    total = sum(turn.series.seconds for turn in turns) + setup_seconds
    return "\n".join([*lines, f"{'in all':45} {len(turns):4} turns {total / 60:7.1f} min"])
