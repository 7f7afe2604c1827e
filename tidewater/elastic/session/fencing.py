"""Whether others may have continued without this worker: it asks before it makes anything final.

A worker that is frozen or cut off from etcd for long is replaced, and the others may have continued from a checkpoint.
When it runs again, it must neither report a step nor end the job before it knows what etcd says.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.membership.rules import Generation
from tidewater.elastic.session.worker import Worker

_RETRY_SECONDS = 0.2


class Fence:
    """The fence of one worker.

    Args:
        worker: The one that is fenced.
        overdue: Returns whether this worker must end, whatever the others do.
        waits: Called before this waits for etcd.
    """

    def __init__(self, worker: Worker, *, overdue: Callable[[], bool], waits: Callable[[Generation], None]) -> None:
        self._worker, self._overdue, self._waits = worker, overdue, waits
        self._leases_lost = 0
        """The coordinator's ``leases_lost`` at the last check that the others had not continued without this worker."""

    def check(self, generation: Generation) -> None:
        """Wait while etcd has been unreachable for so long that others may start again from a checkpoint.

        Raise GroupBroken if others have continued without this worker, or if it is overdue and can't find out.
        """
        coordinator = self._worker.coordinator
        if coordinator.in_touch():
            if coordinator.leases_lost == self._leases_lost:
                return
        else:
            self._waits(generation)
        while not coordinator.in_touch():
            self._worker.group.check()
            if self._overdue():
                raise GroupBroken("this worker must leave, and can't ask etcd whether others have continued")
            coordinator.wait(lambda _: False, time.monotonic() + _RETRY_SECONDS)
        lost = coordinator.leases_lost
        if not self._is_current(generation):
            raise GroupBroken("the others continued while this worker could not reach etcd")
        self._leases_lost = lost

    def left_behind(self, generation: Generation | None, deadline: float) -> bool | None:
        """Return whether others may have continued since this worker lost its lease; None if etcd does not answer
        until the deadline (monotonic)."""
        coordinator = self._worker.coordinator
        while not coordinator.in_touch():
            if time.monotonic() > deadline:
                return None
            coordinator.wait(lambda _: False, time.monotonic() + _RETRY_SECONDS)
        lost = coordinator.leases_lost != self._leases_lost
        return lost and not (generation and self._is_current(generation))

    def _is_current(self, generation: Generation) -> bool:
        """Return whether etcd has this generation. If etcd has lost its data, another one may have its number."""
        current = self._worker.coordinator.view.generation
        return current is not None and current.uuid == generation.uuid
