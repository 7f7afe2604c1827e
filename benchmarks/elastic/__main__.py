"""Compares Tidewater with torchrun, torchft and plain DDP: the cost of a failure, and of being prepared for one.

    make bench-elastic                                          # everything: many hours
    python -m benchmarks.elastic --plan                         # what would run, and for how long
    python -m benchmarks.elastic --runs 3 --systems tidewater,torchft --measures kill,term

All systems use the same network, data, global batch and number of threads (one), with three workers on the loopback of
this machine. Every worker records each committed step with its time, and the results are computed from these records.
Results are appended to a file as soon as they are known, and what the file has is not measured again. So a run can be
interrupted, continued, and split by measures and systems. Joins are measured after each fault; the measures named large
have more than 100 MB of gradients.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from typing_extensions import override

from benchmarks.elastic import plan
from benchmarks.elastic.bench import Bench
from benchmarks.elastic.systems import SYSTEMS
from benchmarks.harness.command import Benchmark, Make, Say, main
from benchmarks.harness.plan import Series, Turn
from scripts.toolchain.paths import lock

PINNED = {"trainer": ("torch",), "bench": ("torchft",), "libraries": ("transformers",)}
"""Of the lists of required packages: the records name the versions of these."""

DEVICE = (
    "goodput: how long one accelerator would take for a whole batch. Each worker waits for its share of that, so the "
    "start of the returning worker finds a processor that is free, as on a machine of its own (default %(default)s)"
)


class Elastic(Benchmark):
    """Jobs of three workers that lose some of them."""

    name = "elastic"
    systems, measures = tuple(SYSTEMS), plan.MEASURES
    runs = 10
    options = MappingProxyType(
        {
            "--turns": {"type": int, "default": 40, "help": "of each job in checkpoint (default %(default)s)"},
            "--trace-seconds": {"type": float, "default": 200.0, "help": "of a run of goodput (default %(default)s)"},
            "--kills": {"type": int, "default": 3, "help": "in each trace of goodput (default %(default)s)"},
            "--device-ms": {"type": float, "default": 300.0, "help": DEVICE},
            "--seed": {"type": int, "default": 2, "help": "of goodput's traces (default %(default)s)"},
        }
    )

    @override
    def versions(self) -> dict[str, str]:
        return {
            name: re.findall(rf"^{name}==([^ ;\\]+)", lock(file).read_text(), re.MULTILINE)[0]
            for file, names in PINNED.items()
            for name in names
        }

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return plan.blocks(given.measures, given.systems, given.runs, given.trace_seconds)

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        bench = Bench(given, folder, say)
        try:
            yield bench.make
        finally:
            bench.end_campaigns()


if __name__ == "__main__":
    sys.exit(main(Elastic(), sys.argv[1:]))
