"""How many records a job uses per second, from the lines `Loss: …` of its workers: pure functions.

    times = [at for log in logs for at in loss_times(log)]
    rate(times, records=256)          # each line stands for so many records

What counts is the middle of the job: at first processes are still starting, and at the end some have no task left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

BEGIN, END = 0.3, 0.85
"""Share of the lines, in order of time, between which the rate is taken."""

_LINE = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\].*\bLoss: ", re.MULTILINE)


class TooFew(Exception):
    """The job has logged too little for a rate."""


def loss_times(log: str) -> list[float]:
    """Return when each loss was logged, in seconds."""
    return [datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() for at in _LINE.findall(log)]


def rate(times: Sequence[float], records: int) -> float:
    """Return records per second.

    Args:
        times: of all lines of all workers, in seconds, in any order.
        records: that each line stands for.

    Raises:
        TooFew: there are fewer than ten lines.
    """
    ordered = sorted(times)
    if len(ordered) < 10:
        raise TooFew(f"only {len(ordered)} lines with a loss were logged")
    first, last = round(BEGIN * len(ordered)), round(END * len(ordered))
    return (last - first) * records / (ordered[last] - ordered[first])
