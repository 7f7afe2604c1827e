"""The thread that writes checkpoints, one after the other. One more can wait for the one in progress.

writer = Writer(write)           # write(task) raises nothing
writer.put(task)                 # begins it at once, or when the one in progress is finished
writer.flush(deadline)
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidewater.elastic.checkpoint.lineage import History
from tidewater.elastic.checkpoint.manifest import Score
from tidewater.elastic.checkpoint.places import MANIFEST, Place
from tidewater.elastic.checkpoint.pruning import Listed, is_beaten
from tidewater.elastic.errors import TrainerError

if TYPE_CHECKING:
    from tidewater.elastic.checkpoint.layout import Layout
    from tidewater.elastic.checkpoint.snapshot import Snapshot

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Task:
    """One checkpoint to write."""

    history: History
    snapshot: Snapshot | None
    """None: it is written already, and gets the score."""
    stall_seconds: float
    """How long training waited for the snapshot."""
    score: Score | None
    if_best: bool
    holders: list[Place] = field(default_factory=list)
    """The places that have it whole."""


class Writer:
    """Writes in a thread that ends when there is no more to write. ``put`` and ``flush`` are for one other thread."""

    def __init__(self, write: Callable[[Task], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._writes = False
        self.task: Task | None = None
        """The one in progress, or the last one."""
        self.waiting: Task | None = None

    @property
    def busy(self) -> bool:
        """Whether a task is in progress."""
        return self._writes and self._thread is not None and self._thread.is_alive()

    def put(self, task: Task) -> None:
        """Begin the task. If another one is in progress, it waits for that, instead of the one that waits already."""
        with self._lock:
            if self.busy:
                self.waiting = task
                return
            self.task, self._writes = task, True
            self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
            self._thread.start()

    def flush(self, deadline: float | None) -> bool:
        """Wait for all tasks until ``deadline`` (monotonic). Return whether they are finished."""
        if self._thread:
            self._thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not self.busy

    def unfinished(self) -> list[Task]:
        """Return the task in progress, and the one that waits."""
        with self._lock:
            return [each for each in (self.task, self.waiting) if each and self.busy]

    def _run(self) -> None:
        while self._writes and self.task:
            self._write(self.task)
            self.task.snapshot = None  # its memory
            with self._lock:
                self.task, self.waiting, self._writes = self.waiting or self.task, None, self.waiting is not None


def write(task: Task, place: Place, listed: Listed, layout: Layout) -> tuple[str, int] | None:
    """Write a checkpoint to a place. Return its name and size; None if it is not written there.

    Args:
        task: What to write.
        place: The place.
        listed: What the place has, if the task is to be written only where it is the best.
        layout: Of the files.

    Raises:
        OSError: The place refuses.
        ValueError: Two values in the state have the same name.
    """
    from tidewater.elastic.checkpoint import format as dcp

    if task.if_best and is_beaten(task.score, listed):
        return None
    for stored, manifest in listed:
        if manifest.history == task.history:
            place.put(f"{stored.name}/{MANIFEST}", replace(manifest, score=task.score).encode())
            return stored.name, sum(entry.size for entry in manifest.files.values())
    if task.snapshot is None:
        return None
    task.snapshot.wait()
    return dcp.write(place.begin(task.history.step), task.history, task.snapshot.parts, layout, task.score)


def why(error: Exception) -> str:
    """Return the reason of a failure, with the remedy if it is known."""
    known = isinstance(error, OSError | TrainerError) and str(error)
    reason = str(error) if known else f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in _FULL:
        reason += ": make room, or keep fewer with --keep-checkpoints"
    return reason
