"""The checkpoints of one job: when to write, which to keep, which to load. See ``places`` and ``format`` for the rest.

One thread writes one checkpoint at a time, to one place after another. An error in a place is logged as an event and
affects neither the other places nor training.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.places import Missing, Place, Stored, outdated
from trainer.errors import ConfigError, RecordError, TrainerError
from trainer.observe.log import Log

if TYPE_CHECKING:
    from trainer.checkpoint.layout import Layout
    from trainer.checkpoint.snapshot import Snapshot, Snapshots

_FINISHED = "finished.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Unreadable(TrainerError):
    """It is unknown whether a checkpoint exists, so a new start could lose everything. A retry may succeed."""


@dataclass(frozen=True)
class Found:
    """A complete checkpoint."""

    step: int
    tree: dict[str, Any]
    """The saved state, on the CPU."""
    path: str


class Checkpoints:
    """Writes and loads checkpoints. Only one process (rank 0) writes at a time, from one thread; any may read.

    Args:
        places: Every checkpoint is written to each of them.
        keep: Number of checkpoints that each place keeps.
        log: Gets the events ``checkpoint_saved``, ``_failed`` (with place and reason), ``_dropped`` (the previous one
        was still being written), ``_skipped`` (on loading) and ``_kept`` (an old one could not be removed).
    """

    def __init__(self, places: Sequence[Place], *, keep: int, log: Log) -> None:
        self._places, self._keep, self._log = tuple(places), keep, log
        self._snapshots: Snapshots | None = None
        self._layout: Layout
        self._writer: threading.Thread | None = None
        self._writing = 0
        """The step that is being written or was written last."""
        self._written = False
        """Whether at least one place has it."""
        self._broken: dict[str, set[str]] = {place.text: set() for place in self._places}
        self._complaints: dict[str, str] = {}

    def prepare(self) -> None:
        """Import what writing needs, so that the first ``save`` does not have to (about a second)."""
        self._prepared()

    def save(self, step: int, tree: Mapping[str, Any], *, wait: bool = False) -> bool:
        """Copy the tensors at once and write in the background. Errors of a place or of the state are not raised.

        While a checkpoint is being written, another one is dropped. With ``wait``, it is not dropped, and this returns
        when both are written, which may take minutes if a bucket does not answer.

        Returns:
            Whether it is being written; with ``wait``, whether at least one place has it.
        """
        if wait:
            self.flush()
        elif self._busy():
            self._log.event("checkpoint_dropped", step=step, reason=f"step {self._writing} is still being written")
            return False
        started = time.monotonic()
        try:
            snapshot = self._prepared().take(tree)
        except (ConfigError, MemoryError, RuntimeError) as error:  # torch raises RuntimeError if memory is short
            self._fail(step, ",".join(place.text for place in self._places), error)
            return False
        self._writing, self._written = step, False
        arguments = (step, snapshot, time.monotonic() - started)
        self._writer = threading.Thread(target=self._write, args=arguments, name="checkpoint", daemon=True)
        self._writer.start()
        if wait:
            self.flush()
        return self._written or not wait

    def flush(self, deadline: float | None = None) -> bool:
        """Wait for the checkpoint in progress until ``deadline`` (monotonic). Return whether it is finished."""
        if self._writer:
            self._writer.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not self._busy()

    def load(self) -> Found | None:
        """Return the newest complete checkpoint in all places; None if there is none.

        Raises:
            Unreadable: None was found, and a place could not be read.
            RecordError: All checkpoints are damaged or of another version. They are not ignored, because a repair or
            the code that wrote them may still be able to read them.
        """
        candidates, unreadable = self._stored()
        damaged = ""
        # For the same step the first place counts: a directory before a bucket.
        for stored, place in sorted(candidates, key=lambda each: -each[0].step):
            path = f"{place.text}/{stored.name}"
            try:
                return Found(stored.step, self._read(place, stored), path)
            except RecordError as error:
                self._skip(path, error)
                self._broken[place.text].add(stored.name)
                damaged = damaged or f"{path}: {error}"
            except OSError as error:
                self._skip(path, error)
                unreadable = unreadable or f"{path}: {error}"
        if unreadable:
            raise Unreadable(
                f"no checkpoint was found, but {unreadable}: make it readable, or name another place in --checkpoints"
            )
        if damaged:
            raise RecordError(
                f"none of the checkpoints can be used, the newest is {damaged}: "
                "repair them, or start again: move them away or give the job a new name"
            )
        return None

    def newest(self) -> int:
        """Return the step of the newest checkpoint that a place lists; 0 if there is none."""
        return max((stored.step for stored, _ in self._stored()[0]), default=0)

    def finish(self, record: bytes) -> None:
        """Record in every place that the job is finished. Raise OSError if all places fail."""
        errors = {}
        for place in self._places:
            try:
                place.put(_FINISHED, record)
            except OSError as error:
                errors[place.text] = str(error)
        if len(errors) == len(self._places):
            raise OSError("; ".join(f"{place}: {reason}" for place, reason in errors.items()))
        for text, reason in errors.items():
            self._log.event("checkpoint_failed", place=text, reason=f"the end of the job is not recorded: {reason}")

    def finished(self) -> bool:
        """Return whether the job is finished according to one of the places. Unreadable places are ignored."""
        for place in self._places:
            try:
                if place.has(_FINISHED):
                    return True
            except OSError as error:
                self._skip(f"{place.text}/{_FINISHED}", error)
        return False

    def _prepared(self) -> Snapshots:
        if self._snapshots is None:
            from trainer.checkpoint.layout import Layout
            from trainer.checkpoint.snapshot import Snapshots

            self._snapshots, self._layout = Snapshots(), Layout()
        return self._snapshots

    def _busy(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def _stored(self) -> tuple[list[tuple[Stored, Place]], str]:
        """Return the checkpoints that the places list, and the first reason why one can't be read, if any."""
        unreadable = ""
        found: list[tuple[Stored, Place]] = []
        for place in self._places:
            try:
                found += [(stored, place) for stored in place.stored()]
            except Missing as error:
                self._skip(place.text, error)
            except OSError as error:
                self._skip(place.text, error)
                unreadable = unreadable or f"{place.text}: {error}"
        return found, unreadable

    def _read(self, place: Place, stored: Stored) -> dict[str, Any]:
        from trainer.checkpoint import format as dcp

        with place.fetched(stored.name) as folder:
            found = dcp.read(folder)
        if not isinstance(found, dict):
            raise RecordError(f"it holds a {type(found).__name__} instead of a dict")
        return found

    def _write(self, step: int, snapshot: Snapshot, stall_seconds: float) -> None:
        """Write checkpoints; this runs in the thread."""
        from trainer.checkpoint import format as dcp

        for place in self._places:
            started = time.monotonic()
            try:
                snapshot.wait()
                name, size = dcp.write(place.begin(step), step, snapshot.parts, self._layout)
            # Any error in this thread must become an event, because nothing else reports it.
            except Exception as error:
                self._fail(step, place.text, error)
                continue
            self._written = True
            self._broken[place.text].discard(name)
            self._log.event(
                "checkpoint_saved",
                step=step,
                path=f"{place.text}/{name}",
                bytes=size,
                seconds=time.monotonic() - started,
                stall_seconds=stall_seconds,
            )
            self._tidy(place, step)

    def _tidy(self, place: Place, step: int) -> None:
        broken = self._broken[place.text]
        try:
            place.tidy(lambda stored: outdated(stored, step, self._keep, broken))
        except OSError as error:
            # Logged once, not with every checkpoint: a person has to correct it.
            if self._complaints.get(place.text) != str(error):
                self._log.event("checkpoint_kept", place=place.text, reason=str(error))
            self._complaints[place.text] = str(error)
        else:
            broken.clear()

    def _fail(self, step: int, place: str, error: Exception) -> None:
        known = isinstance(error, OSError | TrainerError) and str(error)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno in _FULL:
            reason += ": make room, or keep fewer with --keep-checkpoints"
        self._log.event("checkpoint_failed", step=step, place=place, reason=reason)

    def _skip(self, path: str, error: Exception) -> None:
        self._log.event("checkpoint_skipped", path=path, reason=str(error))
