"""Compares the controller with Kubeflow's training-operator v1.9.2: a thousand jobs on one real API server.

    make bench-controller                                       # everything: about two hours
    python -m benchmarks.controller --plan                      # what would run, and for how long
    python -m benchmarks.controller --jobs 1000 --turns 2 --systems "tidewater,training-operator tuned"

In turns on the same API server, each controller gets the same number of jobs with the same workers. No node runs the
pods. Results are appended to a file as soon as a turn is over, and what the file has is not measured again. So a run
can be interrupted, continued, and split by numbers of jobs and systems.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localcloud.errors import CloudError

from benchmarks.controller import plan, results
from benchmarks.controller.bench import Bench
from benchmarks.controller.errors import BenchmarkError
from benchmarks.records import Records, rows
from benchmarks.rows import OUT, publish
from scripts.toolchain.table import ETCD, KUBERNETES, TRAINING_OPERATOR

VERSIONS = {"training-operator": TRAINING_OPERATOR, "kubernetes": KUBERNETES, "etcd": ETCD}


def names(text: str) -> list[str]:
    """Return a comma-separated choice of systems, in the order of the table."""
    given = [name.strip() for name in text.split(",")]
    if wrong := [name for name in given if name not in results.SYSTEMS]:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose among {', '.join(results.SYSTEMS)}")
    return [name for name in results.SYSTEMS if name in given]


def sizes(text: str) -> list[int]:
    """Return a comma-separated list of numbers of jobs, the smallest first."""
    try:
        given = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: numbers, separated by commas, such as 100,1000") from error
    if given[0] < 1:
        raise argparse.ArgumentTypeError(f"{given[0]}: at least one job")
    return given


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.controller",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--turns",
        type=int,
        default=5,
        help="how many turns of each system and number of jobs the file has in the end; slow ones have fewer "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=sizes,
        default=list(plan.SIZES),
        help="comma-separated numbers of jobs (default: " + ",".join(map(str, plan.SIZES)) + ")",
    )
    parser.add_argument(
        "--systems",
        type=names,
        default=list(results.SYSTEMS),
        help=f"comma-separated, of: {', '.join(results.SYSTEMS)} (default: all)",
    )
    parser.add_argument("--plan", action="store_true", help="print what would run, and for how long, and end")
    parser.add_argument("--out", type=Path, default=OUT / "controller.jsonl", help="the file (default %(default)s)")
    parser.add_argument("--resizes", type=int, default=100, help="in each turn (default %(default)s)")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds of rest in a turn (default %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Make the turns that the file lacks, and publish the rows of the whole file."""
    given = parse(argv)
    records = Records(given.out, VERSIONS)
    pace = plan.Pace(resizes=given.resizes, rest_seconds=given.rest)
    turns = plan.wanted(given.jobs, given.systems, turns=given.turns, have=records.count)
    print(plan.told(turns, pace))
    if given.plan:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed: list[str] = []
    try:
        if turns:
            with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
                failed = Bench(Path(folder), records, pace).run(turns)
    except (BenchmarkError, CloudError) as error:
        failed = [f"the benchmark has ended early: {error}"]
    finally:
        publish("controller", rows(records.all))
        print(f"recorded in {given.out}")
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
