"""The command line of a benchmark, and the loop over its turns.

    class Nodes(Benchmark): ...
    main(Nodes(), ["--plan"])               # what would run, and for how long
    main(Nodes(), ["--runs", "3"])          # what the file lacks

Results are appended to a file as soon as a turn gives them. A turn that fails is left out, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.harness.plan import Series, Turn, table, wanted
from benchmarks.harness.records import OUT, Found, Records, publish, ratios, rows

Make = Callable[[Turn], Iterable[Found]]
"""Makes a turn. What it returns, or yields, is recorded."""
Say = Callable[[str], None]
"""Prints a line of progress."""


class TurnFailed(Exception):
    """A turn didn't do what it should, or took too long. The message names what failed and shows the end of a log."""


class Benchmark(ABC):
    """What one benchmark compares, and how a turn of it is made. Its module's docstring is shown by --help."""

    name: str
    """Of its module, and of the files in `benchmarks/out/`."""
    systems: tuple[str, ...]
    """By name, in the table's order. The others are compared with the first."""
    measures: tuple[str, ...] = ()
    """What --measures chooses from; empty if there is no choice."""
    by_default: tuple[str, ...] = ()
    """The measures of a run without --measures; empty for all."""
    runs: int
    """Default number of turns."""
    runs_flag = "--runs"
    separator = ","
    """Between the names of systems."""
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """What only this benchmark has: arguments of `add_argument` by flag."""
    failures: tuple[type[Exception], ...] = (TurnFailed,)
    """What leaves a turn out."""
    fatal: tuple[type[Exception], ...] = ()
    """What ends the benchmark with a message instead of a traceback."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Return the versions that the records name."""

    @abstractmethod
    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        """Return the series to measure; those of a block take turns."""

    @abstractmethod
    def opened(
        self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say
    ) -> AbstractContextManager[Make]:
        """Provide what makes these turns, in an empty folder of its own."""

    def setup_seconds(self, turns: Sequence[Turn]) -> float:
        """Return how long it takes to set up what all turns need."""
        return 0.0


def choice(text: str, known: Sequence[str], separator: str = ",") -> list[str]:
    """Return a choice of `known`, in their order.

    Raises:
        argparse.ArgumentTypeError: A name isn't known.
    """
    names = [name.strip() for name in text.split(separator)]
    join = f"{separator} ".join
    if wrong := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{join(wrong)}: choose among {join(known)}")
    return [name for name in known if name in names]


def _add_choice(
    parser: argparse.ArgumentParser, name: str, known: Sequence[str], chosen: Sequence[str], separator: str
) -> None:
    listed = f"{separator} ".join
    default = "all" if chosen == known else listed(chosen)
    parser.add_argument(
        f"--{name}",
        type=lambda text: choice(text, known, separator),
        default=list(chosen),
        help=f"separated by {separator} from: {listed(known)} (default: {default})",
    )


def parse(benchmark: Benchmark, argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark.name}",
        description=sys.modules[type(benchmark).__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        benchmark.runs_flag,
        dest="runs",
        type=int,
        default=benchmark.runs,
        help="number of turns of each measure and system that the file has in the end (default %(default)s)",
    )
    _add_choice(parser, "systems", benchmark.systems, benchmark.systems, benchmark.separator)
    if benchmark.measures:
        _add_choice(parser, "measures", benchmark.measures, benchmark.by_default or benchmark.measures, ",")
    add("--plan", action="store_true", help="print what would run, and for how long, and end")
    out = OUT / f"{benchmark.name}.jsonl"
    add("--out", type=Path, default=out, help="the file of records (default %(default)s)")
    for flag, arguments in benchmark.options.items():
        add(flag, **arguments)
    return parser.parse_args(argv)


def main(benchmark: Benchmark, argv: Sequence[str]) -> int:
    """Make the turns that the file lacks, and publish the rows of the whole file. Return the exit code."""
    given = parse(benchmark, argv)
    records = Records(given.out, benchmark.versions())
    turns = wanted(benchmark.blocks(given), records.count)
    print(table(turns, benchmark.setup_seconds(turns)))
    if given.plan:
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed: list[str] = []
    try:
        if turns:
            failed = _measure(benchmark, given, turns, records)
    except benchmark.fatal as error:
        failed = [f"the benchmark has ended early: {error}"]
    finally:
        publish(benchmark.name, [*rows(records.all), *ratios(records.all, benchmark.systems)])
        print(f"recorded in {given.out}")
    print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
    return 1 if failed else 0


def _measure(benchmark: Benchmark, given: argparse.Namespace, turns: Sequence[Turn], records: Records) -> list[str]:
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.0f} s] {text}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix=f"bench-{benchmark.name}-") as folder,
        benchmark.opened(given, turns, Path(folder), say) as make,
    ):
        return make_turns(turns, make, records, say, benchmark.failures)


def make_turns(
    turns: Sequence[Turn], make: Make, records: Records, say: Say, failures: tuple[type[Exception], ...] = (TurnFailed,)
) -> list[str]:
    """Make turns one after another and record what they give. Return what is said of those that failed."""
    failed: list[str] = []
    expected = spent = 0.0
    total = sum(turn.series.seconds for turn in turns)
    for number, turn in enumerate(turns, 1):
        series = turn.series
        left = (spent / expected if expected else 1.0) * (total - expected) / 60
        say(f"{number} of {len(turns)}: {series.label}, {', '.join(series.systems)}; {left:.0f} min left")
        begin = time.monotonic()
        try:
            for found in make(turn):
                records.add(found)
                say(f"{found.system}: {found.measure}: {statistics.median(found.values):.4g} {found.unit}")
        except failures as error:
            failed.append(f"turn {turn.number + 1} of {series.label}, {series.system}: {error}")
            say(f"{failed[-1]}\nthis turn is left out")
        expected, spent = expected + series.seconds, spent + time.monotonic() - begin
    return failed
