"""How the master's log says how far the job is.

teller = Teller(coordinator.progress)
teller.tell()                    # now and then: only every so many seconds, and only what is new
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from elasticdl.errors import in_one_line
from elasticdl.master.coordinator import Progress
from elasticdl.master.tasks.state import JobState, Stage

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0


class Teller:
    """Logs the progress of a job."""

    def __init__(self, progress: Callable[[], Progress], clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._told, self._at = progress(), clock()

    def tell(self) -> None:
        """Log how far the job is, unless that was logged a moment ago or nothing has changed."""
        now, progress = self._clock(), self._progress()
        if now - self._at < EVERY_SECONDS or progress == self._told:
            return
        log.info("%s", sentence(progress, progress.records - self._told.records, now - self._at))
        self._told, self._at = progress, now


def tell_end(state: JobState) -> None:
    """Log how a job has ended."""
    for task, reason in sorted(state.work.left_out.items()):
        if reason != state.stopped:
            log.warning("The job went on without task %d: %s", task, reason)
    if state.stage is Stage.FAILED:
        log.error("Job failed: %s", in_one_line(state.reason))
    else:
        log.info("Job done: %d tasks, %d records, version %d", state.work.done, state.records, state.version)


def sentence(progress: Progress, records: int, seconds: float) -> str:
    """Return one line of progress.

    Args:
        progress: Now.
        records: Records counted since the last line.
        seconds: Since the last line.
    """
    if progress.stage is not Stage.WORK:
        return f"Progress: {progress.done} of {progress.total} tasks done, now: {progress.stage}"
    return (
        f"Progress: {progress.done} of {progress.total} tasks done, epoch {progress.epoch}, version {progress.version}"
        f", {progress.records} records, {records / seconds:.0f} records/s, {progress.workers} workers"
    )
