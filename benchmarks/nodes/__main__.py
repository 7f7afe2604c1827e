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
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.nodes import plan, turn
from benchmarks.nodes.results import SYSTEMS
from benchmarks.records import Records, rows
from benchmarks.rows import OUT, publish
from scripts.toolchain.table import KARPENTER, KUBERNETES

VERSIONS = {"karpenter": KARPENTER, "kubernetes": KUBERNETES}


def names(text: str) -> list[str]:
    """Return a comma-separated choice of systems, in the order of the table."""
    given = [name.strip() for name in text.split(",")]
    if wrong := [name for name in given if name not in SYSTEMS]:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose among {', '.join(SYSTEMS)}")
    return [name for name in SYSTEMS if name in given]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nodes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--turns", type=int, default=3, help="how many turns of each system the file has in the end (default 3)"
    )
    parser.add_argument(
        "--systems", type=names, default=list(SYSTEMS), help=f"comma-separated, of: {', '.join(SYSTEMS)} (default: all)"
    )
    parser.add_argument("--plan", action="store_true", help="print what would run, and for how long, and end")
    parser.add_argument("--out", type=Path, default=OUT / "nodes.jsonl", help="the file (default %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Make the turns that the file lacks, and publish the rows of the whole file."""
    given = parse(argv)
    records = Records(given.out, VERSIONS)
    turns = plan.wanted(given.systems, turns=given.turns, have=records.count)
    print(plan.told(turns))
    if given.plan:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for each in turns:
            _measure(each, records)
            print(f"{each.system}: turn {each.number + 1} of {given.turns}", flush=True)
    finally:
        publish("nodes", rows(records.all))
        print(f"recorded in {given.out}")
    return 0


def _measure(each: plan.Turn, records: Records) -> None:
    """Make a turn and record it as a whole: of a turn that fails nothing is kept."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-nodes-") as folder:
        turn.make(each, Path(folder) / "tidewater", lambda name, value: found.setdefault(name, []).append(value))
    for name, values in found.items():
        records.add(name, each.system, values, unit="s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
