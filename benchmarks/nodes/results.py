"""The benchmark's systems and measures, by their names in the records, in the tables' order."""

from __future__ import annotations

KARPENTER = "karpenter"
NODEGROUP = "nodegroup"
SYSTEMS = (KARPENTER, NODEGROUP)
"""Values of the setting `surgeNodes`."""

READY = "until the last new node is Ready"
STEP = "of the first step with all newcomers, after that"
WHOLE = "until the first step with all newcomers"
GONE = "until EC2 bills no more than the nodes of the workers that stay"

MEASURES = (WHOLE, READY, STEP, GONE)


def named(before: int, after: int, measure: str) -> str:
    """Return the name of a measure in the records, for a change of the number of workers."""
    return f"{before} to {after} workers: {measure}"
