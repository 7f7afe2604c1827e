"""How a worker ends: the job is finished, or this worker leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from contract import exit_codes, keys
from trainer.errors import StoreError
from trainer.membership.rules import Generation, has_heirs
from trainer.observe.log import Log
from trainer.parts import Parts


class Ending:
    """The end of one worker."""

    def __init__(self, parts: Parts, log: Log, *, overdue: Callable[[], bool]) -> None:
        self._parts, self._log, self._overdue = parts, log, overdue

    def finish(self, rank: int) -> None:
        """Finish the job: rank 0 saves the state and records the end, the others wait for that record."""
        state, coordinator = self._parts.state, self._parts.coordinator
        if rank == 0:
            self._parts.checkpoints.save(state.step, state.tree(), wait=True)
            record = {"version": keys.FINISHED_VERSION, "step": state.step, "accuracy": state.accuracy}
            self._record(json.dumps(record).encode())
        while not coordinator.wait(lambda view: bool(view.finished), time.monotonic() + 0.5) and not self._overdue():
            self._parts.group.check()

    def finished(self) -> int:
        """End because the job is finished. Return the exit code."""
        record = json.loads(self._parts.coordinator.view.finished)
        state = self._parts.state
        digest = state.digest() if state.present and state.step == record["step"] else None
        self._log.event("finished", accuracy=record["accuracy"], step=record["step"], parameters=digest)
        return exit_codes.FINISHED

    def left(self, generation: Generation | None, since: float | None, *, settle: Callable[[], None]) -> int:
        """End after a planned leave. If no remaining worker has the state, save a checkpoint first. Return the exit
        code.

        Args:
            generation: The last generation of this worker.
            since: Monotonic time at which this worker was asked to leave.
            settle: Reports the last step, which is final because it is in a checkpoint.
        """
        state, checkpoints = self._parts.state, self._parts.checkpoints
        heirs = generation is not None and has_heirs(self._parts.coordinator.view, generation)
        if state.present and (not heirs or self._overdue()):
            saved = checkpoints.save(state.step, state.tree(), wait=True)
            # A later checkpoint is from workers that continued without this one: its last step is not part of theirs.
            if saved and not heirs and checkpoints.newest() <= state.step:
                settle()
        self._log.event(
            "left",
            member=self._parts.member_id,
            step=state.step if state.present else None,
            seconds=time.monotonic() - (since or time.monotonic()),
        )
        return exit_codes.LEFT

    def _record(self, record: bytes) -> None:
        """Record the end in the checkpoints' places and in etcd. Retry until it succeeds.

        The checkpoints' places come first: if this process dies in between, the next one finds the end of training in
        the checkpoint and records it again.
        """
        while True:
            try:
                self._parts.checkpoints.finish(record)
                self._parts.coordinator.finish(record)
                return
            except (OSError, StoreError) as error:
                self._log.event("finish_delayed", error=str(error))
                time.sleep(1)
