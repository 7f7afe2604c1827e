"""The recoveries of a job, from what its processes have counted. Pure.

    new = recovered(readings_before, readings_now, behind_before)
    behind_now = behind(readings_before, readings_now, behind_before, new)

All processes of a job count the same recoveries, and they are read at different times: of many, only some are asked in
each look. So a process that was read before a recovery, when another one had counted it already, is behind by one: when
it counts it, too, that is no second recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewater.cli.top.sampling import Process
from tidewater.cli.top.scrape import Reading, Recoveries

Behind = Mapping[str, int]
"""Recoveries of a job that a process has not counted yet, by cause."""


def recovered(
    before: Mapping[Process, Reading], now: Mapping[Process, Reading], late: Mapping[Process, Behind]
) -> dict[str, Recoveries]:
    """Return the recoveries between two samples, by cause; `late` is how far each process was behind.

    Newcomers count only if no older process is left: what they saw together with others, the others have counted too.
    """
    old = {process: reading for process, reading in now.items() if process in before}
    if old:
        return most(_ahead(_new(before[each], reading), late.get(each, {})) for each, reading in old.items())
    return most(reading.recoveries for reading in now.values()) if before else {}


def behind(
    before: Mapping[Process, Reading],
    now: Mapping[Process, Reading],
    late: Mapping[Process, Behind],
    new: Mapping[str, Recoveries],
) -> dict[Process, Behind]:
    """Return how far each process is behind after a sample with these new recoveries.

    One that is read when nothing is new has all of them: what it hasn't counted by then, it counts under another cause.
    """
    found: dict[Process, Behind] = {}
    for process in now.keys() & before.keys():
        if not new and now[process].at > before[process].at:
            continue
        gain, was = _new(before[process], now[process]), late.get(process, {})
        counts = {
            cause: was.get(cause, 0) + new.get(cause, Recoveries()).count - gain.get(cause, Recoveries()).count
            for cause in was.keys() | new.keys()
        }
        if counts := {cause: count for cause, count in counts.items() if count > 0}:
            found[process] = counts
    return found


def most(counts: Iterable[Mapping[str, Recoveries]]) -> dict[str, Recoveries]:
    """Return for each cause the highest count; of equal ones the one with the most seconds: that of the slowest."""
    found: dict[str, Recoveries] = {}
    for each in counts:
        for cause, recoveries in each.items():
            known = found.get(cause, Recoveries())
            found[cause] = max(known, recoveries, key=lambda one: (one.count, one.seconds))
    return {cause: recoveries for cause, recoveries in found.items() if recoveries.count}


def _ahead(gain: Mapping[str, Recoveries], late: Behind) -> dict[str, Recoveries]:
    """Return what a process has counted and the job has not, each with its mean time."""
    return {
        cause: Recoveries(count, total.seconds * (count / total.count))
        for cause, total in gain.items()
        if (count := total.count - late.get(cause, 0)) > 0
    }


def _new(before: Reading, now: Reading) -> dict[str, Recoveries]:
    """Return what one process has counted between two readings; everything if it was started again."""
    if now.steps < before.steps:
        return dict(now.recoveries)
    return {cause: total - before.recoveries.get(cause, Recoveries()) for cause, total in now.recoveries.items()}
