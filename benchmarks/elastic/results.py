"""The benchmark's rows: their order, what is merged with what an earlier run wrote, and notes on the table.

merged = merge(earlier, fresh)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.elastic import paced
from benchmarks.rows import Row

STEPS = {name: (f"{name} step", f"{name} step / plain DDP's") for name in paced.SIZES}
"""How long a step takes, and how many times as long as plain DDP's."""
MEASURES = (
    "SIGKILL: next committed step",
    "SIGKILL: steps lost",
    "SIGSTOP: next committed step",
    "SIGSTOP: steps lost",
    "SIGTERM: pause",
    "SIGTERM: steps lost",
    "join 2 to 3: pause",
    "join 2 to 3: steps lost",
    "join 2 to 3: from the process's start",
    *STEPS["short"],
    *STEPS["long"],
    "checkpoint every 100 steps: time lost",
    "a state of 512 MB, peer to peer",
    "goodput, a kill every 60 s",
)
CHECKPOINT, TRANSFER, GOODPUT = MEASURES[-3:]
PLAIN_DDP = "plain DDP"
"""Beside the systems, for the time of a step."""
PLAIN_SOCKET = "plain socket"
"""Beside the systems, for the transfer."""


def read(file: Path) -> list[Row]:
    """Return the rows of an earlier run; none if there was none."""
    return [Row(**row) for row in json.loads(file.read_text())] if file.exists() else []


def merge(earlier: Sequence[Row], fresh: Sequence[Row], systems: Sequence[str]) -> list[Row]:
    """Return all rows in the table's order. A fresh row replaces an earlier one of the same measure and system."""
    rows = {(row.measure, row.system): row for row in [*earlier, *fresh]}

    def place(row: Row) -> tuple[int, int]:
        return _index(MEASURES, row.measure), _index(systems, row.system)

    return sorted(rows.values(), key=place)


def notes(rows: Sequence[Row], caps: dict[str, float]) -> list[str]:
    """Return notes on the table: medians that are the end of the wait, not of the outage."""
    return [
        f"{row.system}, {row.measure}: > {caps[row.measure]:.0f} s, it had not gone on when the wait ended"
        for row in rows
        if row.median >= caps.get(row.measure, float("inf"))
    ]


def _index(names: Sequence[str], name: str) -> int:
    return list(names).index(name) if name in names else len(names)
