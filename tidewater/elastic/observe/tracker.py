"""Writes what a job reports to an experiment tracker: every point once, by one worker at a time.

    @contextlib.contextmanager
    def board(step):
        with SummaryWriter(FOLDER, purge_step=step) as writer:
            yield lambda seen: writer.add_scalar(…)

    tracker = tidewater.Tracker(board)
    tidewater.Training(..., on_step=tracker, on_evaluation=tracker)

Each worker has a Tracker, and that of rank 0 is open. When rank 0 is lost, it may have written the last final step, or
not: no worker contributes to the step after the next one before it has reported this one, so no more than one step can
be missing. The new rank 0 has reported that step, too, and begins with it again. So whatever is opened removes or skips
what the tracker has from that step on. The same happens to the steps since the checkpoint if all workers were lost.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from tidewater.elastic.training import Evaluated, Report

Seen = Report | Evaluated
Write = Callable[[Seen], object]


class Tracker:
    """The part of one worker. Call it with every report and every evaluation; for one thread.

    Args:
        opened: Called with the first step that is to be written, when this worker becomes the one that writes. Returns
            a context manager of the function that writes. It is left when this worker ceases to write, and at the end
            of the process.
    """

    def __init__(self, opened: Callable[[int], AbstractContextManager[Write]]) -> None:
        self._opened = opened
        self._recent: list[Seen] = []
        """Of the last two steps, without a gap, beginning with the report of a step."""
        self._write: Write | None = None
        self._open = contextlib.ExitStack()
        atexit.register(self._open.close)

    def __call__(self, seen: Seen) -> None:
        """Write what was seen, if this worker is the one that writes."""
        self._recent = [each for each in self._recent if each.step >= seen.step - 1]
        if not seen.writes:
            self._write = None
            self._open.close()
        elif self._write:
            self._write(seen)
        else:
            again = [*self._recent, seen]
            # An evaluation comes after the report of its step, which another worker has written.
            first = again[0].step + isinstance(again[0], Evaluated)
            self._write = self._open.enter_context(self._opened(first))
            for each in again:
                self._write(each)
        if self._recent or isinstance(seen, Report):
            self._recent.append(seen)
