"""The sentences about what has changed between two samples of a job. Pure.

    for line in changes(before, now, resized, at): ...

A worker is called by its type and index, because its pods come and go under the same name. What happens to many workers
at the same time is one sentence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tidewater.cli.show import shortened
from tidewater.cli.top.samples import Job, Note, Worker
from tidewater.cli.top.scrape import Recoveries
from tidewater.elasticjob import indexes
from tidewater.elasticjob.names import Reason

MOST_LINES = 10
"""Workers that have a line each if the same happens to all of them at the same time."""
_MOST_CHARACTERS = 40
"""Of their indexes."""

_LASTING = ("Running", "Succeeded")
_TOLD_BY_PODS = (Reason.SUCCESSFUL_CREATE_POD, Reason.SUCCESSFUL_DELETE_POD)
"""Reasons of events that say again what the pods themselves show."""

_CAUSES = {
    "lost": "a worker was lost",
    "left": "a worker left",
    "joined": "a worker joined",
    "start": "training started",
}


class Mood(Enum):
    """Whether a change is good news."""

    GOOD = "good"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True)
class Line:
    """One change."""

    at: datetime
    text: str
    mood: Mood = Mood.PLAIN


def changes(before: Job, now: Job, recovered: Mapping[str, Recoveries], at: datetime) -> tuple[Line, ...]:
    """Return what has happened between two samples, in order; `recovered` are the recoveries between them, by cause."""
    known = {note.key for note in before.notes}
    told = [_told(note) for note in now.notes if note.key not in known and note.reason not in _TOLD_BY_PODS]
    seen = [
        *_workers(before, now, at),
        *(_recovery(cause, found, at) for cause, found in sorted(recovered.items())),
        *_state(before, now, at),
    ]
    return tuple(sorted([*told, *seen], key=lambda line: line.at))


def _workers(before: Job, now: Job, at: datetime) -> Iterator[Line]:
    """Yield a line for each change of a worker; one for all workers if the same has happened to many."""
    found = list(_changed(before, now))
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for worker, text, _, _ in found:
        alike[worker.type, text].append(worker.index)
    for worker, text, place, mood in found:
        those = alike[worker.type, text]
        if len(those) <= MOST_LINES:
            yield Line(at, f"{title(worker)}{text}{place}", mood)
        elif those[0] == worker.index:
            numbers = shortened(indexes.text(those), _MOST_CHARACTERS)
            yield Line(at, f"{len(those)} {worker.type}s ({numbers}){_of_many(text)}", mood)


def _of_many(text: str) -> str:
    return text.replace(" is ", " are ").replace(" was ", " were ").replace("its pod", "their pods")


def _changed(before: Job, now: Job) -> Iterator[tuple[Worker, str, str, Mood]]:
    """Yield the workers that have changed: how, where, and whether that is good news."""
    old = {worker.uid: worker for worker in before.workers}
    new = {worker.uid for worker in now.workers}
    for worker in before.workers:
        if worker.uid not in new:
            yield worker, " is gone", "", Mood.PLAIN if worker.state == "Ending" else Mood.BAD
    for worker in now.workers:
        previous = old.get(worker.uid)
        if previous is None:
            yield worker, f" is new: {worker.state}", _place(worker), _mood(worker)
        elif previous.state != worker.state:
            yield worker, f": {previous.state} → {worker.state}", _place(worker), _mood(worker)
        elif previous.restarts < worker.restarts:
            yield worker, " was restarted in its pod", f", for the {worker.restarts}. time", Mood.BAD


def title(worker: Worker) -> str:
    """Return what a person calls a worker: `Worker 2`."""
    return f"{worker.type} {worker.index}"


def _place(worker: Worker) -> str:
    return f" on {worker.node}" if worker.state == "Running" and worker.node else ""


def _mood(worker: Worker) -> Mood:
    if worker.state in _LASTING:
        return Mood.GOOD
    return Mood.PLAIN if worker.state in ("Pending", "Ending") else Mood.BAD


def _recovery(cause: str, found: Recoveries, at: datetime) -> Line:
    times = f" {found.count} times" if found.count > 1 else ""
    text = f"training went on after {found.seconds:.2f} s: {_CAUSES.get(cause, cause)}{times}"
    return Line(at, text, Mood.GOOD)


def _state(before: Job, now: Job, at: datetime) -> Iterator[Line]:
    if before.desired != now.desired:
        yield Line(at, f"desired size: {before.desired} → {now.desired}")
    if before.state != now.state:
        mood = Mood.GOOD if now.state in _LASTING else Mood.BAD if now.state == "Failed" else Mood.PLAIN
        reason = f" ({now.message})" if now.message and mood is not Mood.GOOD else ""
        yield Line(at, f"{now.name}: {before.state} → {now.state}{reason}", mood)


def _told(note: Note) -> Line:
    return Line(note.at, f"{note.reason}: {note.message}", Mood.BAD if note.warning else Mood.PLAIN)
