"""Records: what was measured, where, with which versions and when. One JSON line each, so that runs can be appended.

    book = Records(Path("benchmarks/out/elastic.jsonl"), versions={"torch": "2.15.0"})
    book.add("SIGKILL: next committed step", "tidewater", [0.12], unit="s")
    rows(book.all)          # one Row for each measure and system, over all records

Published records are committed in `benchmarks/results/`. The tables of the documentation are rendered from them
(`python -m benchmarks.tables`).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rows import Row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Record:
    """The values of one measure that one run has given."""

    measure: str
    system: str
    values: tuple[float, ...]
    unit: str
    at: str
    """UTC, to the second, when the run ended."""
    machine: Mapping[str, str]
    versions: Mapping[str, str]


class Records:
    """A file of records. What is added is in the file at once."""

    def __init__(self, file: Path, versions: Mapping[str, str], machine: Mapping[str, str] | None = None) -> None:
        self.file = file
        self._versions = {"tidewater": commit(), "python": platform.python_version(), **versions}
        self._machine = processor() if machine is None else machine
        self.all = read(file)

    def add(self, measure: str, system: str, values: Sequence[float], *, unit: str) -> None:
        """Append a record."""
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        rounded = tuple(round(value, 5) for value in values)
        record = Record(measure, system, rounded, unit, at, self._machine, self._versions)
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


def origin(records: Sequence[Record]) -> str:
    """Return machines, versions and dates of the records as one sentence."""
    dates = sorted({record.at[:10] for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = sorted({", ".join(record.machine.values()) for record in records})
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    told = [f"{name} {' and '.join(sorted(each))}" for name, each in versions.items()]
    return f"{'; '.join(machines)}. {', '.join(told)}. {when}."


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
