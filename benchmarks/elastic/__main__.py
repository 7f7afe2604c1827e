"""Compares Tidewater with torchrun, torchft and plain DDP: the cost of a failure, and of being prepared for one.

    make bench-elastic                                          # everything: many hours
    python -m benchmarks.elastic --plan                         # what would run, and for how long
    python -m benchmarks.elastic --runs 3 --systems tidewater,torchft --measures kill,term

All systems use the same network, data, global batch and number of threads (one), with three workers on the loopback of
this machine. Every worker records each committed step with its time, and the results are computed from these records.
Results are appended to a file as soon as they are known, and what the file has is not measured again. So a run can be
interrupted, continued, and split by measures and systems.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.elastic import plan
from benchmarks.elastic.bench import Bench
from benchmarks.elastic.systems import SYSTEMS
from benchmarks.records import Records, rows
from benchmarks.rows import OUT, table
from scripts.toolchain.paths import lock

PINNED = {"trainer": ("torch",), "bench": ("torchft",)}
"""Of the lists of required packages: those whose versions the records name."""


def versions() -> dict[str, str]:
    """Return the locked versions of what is compared."""
    return {
        name: re.findall(rf"^{name}==([^ ;\\]+)", lock(file).read_text(), re.MULTILINE)[0]
        for file, names in PINNED.items()
        for name in names
    }


def choices(text: str, known: Sequence[str]) -> list[str]:
    """Return a comma-separated choice of `known`, in their order."""
    names = [name.strip() for name in text.split(",")]
    if wrong := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose among {', '.join(known)}")
    return [name for name in known if name in names]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elastic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=10,
        help="how many runs of each measure and system the file has in the end (default %(default)s)",
    )
    parser.add_argument(
        "--systems",
        type=lambda text: choices(text, tuple(SYSTEMS)),
        default=list(SYSTEMS),
        help=f"comma-separated, of: {', '.join(SYSTEMS)} (default: all)",
    )
    parser.add_argument(
        "--measures",
        type=lambda text: choices(text, plan.MEASURES),
        default=list(plan.MEASURES),
        help=f"comma-separated, of: {', '.join(plan.MEASURES)}; joins are measured after each fault; large: with more "
        "than 100 MB of gradients (default: all)",
    )
    parser.add_argument("--plan", action="store_true", help="print what would run, and for how long, and end")
    parser.add_argument("--out", type=Path, default=OUT / "elastic.jsonl", help="the file (default %(default)s)")
    parser.add_argument("--turns", type=int, default=40, help="of each job in checkpoint (default %(default)s)")
    parser.add_argument(
        "--trace-seconds", type=float, default=200.0, help="of one run of goodput (default %(default)s)"
    )
    parser.add_argument("--kills", type=int, default=3, help="in each trace of goodput (default %(default)s)")
    parser.add_argument(
        "--device-ms",
        type=float,
        default=300.0,
        help="goodput: how long one accelerator would take for a whole batch. Each worker waits for its share of that, "
        "so the start of the returning worker finds a processor that is free, as on a machine of its own "
        "(default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=2, help="of goodput's traces (default %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run what is missing in the file, and print its table."""
    given = parse(argv)
    records = Records(given.out, versions())
    tasks = plan.wanted(
        given.measures, given.systems, runs=given.runs, have=records.count, trace_seconds=given.trace_seconds
    )
    print(plan.told(tasks))
    if given.plan:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-elastic-") as folder:
            Bench(given, Path(folder), records).run(tasks)
    finally:
        print(table(rows(records.all)))
        print(f"recorded in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
