"""Which processes fail tasks. A process that has failed one rests; one that fails what others do is to be replaced.

    failing = Failing()
    failing.failed("p1", now=0.0)
    failing.rests("p1", now=0.5)                # True
    failing.done("p2", failed_on=("p1",))       # a task that has failed on p1
    failing.is_broken("p1")                     # after `PROOFS` of them

A worker without its data, or with a broken GPU, fails each task at once. Without a rest it would take task after task
from the others. In memory alone: a master that is started again begins to count anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from elasticdl.master.tasks.task_queue import pause_seconds

PROOFS = 3
"""Tasks that have failed on a process, and that others have done, before it is replaced."""


class Failing:
    """See the module."""

    def __init__(self) -> None:
        self._row = Counter[str]()
        self._rest_until: dict[str, float] = {}
        self._proofs = Counter[str]()

    def failed(self, process: str, now: float) -> None:
        """Take in that a task has failed on a process."""
        self._row[process] += 1
        self._rest_until[process] = now + pause_seconds(self._row[process])

    def done(self, process: str, failed_on: Collection[str]) -> None:
        """Take in that a process has done a task, and on which ones the task has failed before."""
        self.forget(process)
        self._proofs.update(set(failed_on) & set(self._row) - {process})

    def rests(self, process: str, now: float) -> bool:
        """Return whether a process gets no task now."""
        return now < self._rest_until.get(process, now)

    def is_broken(self, process: str) -> bool:
        """Return whether a process fails what others do."""
        return self._proofs[process] >= PROOFS

    def forget(self, process: str) -> None:
        """Forget a process that is gone or has done a task."""
        for known in (self._row, self._rest_until, self._proofs):
            known.pop(process, None)
