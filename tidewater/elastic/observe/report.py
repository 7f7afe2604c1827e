"""``python -m tidewater.elastic report FILE…``: a summary, and the data of the picture, from the workers' logs.

    history = read([Path("digits.log")])
    print(table(history))

A file is the output of one worker, of several workers mixed, or of ``kubectl logs --prefix -l SELECTOR``. Other lines
than the trainer's are skipped. All workers report the same steps; the line of the lowest rank counts. A change of the
membership counts once, although several workers report it, with the time of the slowest worker.

Goodput is the share of the time between the first and the last reported step that was used for committed steps. Lost
time is computed for each interval between two reports in which the membership changed. It is the reported pause, or the
time beyond the usual time of the new steps, whichever is longer (no worker reports a pause in which all are dead). An
interval that only repeats earlier steps is lost completely.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import parse


@dataclass(frozen=True)
class Point:
    """One reported step."""

    at: datetime
    step: int
    epoch: int
    world_size: int
    generation: int
    loss: float
    samples_per_s: float
    rank: int


@dataclass(frozen=True)
class Change:
    """One change of the membership, from the stop of training to the next committed step."""

    at: datetime
    generation: int
    cause: str
    seconds: float
    world_size: int


@dataclass(frozen=True)
class History:
    """The history of one job according to its logs."""

    points: tuple[Point, ...]
    """In order of time; at least one."""
    changes: tuple[Change, ...]
    """In order of time, without the first start."""
    workers: tuple[str, ...]
    """The workers that have reported a step."""
    events: dict[str, int]
    """How often all workers together have logged each event."""
    accuracy: float | None = None
    """The accuracy of the finished job."""

    @property
    def seconds(self) -> float:
        """From the first reported step to the last."""
        return (self.points[-1].at - self.points[0].at).total_seconds()


def read(paths: Sequence[Path]) -> History:
    """Return the history in these files. Raise ConfigError if one can't be read or no file contains a step."""
    lines = []
    for path in paths:
        try:
            lines += path.read_text(errors="replace").splitlines()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    return history(lines, source=", ".join(map(str, paths)))


def history(lines: Iterable[str], *, source: str) -> History:
    """Return the history in these lines, which may have any order; ``source`` is for the error message."""
    found = [fields for fields in map(parse, lines) if "time" in fields and "worker" in fields]
    reports = [point for point in map(_point, found) if point]
    if not reports:
        raise ConfigError(f"{source}: no line with step=… and loss=… in it; is it the output of a worker?")
    events: dict[str, int] = defaultdict(int)
    for fields in found:
        if "event" in fields:
            events[fields["event"]] += 1
    finished = [fields["accuracy"] for fields in found if fields.get("event") == "finished" and "accuracy" in fields]
    points = _one_for_each_step(reports)
    return History(
        points=points,
        changes=tuple(change for change in _changes(found) if change.at > points[0].at),
        workers=tuple(sorted({fields["worker"] for fields in found if _point(fields)})),
        events=dict(events),
        accuracy=float(finished[-1]) if finished else None,
    )


def goodput(seen: History) -> float:
    """Return the goodput between 0 and 1, as the module's docstring defines it."""
    if seen.seconds <= 0:
        return 1.0
    spans = list(pairwise(seen.points))
    usual = _usual_step_seconds(spans)
    best, lost = seen.points[0].step, 0.0
    for before, after in spans:
        took = (after.at - before.at).total_seconds()
        fresh = max(0, after.step - best)
        best = max(best, after.step)
        pauses = sum(change.seconds for change in seen.changes if before.at < change.at <= after.at)
        if fresh == 0:
            lost += took
        elif pauses or after.generation != before.generation:
            lost += min(took, max(pauses, took - fresh * usual))
    return max(0.0, 1.0 - lost / seen.seconds)


def world_size_shares(seen: History) -> dict[int, float]:
    """Return the share of the time for each number of workers."""
    seconds: dict[int, float] = defaultdict(float)
    for before, after in pairwise(seen.points):
        seconds[after.world_size] += (after.at - before.at).total_seconds()
    total = sum(seconds.values()) or 1.0
    return {size: seconds[size] / total for size in sorted(seconds)} or {seen.points[0].world_size: 1.0}


