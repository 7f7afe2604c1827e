"""What a loop of one's own costs against `tidewater.run`, and elastic workers against a library's Trainer without them.

Two jobs make the same steps. They exist at the same time and take turns at their gates, a few steps each, so that both
see the same machine. Each value is of a new start of both, since the memory addresses of a process make it a few per
cent faster or slower for its lifetime.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elastic import results
from benchmarks.elastic.systems import SYSTEMS, Site, System, etcd, trainer_node

TURNS = 40
STEPS = 25
"""Of one turn."""
_SCRIPT = "with_trainer.py"


@dataclass(frozen=True)
class Loops:
    """Two ways to make the same steps."""

    own: System
    other: System
    nodes: int
    """Most workers of each job."""
    python: Path | None = None
    """Of the workers, if it is not the one of all systems."""


def ratio(own: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Return how many times as long as the other's steps one's own take: the median over the turns, of medians."""
    pairs = zip(own, other, strict=True)
    return statistics.median(statistics.median(mine) / statistics.median(its) for mine, its in pairs)


def _plain_trainer(site: Site, port: int, number: int) -> list[str]:
    return [str(site.python), site.script(_SCRIPT)]


def _with_adapter(site: Site, port: int, number: int) -> dict[str, str]:
    return {"PYTHONPATH": f"{site.code}:{site.code / 'packages/transformers/src'}"}


LOOPS = {
    "own-loop": Loops(
        own=System("tidewater", trainer_node("with_own_loop.py"), etcd),
        other=System(results.RUN, SYSTEMS["tidewater"].node, etcd),
        nodes=3,
    ),
    "trainer": Loops(
        own=System("tidewater", trainer_node(_SCRIPT), etcd, _with_adapter),
        other=System(results.PLAIN_TRAINER, _plain_trainer, None, _with_adapter),
        nodes=1,
        python=Path(sys.executable),  # the stack's environment has the library, and the same torch
    ),
}
"""By the measure."""
