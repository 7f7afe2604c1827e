"""The benchmark's changes and measures, by their names in the records, in the tables' order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

SYSTEM = "tidewater"

FORM, LOST, JOINS, TEN = "all join at once", "one lost", "one joins", "ten lost at once"
CHANGES = (FORM, LOST, JOINS, TEN)
"""In the order in which a turn makes them."""

SECONDS = "until the next generation everywhere"
GENERATIONS = "generations"
WRITES = "writes to etcd"
SENT = "bytes that etcd sends"
CPU = "processor time of each member"
UNITS = {SECONDS: "s", GENERATIONS: "generations", WRITES: "writes", SENT: "MB", CPU: "ms"}
"""By measure."""
LOAD = "load of the machine before the turn"


def named(members: int, change: str, measure: str) -> str:
    """Return the name of a measure in the records."""
    return f"{members} members, {change}: {measure}"


def load(members: int) -> str:
    """Return the name of the machine's load average of one minute, for turns of that size."""
    return f"{members} members: {LOAD}"


def size(name: str) -> int:
    """Return the number of members in the name of a measure."""
    return int(name.partition(" ")[0])


LINES: tuple[tuple[str, Callable[[int], str]], ...] = (
    *(
        (f"{change}: {measure}", partial(named, change=change, measure=measure))
        for change in CHANGES
        for measure in UNITS
    ),
    (LOAD, load),
)
"""Labels of all measures, and what returns their names for a number of members."""
