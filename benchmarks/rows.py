"""Rows of figures, and their table.

rows = [Row.of("no-op up", "tidewater", seconds, unit="s")]
publish("lifecycle", rows)      # prints them, and writes benchmarks/out/lifecycle.json
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

OUT = Path(__file__).resolve().parent / "out"


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
