"""Waiting for others: whether it is worth it, and the line in the log that says what for.

check = still_wanted(worker, generation, overdue)
check()                                 # several times a second, while this worker waits for the state
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewater.elastic.config import Config
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.membership.rules import Generation, lost_members
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer import server
from tidewater.elastic.session.worker import Worker

_PROBE_SECONDS = 0.5


def peers_alive(generation: Generation, me: str) -> Callable[[], None]:
    """Return a check for use while waiting for peers. It raises GroupBroken when the process of a peer is gone.

    ``me`` is the id of this worker's member.
    """
    peers = [member for member in generation.members if member.id != me]
    asked_at = time.monotonic()

    def check() -> None:
        nonlocal asked_at
        if time.monotonic() - asked_at < _PROBE_SECONDS:
            return
        gone = [peer.worker for peer in peers if server.is_gone(peer.address)]
        if gone:
            raise GroupBroken(f"lost {', '.join(gone)}")
        asked_at = time.monotonic()

    return check


def still_wanted(worker: Worker, generation: Generation, overdue: Callable[[], bool]) -> Callable[[], None]:
    """Return a check for use while waiting for the state. It raises GroupBroken when the wait is pointless.

    ``overdue`` returns whether this worker must end, whatever the others do.
    """
    check_peers = peers_alive(generation, worker.member_id)

    def check() -> None:
        if worker.coordinator.view.number != generation.number:
            raise GroupBroken("there is a newer generation")
        if overdue():
            raise GroupBroken("this worker must leave, but the others did not let it leave in time")
        worker.group.check()
        check_peers()

    return check


def until_changed(worker: Worker, generation: Generation, overdue: Callable[[], bool]) -> None:
    """Return when the membership changes, the job is finished, or this worker is ``overdue``.

    Raise GroupBroken when no further step is possible in the generation.
    """
    while not overdue():
        view = worker.coordinator.view
        if view.number != generation.number or view.finished:
            return
        lost = lost_members(view, generation, worker.member_id)
        if lost:
            raise GroupBroken(f"no further step is possible with {', '.join(lost)}")
        worker.coordinator.wait_for_news(view, time.monotonic() + 0.5)


class Waiting:
    """What a worker waits for so that steps can be made. Each reason is logged once, until it is over."""

    def __init__(self, config: Config, log: Log) -> None:
        self._config, self._log = config, log
        self.reason = ""
        """``in_line``, ``below_min`` or ``etcd``; empty if it waits for none of these."""

    def say(self, reason: str, workers: int) -> None:
        """Note the reason. ``workers`` is the number of processes that train."""
        if self.reason != reason:
            self.reason, config = reason, self._config
            # With several members in each worker these aren't the numbers that the flags have.
            unit = "workers" if config.members == 1 else "processes"
            numbers = {unit: workers, f"min_{unit}": config.least_members, f"max_{unit}": config.most_members}
            self._log.event("waiting", reason=reason, **numbers)

    def over(self) -> None:
        """Note that it waits for none of these."""
        self.reason = ""
