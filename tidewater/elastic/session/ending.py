"""How a worker ends: the job is finished, or this worker leaves. Nothing is lost at the end.

The job counts as finished only when one place has the final checkpoint whole. Until then all workers keep the state,
rank 0 saves it again and again, and if rank 0 dies or leaves, another worker does so in the next generation.
"""

from __future__ import annotations

import atexit
import gc
import json
import time
from collections.abc import Callable

from tidewater.contract import exit_codes, keys, leaving
from tidewater.elastic.checkpoint.lineage import History
from tidewater.elastic.errors import ConfigError, StoreError
from tidewater.elastic.membership.rules import Generation, has_heirs
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.fencing import Fence
from tidewater.elastic.session.state import refuse_divergence
from tidewater.elastic.session.worker import Worker, save

_LOOK_SECONDS = 0.2
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0
"""The waits between two attempts double from the first to the last. A person may have to make room meanwhile."""
_SAY_SECONDS = 30.0
_GIVE_WAY_SECONDS = 0.2
"""The workers that go on have usually made their first step without this one by then."""
_ASK_SECONDS = 5.0
"""etcd answers within this time after a freeze, or is away."""


class Ending:
    """The end of one worker.

    Args:
        worker: Of the worker.
        log: Gets the events ``finished``, ``finish_delayed``, ``left`` and ``left_unsaved``.
        fence: Of the worker with etcd.
        overdue: Returns whether this worker must end, whatever the others do.
    """

    def __init__(self, worker: Worker, log: Log, fence: Fence, *, overdue: Callable[[], bool]) -> None:
        self._worker, self._log, self._fence, self._overdue = worker, log, fence, overdue
        self._final: History | None = None
        """The final state, once it is being saved: this may take longer than a generation lasts."""
        self.save: Callable[[Worker], bool] = save

    def finish(self, generation: Generation, rank: int) -> None:
        """Finish the job: rank 0 saves the state and records the end, the others wait for that record.

        Return when the job is finished, or when the next generation has to finish it because the membership changes or
        this worker must end. Raise GroupBroken when a peer fails. Raise on all ranks ConfigError, if the state can't be
        saved because of what it contains (no retry would help), and Diverged, if it is not finite (no later step shows
        that of the last one).
        """
        refuse_divergence(self._worker.state)
        problem = self._problem()
        if problem:
            raise ConfigError(
                f"training has ended with step {self._worker.state.step}, and its final checkpoint can't be written: "
                f"{problem}. The last checkpoint before is kept"
            )
        if rank == 0 and self._saved(generation):
            self._record(generation)
        while self._goes_on(generation):
            self._wait(generation, time.monotonic() + _LOOK_SECONDS)

    def _problem(self) -> str:
        """Return why no place can have the state, because of what it contains; "" if there is no such reason."""
        try:
            self._worker.state.check()
        except ConfigError as error:
            return str(error)
        return ""

    def has_final_state(self) -> bool:
        """Return whether the job is finished and this worker has its final state. A newcomer of the end has not."""
        finished, state = self._worker.coordinator.view.finished, self._worker.state
        return bool(finished) and state.present and state.step == json.loads(finished)["step"]

    def finished(self) -> int:
        """End because the job is finished. Return the exit code."""
        record = json.loads(self._worker.coordinator.view.finished)
        state = self._worker.state
        digest = state.digest() if self.has_final_state() else None
        skipped = len(state.cursor.skipped) or None
        self._log.event("finished", accuracy=record["accuracy"], step=record["step"], state=digest, skipped=skipped)
        return exit_codes.FINISHED

    def left(
        self, generation: Generation | None, met: Generation | None, since: float | None, *, settle: Callable[[], None]
    ) -> int:
        """End after a planned leave. If no remaining worker has the state, save a checkpoint first. Return the exit
        code: that of a failure if this checkpoint could not be saved.

        Args:
            generation: The last generation of this worker.
            met: The last one that began with the state in all members. Those of a later one may lack it.
            since: Monotonic time at which this worker was asked to leave.
            settle: Reports the last step, which is final because it is in a checkpoint.
        """
        state, checkpoints = self._worker.state, self._worker.checkpoints
        until = time.monotonic() + leaving.FLUSH_SECONDS
        behind = state.present and self._fence.left_behind(generation, time.monotonic() + _ASK_SECONDS)
        view = self._worker.coordinator.view
        heirs = met is not None and has_heirs(view, met)
        saved = None
        if state.present and (not heirs or (self._overdue() and not behind)):
            refuse_divergence(state)
            saved = self._saved_until(until)
            # Another checkpoint may count more: then the last step of this worker is not part of what others continue.
            lineage = view.generation.lineage if view.generation else ""
            if saved and not heirs and behind is False and checkpoints.newest(lineage) == state.history:
                settle()
        step = state.step if state.present else None
        lost = saved is False and not heirs
        if lost:
            why = checkpoints.failure() or f"it is still being written to {checkpoints.slow}"
            reason = f"no place has the last state, steps since the last checkpoint are lost: {why}"
            self._log.event("left_unsaved", member=self._worker.member_id, step=step, reason=reason)
        seconds = time.monotonic() - (since or time.monotonic())
        self._log.event("left", member=self._worker.member_id, step=step, seconds=seconds)
        if heirs:
            _give_way()
        return exit_codes.FAILED if lost else exit_codes.LEFT

    def _saved(self, generation: Generation) -> bool:
        """Save the final state until one place has it whole. Return False if the next generation has to do that."""
        state, checkpoints = self._worker.state, self._worker.checkpoints
        history, pause = state.history, _FIRST_RETRY_SECONDS
        while self._written(generation):
            if self._final == history and checkpoints.whole(history):
                return True
            if self._final == history:
                self._delayed(f"no place has the checkpoint of step {history.step}: {checkpoints.failure()}", pause)
                if not self._wait(generation, time.monotonic() + pause):
                    return False
                pause = min(2 * pause, _LAST_RETRY_SECONDS)
            self._final = history
            self.save(self._worker)
        return False

    def _saved_until(self, deadline: float) -> bool:
        """Save the state until one place has it whole or the deadline has passed. Return whether one has it."""
        state, checkpoints = self._worker.state, self._worker.checkpoints
        while checkpoints.flush(deadline):
            done = self.save(self._worker) and checkpoints.flush(deadline)
            late = time.monotonic() + _FIRST_RETRY_SECONDS > deadline
            if late or (done and checkpoints.whole(state.history)) or self._problem():
                break
            time.sleep(_FIRST_RETRY_SECONDS)
        return checkpoints.whole(state.history)

    def _written(self, generation: Generation) -> bool:
        """Wait until no checkpoint is being written. Return False if the next generation has to finish the job."""
        checkpoints, say_at = self._worker.checkpoints, time.monotonic() + _SAY_SECONDS
        while self._goes_on(generation):
            if checkpoints.flush(time.monotonic() + _LOOK_SECONDS):
                return True
            if time.monotonic() > say_at:
                say_at = time.monotonic() + _SAY_SECONDS
                self._delayed(f"the checkpoint is still being written to {checkpoints.slow}")
        return False

    def _record(self, generation: Generation) -> None:
        """Record the end in the places that have the final checkpoint, and in etcd. Retry until it succeeds.

        The places come first: if this process dies in between, the next one finds the end of training in the checkpoint
        and records it again.
        """
        state, pause = self._worker.state, _FIRST_RETRY_SECONDS
        end = {"version": keys.FINISHED_VERSION, "step": state.step, "accuracy": state.accuracy}
        record = json.dumps(end).encode()
        while self._goes_on(generation):
            try:
                self._worker.checkpoints.finish(record)
                self._fence.check(generation)  # again: a place may take long
                self._worker.coordinator.finish(record)
                return
            except (OSError, StoreError) as error:
                self._delayed(str(error), pause)
            self._wait(generation, time.monotonic() + pause)
            pause = min(2 * pause, _LAST_RETRY_SECONDS)

    def _wait(self, generation: Generation, deadline: float) -> bool:
        """Wait until the deadline (monotonic). Return False, and soon, if the next generation has to finish the job."""
        coordinator = self._worker.coordinator
        while self._goes_on(generation):
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            coordinator.wait(
                lambda view: bool(view.finished) or view.number != generation.number,
                time.monotonic() + min(left, _LOOK_SECONDS),
            )
        return False

    def _goes_on(self, generation: Generation) -> bool:
        """Return whether this generation still has to finish the job. Raise GroupBroken."""
        self._worker.group.check()
        self._fence.check(generation)
        view = self._worker.coordinator.view
        return not view.finished and view.number == generation.number and not self._overdue()

    def _delayed(self, error: str, retry_seconds: float | None = None) -> None:
        self._log.event("finish_delayed", step=self._worker.state.step, error=error, retry_seconds=retry_seconds)


def _give_way() -> None:
    """Let the workers that go on have the processor before the end of this process takes it.

    With torch the interpreter's last collections of garbage take about 0.7 s, so there is nothing left to collect then.
    """
    atexit.register(gc.freeze)
    time.sleep(_GIVE_WAY_SECONDS)
