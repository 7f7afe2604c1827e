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
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
import torch
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked

from benchmarks.elastic.processes import free_port
from benchmarks.elasticdl import plan, rooms, turn
from benchmarks.elasticdl.systems import SYSTEMS, UNITS
from benchmarks.records import Records, rows
from benchmarks.rows import OUT, publish
from scripts import toolchain
from scripts.toolchain.table import KUBERNETES
from tests.elastic.workers import run_etcd

VERSIONS = {"torch": torch.__version__, "grpc": grpc.__version__, "kubernetes": KUBERNETES}
NAMES = [system.name for system in SYSTEMS]

Make = Callable[[plan.Turn], dict[str, float]]
"""Makes a turn, and returns its values by measure."""


def names(text: str) -> list[str]:
    """Return a choice of systems, separated by semicolons, in the order of the table."""
    given = [name.strip() for name in text.split(";")]
    if wrong := [name for name in given if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"{'; '.join(wrong)}: choose among {'; '.join(NAMES)}")
    return [name for name in NAMES if name in given]


def measures(text: str) -> list[str]:
    """Return a comma-separated choice of measures, in the order of the table."""
    given = [name.strip() for name in text.split(",")]
    if wrong := [name for name in given if name not in plan.MEASURES]:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose among {', '.join(plan.MEASURES)}")
    return [name for name in plan.MEASURES if name in given]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elasticdl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="turns of each that the file has in the end (default 5)")
    parser.add_argument("--systems", type=names, default=NAMES, help="separated by semicolons (default: all)")
    parser.add_argument("--measures", type=measures, default=list(plan.MEASURES), help="with commas (default: all)")
    parser.add_argument("--plan", action="store_true", help="print what would run, and for how long, and end")
    parser.add_argument("--out", type=Path, default=OUT / "elasticdl.jsonl", help="the file (default %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Make the turns that the file lacks, and publish the rows of the whole file."""
    given = parse(argv)
    records = Records(given.out, VERSIONS)
    turns = plan.wanted(given.systems, given.measures, runs=given.runs, have=records.count)
    print(plan.told(turns))
    if given.plan:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-elasticdl-") as folder:
            for on_cluster, place in ((False, _processes), (True, _cluster)):
                if chosen := [each for each in turns if each.on_cluster == on_cluster]:
                    with place(Path(folder)) as make:
                        _measure(chosen, make, records, given.runs)
    finally:
        publish("elasticdl", rows(records.all))
        print(f"recorded in {given.out}")
    return 0


def _measure(turns: Sequence[plan.Turn], make: Make, records: Records, runs: int) -> None:
    for each in turns:
        for measure, value in make(each).items():
            records.add(measure, each.system.name, [value], unit=UNITS[measure])
            print(f"{each.system.name}: {measure}: {value:.3g} (turn {each.number + 1} of {runs})", flush=True)


@contextlib.contextmanager
def _processes(folder: Path) -> Iterator[Make]:
    """Give what makes turns of processes on this machine, with one etcd and the same data for all."""
    data = folder / "data"
    write("generated-clicks", str(data), Options(test_share=0.0, asked=Asked(records=turn.RECORDS)))
    running = contextlib.contextmanager(run_etcd)
    with running(toolchain.binary("etcd"), folder, free_port()) as url:
        yield lambda each: turn.make(each, data, url, Path(tempfile.mkdtemp(dir=folder)))


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[Make]:
    """Give what makes turns on a one-machine cloud."""
    with rooms.cluster(folder / "tidewater") as site:
        yield lambda each: rooms.make(each, site)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
