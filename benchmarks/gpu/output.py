"""What a check prints and how the driver reads it: rows, one JSON line each, among other output."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from benchmarks.harness.records import Found

NOT_CHECKED = 5
"""Exit code of a check that says nothing on this machine. Its output says why."""
_MARK = "row "


def tell(measure: str, system: str, values: Iterable[float], unit: str) -> None:
    """Print a row."""
    print(_MARK + json.dumps(asdict(Found(measure, system, tuple(values), unit))), flush=True)


def rows(text: str) -> list[Found]:
    """Return the rows of a check's output."""
    found = [json.loads(line.removeprefix(_MARK)) for line in text.splitlines() if line.startswith(_MARK)]
    return [Found(each["measure"], each["system"], tuple(each["values"]), each["unit"]) for each in found]


def require(holds: bool, promise: str) -> None:
    """End the check with what doesn't hold.

    Raises:
        SystemExit: With exit code 1 and the promise as its message.
    """
    if not holds:
        raise SystemExit(f"failed: {promise}")
