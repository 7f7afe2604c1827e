"""The measures of each system, and how long one turn takes.

The turns that need a cluster come last, since its processes would take time from the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.elasticdl.systems import BOTH_DONE, COMPUTING, PACED, REPLACED, REPLACEMENT, SHARING
from benchmarks.harness.plan import Series

REPLACE = "replace"
"""The turn that gives both measures of a replacement."""
ROOMS = "rooms"
"""The turn that gives both measures of two jobs on a cluster."""
SECONDS = {"computing": 25.0, "paced": 25.0, REPLACE: 25.0, ROOMS: 75.0}
"""Of one turn of a measure, with the start of its processes, on a quiet machine with 2 cores."""
CLUSTER_SECONDS = 120.0
"""To make a cluster for all turns that need one, and to stop it."""
MEASURES = {"computing": COMPUTING, "paced": PACED, REPLACE: REPLACED, ROOMS: BOTH_DONE}
"""What may be asked for, and the recorded measure that counts its turns."""


def blocks(names: Sequence[str], measures: Sequence[str], runs: int) -> list[list[Series]]:
    """Return the series of these systems and of keys of MEASURES."""
    fixed = {REPLACE: [REPLACEMENT.name], ROOMS: [system.name for system in SHARING]}
    found = {
        measure: [
            Series(measure, (name,), MEASURES[measure], runs, SECONDS[measure]) for name in fixed.get(measure, names)
        ]
        for measure in measures
    }
    shared = found.pop(ROOMS, [])
    return [[series for each in found.values() for series in each], shared]
