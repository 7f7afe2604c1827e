"""Compares Karpenter with one node group for all workers: how long a worker waits for its node, from one to eight.

    python -m benchmarks.nodes                  # everything: 40 minutes
    python -m benchmarks.nodes --plan           # what would run, and for how long
    python -m benchmarks.nodes --turns 1 --systems karpenter

In turns, each system gets a stack of its own on the one-machine cloud, with the controller and the charts of Karpenter.
Instances start there in a second, so what is compared is the way to them, and not the time that EC2 needs. Results are
appended to a file when a turn is over, and what the file has is not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from benchmarks.harness.command import Benchmark, Make, Say, main
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found
from benchmarks.nodes import turn
from benchmarks.nodes.results import LARGE, REPEATS, SYSTEMS, WHOLE, named
from scripts.toolchain.table import KARPENTER, KUBERNETES

STACK_SECONDS = 90.0
"""To make a stack and to remove it, on a quiet machine with 2 cores."""
CHANGES_SECONDS = 150.0
"""From one worker to SMALL and back, and to LARGE and back. Much of it is the time for which a node stays empty."""


class Nodes(Benchmark):
    """Stacks with a job that grows and shrinks with its nodes."""

    name = "nodes"
    systems = SYSTEMS
    runs, runs_flag = 3, "--turns"
    failures = (AssertionError,)

    @override
    def versions(self) -> dict[str, str]:
        return {"karpenter": KARPENTER, "kubernetes": KUBERNETES}

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        counted, seconds = named(1, LARGE, WHOLE), STACK_SECONDS + REPEATS * CHANGES_SECONDS
        return [[Series("nodes", (system,), counted, given.runs, seconds) for system in given.systems]]

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        def make(each: Turn) -> list[Found]:
            system = each.series.system
            found = turn.make(system, folder / f"{system}-{each.number}")
            return [Found(name, system, tuple(values), "s") for name, values in found.items()]

        yield make


if __name__ == "__main__":
    sys.exit(main(Nodes(), sys.argv[1:]))
