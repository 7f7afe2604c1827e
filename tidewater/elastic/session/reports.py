"""Tells the script, the log and the metrics about each final step.

    reports.begin(part)                     # before this rank contributes to a step
    reports.applied(report, changed)        # the step is applied, and pending
    reports.announce()                      # it is final: the log and the metrics have it
    reports.settle(rank)                    # when the passes of the next step were made: ``on_step``, and a checkpoint
    reports.adopt(tree, state.load)         # another worker's state replaces this one's

The workers are copies of one state machine, and ``on_step`` is a part of it: the script's ``stateful`` objects change
there. So what is handed over or saved is always one of two things:

* the state after step n, with the stateful objects as ``on_step`` of step n has left them, and no pending report;
* the state after step n, with the stateful objects as ``on_step`` of step n - 1 has left them, and the report of step n
  as ``state.pending``.

A worker that gets the second one calls ``on_step`` when the others do: in every run at the same place, which is after
the passes of step n + 1, and before them only if an evaluation or the end of training comes first. A worker that took
no part in the step does that too, with rank -1 and no samples; it neither logs nor counts the step. If step n never
becomes final, its report is dropped together with the state, and no stateful object has seen it.

A worker may have a pending report when another state replaces its own. If that state builds on the reported step, the
step is final: it is reported first, while the old state is still there. Otherwise the step was undone, and its report
is dropped. So a worker calls ``on_step`` once for every final step, if it took part in the step and has its result.
(A rank that was cut off before it had the result, and finds the others several steps ahead, never gets it.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Log, is_reported
from tidewater.elastic.observe.meter import Changed, Meter
from tidewater.elastic.session.state import made_in, refuse_divergence
from tidewater.elastic.session.worker import Worker, save
from tidewater.elastic.training import Report

MOST_UNSAVED = 3
"""Training ends when the state can't be saved so many times in a row: everything since then would be lost."""

_REMEDY = (
    "a step changes these attributes of the model, so they differ between workers and after a repeated step: count in "
    "on_step, in an object in stateful"
)


@dataclass(frozen=True)
class Part:
    """What a rank contributes to one step, in one generation."""

    step: int
    generation: int
    rank: int
    samples: tuple[int, ...]


