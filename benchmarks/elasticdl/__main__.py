"""Compares ways to train one model: parameter servers with more workers, more servers, all-reduce, and one process.

    python -m benchmarks.elasticdl                      # everything: an hour and a half
    python -m benchmarks.elasticdl --plan               # what would run, and for how long
    python -m benchmarks.elasticdl --measures paced --systems "1 server, 1 worker, async" --runs 1

Every process is on one core with one thread. Two cores can't show how computing grows beyond two processes: what
`computing` compares is the work that each way adds. With `paced`, each minibatch waits 30 ms in place of an
accelerator, without a core: so 1, 2 and 4 workers show what master, servers and their protocol let through. `rooms` has
two jobs on a one-machine cloud that has too little room for both. Results are appended to a file when a turn is over,
and what the file has is not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import torch
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked
from typing_extensions import override

from benchmarks.elasticdl import plan, rooms, turn
from benchmarks.elasticdl.systems import BY_NAME, SYSTEMS, UNITS, System
from benchmarks.harness.command import Benchmark, Make, Say, main
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found
from scripts import toolchain
from scripts.toolchain.table import KUBERNETES
from tests.elastic.workers import free_port, run_etcd

MakeIn = Callable[[str, System], dict[str, float]]
"""Makes a turn of a measure and a system in one place; returns its values by measure."""


class ElasticDL(Benchmark):
    """Jobs of ElasticDL, as processes of this machine and as pods."""

    name = "elasticdl"
    systems, measures = tuple(system.name for system in SYSTEMS), tuple(plan.MEASURES)
    runs, separator = 5, ";"

    @override
    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__, "grpc": grpc.__version__, "kubernetes": KUBERNETES}

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return plan.blocks(given.systems, given.measures, given.runs)

    @override
    def setup_seconds(self, turns: Sequence[Turn]) -> float:
        return plan.CLUSTER_SECONDS if any(each.series.label == plan.ROOMS for each in turns) else 0.0

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        with contextlib.ExitStack() as stack:
            places: dict[bool, MakeIn] = {}

            def make(each: Turn) -> list[Found]:
                measure, system = each.series.label, BY_NAME[each.series.system]
                if (on_cluster := measure == plan.ROOMS) not in places:
                    stack.close()  # one place would take time from the other
                    places[on_cluster] = stack.enter_context((_cluster if on_cluster else _processes)(folder))
                found = places[on_cluster](measure, system)
                return [Found(name, system.name, (value,), UNITS[name]) for name, value in found.items()]

            yield make


@contextlib.contextmanager
def _processes(folder: Path) -> Iterator[MakeIn]:
    """Provide what makes turns of processes on this machine, with one etcd and the same data for all."""
    data = folder / "data"
    write("generated-clicks", str(data), Options(test_share=0.0, asked=Asked(records=turn.RECORDS)))
    running = contextlib.contextmanager(run_etcd)
    with running(toolchain.binary("etcd"), folder, free_port()) as url:
        yield lambda measure, system: turn.make(measure, system, data, url, Path(tempfile.mkdtemp(dir=folder)))


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[MakeIn]:
    """Provide what makes turns on a one-machine cloud."""
    with rooms.cluster(folder / "tidewater") as site:
        yield lambda measure, system: rooms.make(system, site)


if __name__ == "__main__":
    sys.exit(main(ElasticDL(), sys.argv[1:]))
