"""Measures what a change of the membership costs as a job grows, with simulated members: real coordinators and a real
etcd on this machine, no torch and no steps.

    make bench-membership                               # 4 to 64 members: two minutes
    python -m benchmarks.membership --plan              # what would run, and for how long
    python -m benchmarks.membership --members 16,1024 --runs 1

In each turn all members join at once, one is lost, one joins, and ten are lost at once. Members share the machine's
cores, so seconds are those of this machine; writes, bytes and processor time don't depend on that. Results are appended
to a file when a change is over, and what the file has is not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

from typing_extensions import override

from benchmarks.harness.command import Benchmark, Make, Say, main
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found
from benchmarks.membership import turn
from benchmarks.membership.results import FORM, SECONDS, SYSTEM, named
from scripts.toolchain.table import ETCD

SIZES = (4, 16, 64)


def _sizes(text: str) -> list[int]:
    sizes = [int(each) for each in text.split(",")]
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a turn needs at least 2 members: one of them is lost")
    return sizes


class Membership(Benchmark):
    """Jobs of simulated members."""

    name = "membership"
    systems = (SYSTEM,)
    runs = 3
    options = MappingProxyType(
        {
            "--members": {
                "type": _sizes,
                "default": list(SIZES),
                "help": f"numbers of members, separated by commas (default {','.join(map(str, SIZES))})",
            },
            "--patience": {
                "type": float,
                "default": 150.0,
                "help": "seconds for one change, after which a turn has failed (default %(default)s)",
            },
        }
    )

    @override
    def versions(self) -> dict[str, str]:
        return {"etcd": ETCD}

    @override
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return [
            [Series(f"{size} members", (SYSTEM,), named(size, FORM, SECONDS), given.runs, 10.0 + size / 5)]
            for size in given.members
        ]

    @override
    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        def make(each: Turn) -> Iterable[Found]:
            size = int(each.series.label.partition(" ")[0])
            return turn.make(size, folder / f"{size}-{each.number}", patience_seconds=given.patience)

        yield make


if __name__ == "__main__":
    sys.exit(main(Membership(), sys.argv[1:]))