class Reports:
    """The reports of one worker."""

    def __init__(self, config: Config, worker: Worker, log: Log) -> None:
        self._config, self._worker, self._log = config, worker, log
        self._changed: Changed | None = None
        self.part: Part | None = None
        """What this rank contributes to the step that it makes, or has made last."""
        self._announced: Report | None = None
        """The last one that was logged and counted."""
        self.save_after = 0
        """The step after which all members of this generation save, because it is time; 0: there is none."""
        self._saved_at = time.monotonic()
        self._checked = self._watched = False
        self._unsaved = 0
        """Checkpoints in a row that could not be written because of what the state contains."""
        self.meter = Meter()
        self.loads = 0
        """How often another state has replaced that of this worker."""

    def begin(self, part: Part) -> None:
        """Remember what this rank contributes: it may learn from another one that all have applied the step."""
        self.part = part

    def applied(self, report: Report, changed: Changed | None) -> None:
        """Keep the report of the step that was just applied until it is final."""
        self._worker.state.pending, self._changed = report, changed

    def is_time_to_save(self) -> bool:
        """Return whether the last checkpoint is older than ``--checkpoint-minutes``, and none is about to be written.

        One rank asks, because clocks differ, and says so in the step's ballot.
        """
        seconds = 60 * self._config.checkpoint_minutes
        asked = self.save_after == self._worker.state.step > 0
        return 0 < seconds <= time.monotonic() - self._saved_at and not asked

    def announce(self) -> None:
        """Log and count the last applied step, which is final now, before it is settled."""
        report = self._worker.state.pending
        if report and report.rank >= 0 and report is not self._announced:
            changed, self._changed, self._announced = self._changed, None, report
            self._log_step(report, changed)
            self._worker.metrics.committed(report)

    def settle(self, rank: int, *, after_passes: bool = False) -> None:
        """Report the last applied step, which is final now, if there is one; and save the state if it is due.

        Raise ConfigError if the state can't be saved after the first step of this process, or for the third checkpoint
        in a row. Raise Diverged, on all ranks, if the state to save is not finite.

        Args:
            rank: That of this worker now; -1 if it is in no generation.
            after_passes: Whether the passes of the next step have been made. They have not seen what ``on_step``
                changes, so what is saved has the report as pending, for a job that continues from it.
        """
        report = self._worker.state.pending
        if report is None:
            return
        self.announce()
        counts = report.rank >= 0 and rank >= 0
        due = counts and self._is_due(report.step)
        if not after_passes:
            self._tell(report, rank)
        if due:
            self._save(rank)
        if after_passes:
            self._tell(report, rank)
        if counts and not self._checked:
            self._check(due, is_saved=False)

    def _is_due(self, step: int) -> bool:
        every = self._config.checkpoint_every
        return (every > 0 and step % every == 0) or step == self.save_after

    def _save(self, rank: int) -> None:
        self._saved_at = time.monotonic()
        refuse_divergence(self._worker.state)
        is_saved = rank == 0 and save(self._worker)
        if self._checked:
            self._check(due=True, is_saved=is_saved)

    def _check(self, due: bool, *, is_saved: bool) -> None:
        """Check that the state can be saved.

        All ranks do this after the first step, because values may appear in it, and whenever a checkpoint is due. So
        they end together.
        """
        first, self._checked = not self._checked, True
        state = self._worker.state
        try:
            state.check(is_saved=is_saved)
        except ConfigError as error:
            if first:
                raise
            self._unsaved += due
            if self._unsaved >= MOST_UNSAVED:
                count = f"{self._unsaved} checkpoints in a row could not be written"
                raise ConfigError(f"{count}: {error}. The last one before them is kept") from error
        else:
            self._unsaved = 0

    def adopt(self, tree: dict[str, Any], load: Callable[[dict[str, Any]], Any]) -> Any:
        """Replace this worker's state by ``tree``, with ``load``. Return what ``load`` returns; None if it was not
        called, because this worker has the same state already."""
        state, mine, changed = self._worker.state, self._worker.state.pending, self._changed
        runs, theirs = tree.get("runs", ()), tree.get("pending")
        if mine and made_in(runs, mine.step, tree["step"]) == mine.generation:
            if theirs is None or theirs["step"] != mine.step:
                self.announce()
                self._tell(mine)
        else:
            mine = None
        same = state.history.values() == tree.get("history") and state.evaluated == tree.get("evaluated")
        if state.present and state.step and same:
            # The same step of the same generation. Only whether it is reported may differ, as the stateful objects do.
            state.take_position(tree)
            return None
        loaded = load(tree)
        self.loads += 1
        self._changed = None
        if mine and state.pending and mine.step == state.pending.step:
            state.pending, self._changed = mine, changed
        elif state.pending and self.part:
            part = self.part
            if (part.step, part.generation) == (state.pending.step, state.pending.generation):
                state.pending = replace(state.pending, rank=part.rank, samples=part.samples)
        return loaded

    def _tell(self, report: Report, rank: int | None = None) -> None:
        """Call ``on_step``. No rank: other workers have this worker's last step, and it takes their state next."""
        state, state.pending = self._worker.state, None
        if report.rank >= 0 and not self._watched:
            self._watch()
        # The last worker that leaves has no rank any more. One that others have left behind doesn't write at all.
        writes = self._worker.writes and (report.rank if rank == -1 else rank) == 0
        self._worker.training.on_step(report if report.writes == writes else replace(report, writes=writes))
        if not self._watched:
            state.attributes.moved()

    def _watch(self) -> None:
        """Name, once, what the passes of a step change in the modules. What ``on_step`` changes is equal everywhere."""
        self._watched = True
        moved = self._worker.state.attributes.moved()
        if moved:
            self._log.event("attributes_differ", names=",".join(moved), reason=_REMEDY)

    def _log_step(self, report: Report, changed: Changed | None) -> None:
        self.meter.count(report.batch_size)
        if changed:
            changed.tell(self._log, report)
        number, rest = divmod(report.step, self._config.report_every)
        shown = not rest and self._worker.writes and is_reported(number, report.rank, report.world_size)
        if changed or shown:
            self._log.progress(
                step=report.step,
                epoch=report.epoch + 1 if self._worker.state.cursor.offset else report.epoch,
                world_size=report.world_size,
                generation=report.generation,
                loss=report.loss,
                samples_per_s=self.meter.rate(),
                step_seconds=report.step_seconds,
                rank=report.rank,
                wait_seconds=report.wait_seconds,
            )
