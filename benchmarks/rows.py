"""Rows of figures: what every benchmark writes to `benchmarks/out/<name>.json` and prints.

rows = [Row.of("no-op up", "tidewater", seconds, unit="s")]
publish("lifecycle", rows)
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).resolve().parent / "out"


@dataclass(frozen=True)
class Row:
    """One measure of one system over `n` runs; `median` and `p95` are in `unit`."""

    measure: str
    system: str
    n: int
    median: float
    p95: float
    unit: str

    @classmethod
    def of(cls, measure: str, system: str, values: Sequence[float], *, unit: str) -> Row:
        """Return the row for at least one value; p95 is the nearest-rank percentile."""
        ordered = sorted(values)
        rank = math.ceil(0.95 * len(ordered)) - 1
        median = statistics.median(ordered)
        return cls(measure, system, len(ordered), round(median, 3), round(ordered[rank], 3), unit)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned text table with a heading."""
    heading = ("measure", "system", "n", "median", "p95", "unit")
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
