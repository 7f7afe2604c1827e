"""The benchmark's systems and measures, by their names in the records, in the tables' order."""

from __future__ import annotations

KARPENTER = "karpenter"
NODEGROUP = "nodegroup"
SYSTEMS = (KARPENTER, NODEGROUP)
"""Values of the setting `surgeNodes`."""

SMALL, LARGE = 2, 8
"""From one worker to so many: one newcomer, and seven at once."""
REPEATS = 2
"""How often a job grows to SMALL and back, and to LARGE and back, in a turn: three turns are six values each."""
CHANGES = (SMALL, LARGE) * REPEATS
"""The sizes to which the job grows from one worker, one after the other. A turn is counted by the last growth."""

READY = "until the last new node is Ready"
STEP = "of the first step with all newcomers, after that"
WHOLE = "until the first step with all newcomers"
GONE = "until EC2 bills no more than the nodes of the workers that stay"

MEASURES = (WHOLE, READY, STEP, GONE)


def named(before: int, after: int, measure: str) -> str:
    """Return the name of a measure in the records, for a change of the number of workers."""
    return f"{before} to {after} workers: {measure}"