def table(seen: History) -> str:
    """Return the summary as text."""
    first, last = seen.points[0], seen.points[-1]
    steps = [point.step for point in seen.points]
    repeated = len(steps) - len(set(steps))
    rows = [
        ("workers", f"{len(seen.workers)} ({_shortened(seen.workers)})"),
        ("time", f"{first.at:%Y-%m-%d %H:%M:%S} UTC, {_duration(seen.seconds)}"),
        ("steps", f"{min(steps)} to {max(steps)}, epoch {last.epoch}{f', {repeated} repeated' if repeated else ''}"),
        ("loss", f"{first.loss:.4g} -> {last.loss:.4g}"),
        ("goodput", f"{goodput(seen):.1%}"),
        ("checkpoints", f"{seen.events.get('checkpoint_saved', 0)}, {seen.events.get('checkpoint_failed', 0)} failed"),
        ("steps discarded", str(seen.events.get("step_discarded", 0))),
    ]
    if seen.accuracy is not None:
        rows.append(("finished", f"accuracy {seen.accuracy:.4f}"))
    parts = [_aligned(rows), _aligned(_size_rows(seen))]
    if seen.changes:
        parts.append(_aligned(_change_rows(seen.changes)))
    return "\n\n".join(parts) + "\n"


def _size_rows(seen: History) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("world size", "time", "samples/s, median")]
    for size, share in world_size_shares(seen).items():
        rates = [point.samples_per_s for point in seen.points if point.world_size == size]
        rows.append((str(size), f"{share:.1%}", f"{statistics.median(rates):.0f}"))
    return rows


def _change_rows(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("change", "times", "seconds, median", "max")]
    for cause in sorted({change.cause for change in changes}):
        seconds = [change.seconds for change in changes if change.cause == cause]
        rows.append((cause, str(len(seconds)), f"{statistics.median(seconds):.3f}", f"{max(seconds):.3f}"))
    return rows


def _point(fields: dict[str, str]) -> Point | None:
    if "loss" not in fields or "step" not in fields:
        return None
    try:
        return Point(
            at=datetime.fromisoformat(fields["time"]),
            step=int(fields["step"]),
            epoch=int(fields["epoch"]),
            world_size=int(fields["world_size"]),
            generation=int(fields["generation"]),
            loss=float(fields["loss"]),
            samples_per_s=float(fields["samples_per_s"]),
            rank=int(fields.get("rank", 0)),
        )
    except (KeyError, ValueError):  # incomplete: the worker was killed while writing
        return None


def _one_for_each_step(reports: Iterable[Point]) -> tuple[Point, ...]:
    """Return one point per step and generation: a step may repeat after the loss of all workers."""
    chosen: dict[tuple[int, int], Point] = {}
    for point in sorted(reports, key=lambda point: point.rank):
        chosen.setdefault((point.generation, point.step), point)
    return tuple(sorted(chosen.values(), key=lambda point: (point.at, point.step)))


def _changes(found: Iterable[dict[str, str]]) -> list[Change]:
    slowest: dict[int, Change] = {}
    for fields in found:
        if fields.get("event") not in ("recovered", "resized"):
            continue
        try:
            change = Change(
                at=datetime.fromisoformat(fields["time"]),
                generation=int(fields["generation"]),
                cause=fields["cause"],
                seconds=float(fields["seconds"]),
                world_size=int(fields["world_size"]),
            )
        except (KeyError, ValueError):
            continue
        known = slowest.get(change.generation)
        if known is None or change.seconds > known.seconds:
            slowest[change.generation] = change
    return sorted(slowest.values(), key=lambda change: change.at)


def _usual_step_seconds(spans: Iterable[tuple[Point, Point]]) -> float:
    undisturbed = [
        (after.at - before.at).total_seconds() / (after.step - before.step)
        for before, after in spans
        if after.step > before.step and after.generation == before.generation
    ]
    return statistics.median(undisturbed) if undisturbed else 0.0


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
