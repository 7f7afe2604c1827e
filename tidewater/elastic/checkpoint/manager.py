"""The checkpoints of one job: when to write, which to keep, which to load. See ``lineage`` for which one counts, and
``places`` and ``format`` for the rest.

One thread writes one checkpoint at a time, to one place after another: see ``writer``. An error in a place is logged as
an event and affects neither the other places nor training.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidewater.elastic.checkpoint.lineage import History, Undecided, ranked
from tidewater.elastic.checkpoint.manifest import Manifest, Score
from tidewater.elastic.checkpoint.places import MANIFEST, Place, Stored
from tidewater.elastic.checkpoint.pruning import is_beaten, unneeded
from tidewater.elastic.checkpoint.writer import Task, Writer, why, write
from tidewater.elastic.errors import ConfigError, RecordError, TrainerError
from tidewater.elastic.observe.log import Log
from tidewater.elastic.storage.errors import Missing

if TYPE_CHECKING:
    from tidewater.elastic.checkpoint.layout import Layout
    from tidewater.elastic.checkpoint.snapshot import Snapshots

_FINISHED = "finished.json"


class Unreadable(TrainerError):
    """It is unknown whether a checkpoint exists, so a new start could lose everything. A retry may succeed."""


@dataclass(frozen=True)
class Found:
    """A complete checkpoint."""

    history: History
    tree: dict[str, Any]
    """The saved state, on the CPU."""
    path: str

    @property
    def step(self) -> int:
        """Return the number of applied steps."""
        return self.history.step


Candidate = tuple[Stored, Place]


def _named(places: Iterable[Place]) -> str:
    return ",".join(place.text for place in places)


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
        self.text = _named(self._places)
        self._snapshots: Snapshots | None = None
        self._layout: Layout
        self._writer = Writer(self._write)
        self._failures: dict[str, str] = {}
        """By place, why the last checkpoint could not be written there."""
        self._manifests: dict[str, dict[Stored, Manifest]] = {}
        """By place, so that each is read once."""
        self._broken: dict[str, set[str]] = {place.text: set() for place in self._places}
        self._untidy: set[str] = set()
        self.on_saved: Callable[[int, str], None] = lambda step, where: None
        """Called, in the thread that writes, with the step of a checkpoint and the places that have it."""

    def prepare(self) -> None:
        """Import what writing needs, so that the first ``save`` does not have to (about a second)."""
        self._prepared()

    def save(
        self,
        history: History,
        tree: Mapping[str, Any],
        *,
        wait: bool = False,
        score: Score | None = None,
        if_best: bool = False,
    ) -> bool:
        """Copy the tensors at once and write in the background. Errors of a place or of the state are not raised, but
        those of the device are.

        While a checkpoint is being written, another one is dropped. With ``wait``, it is not dropped, and this returns
        when both are written, which may take minutes if a bucket does not answer. With ``if_best``, it is written when
        that one is finished.

        Args:
            history: Of the state; its last step names the checkpoint.
            tree: The state.
            wait: Whether to wait until it is written.
            score: Of the state. Each place keeps the checkpoint with the best score in addition to the newest ones.
            if_best: Whether to write it only to the places that have none with a better or equal score. A checkpoint
                of this state that is there already gets the score.

        Returns:
            Whether it is being written; with ``wait``, whether at least one place has it.
        """
        step, last = history.step, self._writer.task
        if wait:
            self.flush()
        elif last and self._writer.busy and not if_best:
            reason = f"step {last.history.step} is still being written"
            self._log.event("checkpoint_dropped", step=step, reason=reason)
            return False
        started, snapshot = time.monotonic(), None
        if not (if_best and last and last.history == history and not self._failures):
            try:
                snapshot = self._prepared().take(tree, fresh=self._writer.busy)
            except (ConfigError, MemoryError, RuntimeError) as error:  # torch raises RuntimeError if memory is short
                from tidewater.elastic.machine_errors import device_failure  # with torch

                if device_failure(error):
                    raise
                self.failed(step, error)
                return False
        task = Task(history, snapshot, time.monotonic() - started, score, if_best)
        self._writer.put(task)
        if wait:
            self.flush()
        return bool(task.holders) or not wait

    def has_better(self, score: Score) -> bool:
        """Return whether ``save`` with ``if_best`` is of no use, as far as this process knows the places."""
        waiting = self._writer.waiting
        if waiting and waiting.score and not score.beats(waiting.score):
            return True
        return all(is_beaten(score, list(self._manifests.get(place.text, {}).items())) for place in self._places)

    def failed(self, step: int, error: Exception) -> None:
        """Report that the checkpoint of that step can't be written anywhere."""
        self._fail(step, self.text, error)

    def flush(self, deadline: float | None = None) -> bool:
        """Wait for the checkpoint in progress until ``deadline`` (monotonic). Return whether it is finished."""
        return self._writer.flush(deadline)

    def close(self, deadline: float) -> None:
        """Wait for the checkpoint in progress until ``deadline`` (monotonic). Log what is not finished then."""
        self.flush(deadline)
        reason = "it was still being written when this worker ended"
        for task in self._writer.unfinished():
            place = self.slow if task is self._writer.task else self.text
            self._log.event("checkpoint_failed", step=task.history.step, place=place, reason=reason)

    @property
    def slow(self) -> str:
        """Return the places that have neither stored nor refused the checkpoint in progress."""
        holders = self._holders()
        return _named(each for each in self._places if each not in holders and each.text not in self._failures)

    def whole(self, history: History) -> bool:
        """Return whether this process has written that state last, and at least one place has it whole."""
        task = self._writer.task
        return task is not None and task.history == history and bool(task.holders)

    def failure(self) -> str:
        """Return why the places do not have the last checkpoint, with their names."""
        return "; ".join(f"{place}: {reason}" for place, reason in self._failures.items())

    def load(self, lineage: str) -> Found | None:
        """Return the complete checkpoint that counts in all places; None if there is none.

        Args:
            lineage: The lineage that etcd knows.

        Raises:
            Unreadable: None was found, and a place could not be read.
            RecordError: All checkpoints are damaged or of another version. They are not ignored, because a repair or
            the code that wrote them may still be able to read them. Or it is unknown which of two lineages counts.
        """
        stored, unreadable = self._stored()
        # Of equal ones the first place counts: a directory before a bucket.
        candidates, damaged, unread = self._with_history(stored)
        unreadable = unreadable or unread
        try:
            for index in ranked([history for history, _ in candidates], lineage):
                history, (each, place) = candidates[index]
                path = f"{place.text}/{each.name}"
                try:
                    return Found(history, self._read(place, each), path)
                except RecordError as error:
                    self._damaged(place, each, error)
                    damaged = damaged or f"{path}: {error}"
                except OSError as error:
                    self._skip(path, error)
                    unreadable = unreadable or f"{path}: {error}"
        except Undecided as error:
            heads = [candidates[index][1] for index in error.indices]
            paths = " and ".join(f"{place.text}/{each.name}" for each, place in heads)
            raise RecordError(
                f"{paths} are of different lines of training, neither continues the other, and etcd knows neither: "
                "move away what must not count, or give the job a new name"
            ) from error
        if unreadable:
            raise Unreadable(
                f"no checkpoint was found, but {unreadable}: make it readable, or name another place in --checkpoints"
            )
        if damaged:
            raise RecordError(
                f"none of the checkpoints can be used, the newest is {damaged}: "
                "repair them, or start again: move them away and give --begin-again, or give the job a new name"
            )
        return None

    def newest(self, lineage: str) -> History | None:
        """Return the history of the checkpoint that counts, among those with a readable manifest.

        None if there is none, or if it is unknown which one counts.
        """
        candidates, _, _ = self._with_history(self._stored()[0])
        histories = [history for history, _ in candidates]
        try:
            return next((histories[index] for index in ranked(histories, lineage)), None)
        except Undecided:
            return None

    def before(self, step: int) -> int:
        """Return the step of the newest checkpoint that a place lists, up to that step; 0 if there is none."""
        return max((stored.step for stored, _ in self._stored()[0] if stored.step <= step), default=0)

    def finish(self, record: bytes) -> None:
        """Record that the job is finished, in every place that has the last checkpoint that this process wrote.

        A place without the final checkpoint must not say that the job is finished: if only this place is left, training
        continues from its older checkpoint. Raise OSError if no place has recorded the end.
        """
        errors = {place.text: "it does not have the final checkpoint" for place in self._places}
        for place in self._holders():
            try:
                place.put(_FINISHED, record)
                del errors[place.text]
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
            from tidewater.elastic.checkpoint.layout import Layout
            from tidewater.elastic.checkpoint.snapshot import Snapshots

            self._snapshots, self._layout = Snapshots(), Layout()
        return self._snapshots

    def _holders(self) -> list[Place]:
        """Return the places that have the last checkpoint whole."""
        return self._writer.task.holders if self._writer.task else []

    def _stored(self) -> tuple[list[Candidate], str]:
        """Return the checkpoints that the places list, and the first reason why one can't be read, if any."""
        unreadable = ""
        found: list[Candidate] = []
        for place in self._places:
            try:
                found += [(stored, place) for stored in place.stored()]
            except Missing as error:
                self._skip(place.text, error)
            except OSError as error:
                self._skip(place.text, error)
                unreadable = unreadable or f"{place.text}: {error}"
        return found, unreadable

    def _with_history(self, stored: Sequence[Candidate]) -> tuple[list[tuple[History, Candidate]], str, str]:
        """Read the manifests. Return what could be read, and the first damaged and the first unreadable one, if any."""
        found: list[tuple[History, Candidate]] = []
        damaged = unreadable = ""
        for each, place in stored:
            path = f"{place.text}/{each.name}"
            try:
                found.append((self._manifest(place, each).history, (each, place)))
            except RecordError as error:
                self._damaged(place, each, error)
                damaged = damaged or f"{path}: {error}"
            except OSError as error:
                self._skip(path, error)
                unreadable = unreadable or f"{path}: {error}"
        return found, damaged, unreadable

    def _manifest(self, place: Place, stored: Stored) -> Manifest:
        """Return the manifest of a checkpoint. Raise RecordError if it is damaged, OSError if it is unreadable."""
        known = self._manifests.setdefault(place.text, {})
        if stored not in known:
            try:
                known[stored] = Manifest.decode(place.manifest(stored.name))
            except FileNotFoundError as error:
                raise RecordError(f"it has no {MANIFEST}: it was removed just now") from error
        return known[stored]

    def _read(self, place: Place, stored: Stored) -> dict[str, Any]:
        from tidewater.elastic.checkpoint import format as dcp

        with place.fetched(stored.name) as folder:
            found = dcp.read(folder)
        if not isinstance(found, dict):
            raise RecordError(f"it holds a {type(found).__name__} instead of a dict")
        return found

    def _write(self, task: Task) -> None:
        """Write a checkpoint to all places; this runs in the thread."""
        step, self._failures = task.history.step, {}
        for place in self._places:
            started = time.monotonic()
            try:
                listed = self._readable(place, place.stored()) if task.if_best else []
                written = write(task, place, listed, self._layout)
            # Any error in this thread must become an event, because nothing else reports it.
            except Exception as error:
                self._fail(step, place.text, error)
                continue
            if not written:
                continue
            name, size = written
            task.holders.append(place)
            self._broken[place.text].discard(name)
            known = self._manifests.get(place.text, {})
            self._manifests[place.text] = {each: manifest for each, manifest in known.items() if each.name != name}
            self._log.event(
                "checkpoint_saved",
                step=step,
                path=f"{place.text}/{name}",
                bytes=size,
                seconds=time.monotonic() - started,
                stall_seconds=task.stall_seconds,
                score=task.score.value if task.score else None,
            )
            self._tidy(place, task.history)
        if task.holders:
            self.on_saved(step, _named(task.holders))

    def _tidy(self, place: Place, written: History) -> None:
        broken = self._broken[place.text]
        try:
            place.tidy(lambda stored: self._doomed(place, stored, written))
        except OSError as error:
            # Logged once, not with every checkpoint: a person has to correct it.
            if place.text not in self._untidy:
                self._log.event("checkpoint_kept", place=place.text, reason=str(error))
            self._untidy.add(place.text)
        else:
            self._untidy.discard(place.text)
            broken.clear()

    def _doomed(self, place: Place, stored: Sequence[Stored], written: History) -> set[str]:
        """Return the names of checkpoints that are not needed any more, and of damaged ones."""
        readable = self._readable(place, stored)
        known = self._manifests.get(place.text, {})
        self._manifests[place.text] = {each: known[each] for each in stored if each in known}
        return unneeded(readable, written, self._keep) | (self._broken[place.text] & {each.name for each in stored})

    def _readable(self, place: Place, stored: Sequence[Stored]) -> list[tuple[Stored, Manifest]]:
        """Return the checkpoints with a readable manifest that aren't damaged.

        An unreadable one stays in its place: a repair, or the code that wrote it, may still be able to read it.
        """
        found = []
        for each in stored:
            with contextlib.suppress(RecordError, OSError):
                if each.name not in self._broken[place.text]:
                    found.append((each, self._manifest(place, each)))
        return found

    def _damaged(self, place: Place, stored: Stored, error: RecordError) -> None:
        self._skip(f"{place.text}/{stored.name}", error)
        self._broken[place.text].add(stored.name)

    def _fail(self, step: int, place: str, error: Exception) -> None:
        reason = why(error)
        self._failures[place] = reason
        self._log.event("checkpoint_failed", step=step, place=place, reason=reason)

    def _skip(self, path: str, error: Exception) -> None:
        self._log.event("checkpoint_skipped", path=path, reason=str(error))
