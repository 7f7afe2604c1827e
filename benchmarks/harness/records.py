"""Records: what was measured, where, with which versions and when. One JSON line each, so that runs can be appended.

    book = Records(Path("benchmarks/out/elastic.jsonl"), versions={"torch": "2.15.0"})
    book.add(Found("SIGKILL: next committed step", "tidewater", (0.12,), "s"))
    publish("elastic", rows(book.all))      # one Row for each measure and system, over all records

Published records are committed in `benchmarks/results/`. The tables of the documentation are rendered from them
(`python -m benchmarks.tables`).
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
OUT = ROOT / "benchmarks" / "out"


@dataclass(frozen=True)
class Found:
    """The values of one measure that a turn has given."""

    measure: str
    system: str
    values: tuple[float, ...]
    unit: str


@dataclass(frozen=True)
class Record(Found):
    """Values with their origin, as they are in the file."""

    at: str
    """UTC, to the second, when the run ended."""
    machine: Mapping[str, str]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One measure of one system over `n` values. All but `n` are in `unit`; `low` and `high` are the extremes."""

    measure: str
    system: str
    n: int
    median: float
    p95: float
    low: float
    high: float
    unit: str

    @classmethod
    def of(cls, measure: str, system: str, values: Sequence[float], *, unit: str) -> Row:
        """Return the row for at least one value; p95 is the nearest-rank percentile."""
        ordered = sorted(values)
        rank = math.ceil(0.95 * len(ordered)) - 1
        figures = (statistics.median(ordered), ordered[rank], ordered[0], ordered[-1])
        median, p95, low, high = (round(value, 3) for value in figures)
        return cls(measure, system, len(ordered), median, p95, low, high, unit)


class Records:
    """A file of records. What is added is in the file at once."""

    def __init__(self, file: Path, versions: Mapping[str, str], machine: Mapping[str, str] | None = None) -> None:
        self.file = file
        self._versions = {"tidewater": commit(), "python": platform.python_version(), **versions}
        self._machine = processor() if machine is None else machine
        self.all = read(file)

    def add(self, found: Found) -> None:
        """Append a record."""
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        rounded = tuple(round(value, 5) for value in found.values)
        record = Record(found.measure, found.system, rounded, found.unit, at, self._machine, self._versions)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
        self.all.append(record)

    def count(self, measure: str, system: str) -> int:
        """Return how many runs have given this measure."""
        return sum((record.measure, record.system) == (measure, system) for record in self.all)


def read(file: Path) -> list[Record]:
    """Return the records of a file; none if there is no file."""
    if not file.exists():
        return []
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [Record(**{**each, "values": tuple(each["values"])}) for each in found]


def rows(records: Sequence[Record]) -> list[Row]:
    """Return one row for each measure and system, over the values of all their records, in order of appearance."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        values.setdefault((record.measure, record.system, record.unit), []).extend(record.values)
    return [Row.of(measure, system, each, unit=unit) for (measure, system, unit), each in values.items()]


def ratios(records: Sequence[Record], systems: Sequence[str]) -> list[Row]:
    """Return, of each measure, how many times the first system's value the others have in the same turn.

    The turns of two systems alternate, so the values of one place in both belong together. An interrupted round has a
    value of one system only, which is left out.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for record in records:
        values.setdefault((record.measure, record.system), []).extend(record.values)
    found = []
    for (measure, system), theirs in values.items():
        peers = values.get((measure, systems[0]), [])
        pairs = [(one, other) for one, other in zip(theirs, peers, strict=False) if other]
        if system in systems[1:] and pairs:
            each = [one / other for one, other in pairs]
            found.append(Row.of(f"{measure} / {systems[0]}", system, each, unit="ratio"))
    return found


def origin(records: Sequence[Record]) -> str:
    """Return machines, versions and dates of the records as one sentence."""
    dates = sorted({record.at[:10] for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = sorted({", ".join(record.machine.values()) for record in records})
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    named = [f"{name} {' and '.join(sorted(each))}" for name, each in versions.items()]
    return f"{'; '.join(machines)}. {', '.join(named)}. {when}."


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned text table with a heading."""
    heading = tuple(field.name for field in fields(Row))
    cells = [heading, *(tuple(str(value) for value in asdict(row).values()) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heading))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def publish(name: str, rows: Sequence[Row]) -> Path:
    """Write the rows to `benchmarks/out/<name>.json` and print them as a table. Return the path."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    print(table(rows))
    print(f"written to {path}")
    return path


def processor() -> dict[str, str]:
    """Return what describes this machine's processor and memory."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {"processor": model, "cores": f"{len(os.sched_getaffinity(0))} cores", "memory": f"{memory:.0f} GiB"}


def commit() -> str:
    """Return the commit of the checkout, with a + if files differ from it; "unknown" outside a repository."""
    found = _git("rev-parse", "--short=10", "HEAD")
    return f"{found}{'+' if _git('status', '--porcelain', '--untracked-files=no') else ''}" if found else "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
