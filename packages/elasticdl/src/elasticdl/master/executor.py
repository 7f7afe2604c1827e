"""Does what `decide` says, one thing at a time, and tells the coordinator.

    Actor(coordinator, servers, checkpoints, scores, store).run()      # returns when the job has ended

A master that is killed in the middle of an action does it again: each may be repeated.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.errors import ElasticDLError, InputError
from elasticdl.master.coordinator import Coordinator
from elasticdl.master.scores import Scores
from elasticdl.master.servers import Servers, Taken
from elasticdl.master.store import Fenced, Interrupted, StateStore
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.decide import Action
from elasticdl.master.tasks.state import Evaluation
from elasticdl.ps import checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints go."""

    directory: str
    keep: int
    run: str
    """The run that they belong to: a server goes on only from checkpoints of its own run."""


class Actor:
    """Runs in a thread of its own."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: StateStore,
        servers: Servers | None,
        scores: Scores | None,
        saves: Checkpoints,
    ) -> None:
        """Take the parts; `servers` and `scores` are None in jobs without parameter servers or evaluation."""
        self._coordinator, self._store, self._servers, self._scores = coordinator, store, servers, scores
        self._saves = saves
        self._actions: dict[Action, Callable[[], None]] = {
            Action.TAKE_SNAPSHOT: self._take_snapshot,
            Action.CONCLUDE: self._conclude,
            Action.SAVE: self._save,
            Action.FLUSH: self._flush,
        }

    def run(self) -> None:
        """Act until the job has ended. If an action fails, the job fails.

        Raises:
            Fenced: another master has taken over.
        """
        while (action := self._coordinator.next_action()) is not Action.END:
            self._coordinator.confirm()
            try:
                self._actions[action]()
            except (Fenced, Interrupted):
                raise
            except (ElasticDLError, OSError) as error:
                self._coordinator.fail(f"{action.value}: {error}")

    def _take_snapshot(self) -> None:
        evaluation = self._evaluation()
        version = self._coordinator.state.version
        if self._servers is None:
            taken = Taken(version, ())
        else:
            self._servers.wait_for_model()
            taken = self._servers.take_snapshot(evaluation.snapshot)
        self._coordinator.apply(functools.partial(transitions.snapshot_taken, step=taken.step, servers=taken.processes))
        log.info("Evaluation of step %d begins: %d tasks", taken.step, evaluation.queue.todo)

    def _conclude(self) -> None:
        evaluation = self._evaluation()
        if not self._coordinator.state.unevaluated:
            try:
                self._log_metrics(evaluation)
            except InputError as error:  # a metric of the user's
                log.error("%s", error, exc_info=error.__cause__)
                self._coordinator.apply(functools.partial(transitions.evaluation_failed, reason=str(error)))
        if reason := self._coordinator.state.unevaluated:
            log.error("The evaluation of step %d has failed, and no other one begins: %s", evaluation.step, reason)
        if self._servers:
            self._servers.drop_snapshot(evaluation.snapshot)
        self._coordinator.apply(transitions.evaluation_concluded)
        self._store.drop_parts(evaluation.number)

    def _log_metrics(self, evaluation: Evaluation) -> None:
        """Log the metrics; raise ZooError if one of them fails."""
        assert self._scores is not None
        done = set(evaluation.queue.done_tasks())
        parts = self._store.parts(evaluation.number)
        metrics = self._scores.combined(part for task, part in sorted(parts.items()) if task in done)
        for task, reason in evaluation.queue.left_out.items():
            log.warning("Evaluation of step %d is without task %d: %s", evaluation.step, task, reason)
        log.info("Evaluation metrics[step=%d]: %s", evaluation.step, _readable(metrics))

    def _save(self) -> None:
        version = self._coordinator.state.version
        assert self._servers is not None
        # Two jobs that have begun at the same moment have both found the folder empty.
        checkpoint.check_unused(self._saves.directory, self._saves.run)
        self._servers.save(self._saves.directory, version, self._saves.run)
        self._coordinator.apply(functools.partial(transitions.saved, version=version))
        log.info("Checkpoint of version %d is in %s", version, self._saves.directory)
        gone = checkpoint.prune(self._saves.directory, self._saves.keep, self._saves.run)
        if gone:
            log.info("Older checkpoints are removed: %s", ", ".join(gone))

    def _flush(self) -> None:
        assert self._servers is not None
        version = self._servers.flush()
        self._coordinator.apply(functools.partial(transitions.flushed, version=version))

    def _evaluation(self) -> Evaluation:
        evaluation = self._coordinator.state.evaluation
        assert evaluation is not None
        return evaluation


def _readable(metrics: dict[str, float]) -> str:
    """Return metrics as the log has them: seven digits, which say more than float32 does."""
    rounded = {name: float(f"{value:.7g}") if math.isfinite(value) else value for name, value in metrics.items()}
    return str(rounded)
