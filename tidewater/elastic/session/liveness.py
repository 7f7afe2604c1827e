"""Whether it is worth waiting for the other members of a generation.

check = still_wanted(worker, generation, overdue)
check()                                 # several times a second, while this worker waits for the state
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.membership.rules import Generation
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
