"""Either all ranks of a generation begin to connect, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import TCPStore

from trainer.errors import GroupBroken
from trainer.group.rendezvous import MeetingStore, join

UUID = 7
SIZE = 3


def nothing() -> None:
    pass


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def meet(server: TCPStore, check: Callable[[], None] = nothing, seconds: float = 20) -> MeetingStore:
    """Return a rank's own connection to the rendezvous."""
    deadline = time.monotonic() + seconds
    return MeetingStore(UUID, join(("127.0.0.1", server.port), check, deadline), check, deadline)


def come(pool: ThreadPoolExecutor, store: MeetingStore, rank: int, superseded: Callable[[], bool]) -> Future[None]:
    return pool.submit(store.assemble, rank, SIZE, superseded)


def test_all_members_connect_once_all_have_arrived(server: TCPStore) -> None:
    with ThreadPoolExecutor(SIZE) as pool:
        first = [come(pool, meet(server), rank, lambda: False) for rank in (0, 1)]
        time.sleep(0.3)
        assert not any(future.done() for future in first)
        for future in [*first, come(pool, meet(server), 2, lambda: False)]:
            assert future.result(10) is None


def test_a_rendezvous_superseded_before_all_have_arrived_is_cancelled_for_all(server: TCPStore) -> None:
    newer = threading.Event()
    with ThreadPoolExecutor(SIZE) as pool:
        first = come(pool, meet(server), 0, newer.is_set)
        newer.set()
        with pytest.raises(GroupBroken, match="newer generation"):
            first.result(10)
        # The last rank to arrive does not know of the newer generation yet.
        for rank, superseded in ((1, True), (2, False)):
            with pytest.raises(GroupBroken, match="newer generation"):
                come(pool, meet(server), rank, lambda known=superseded: known).result(10)  # type: ignore[misc]


def test_a_rendezvous_superseded_after_one_may_have_connected_continues_for_all(server: TCPStore) -> None:
    newer = threading.Event()
    with ThreadPoolExecutor(SIZE) as pool:
        stores = [meet(server) for _ in range(SIZE)]
        slow = come(pool, stores[0], 0, newer.is_set)
        stores[1].set("here/1", "")
        assert come(pool, stores[2], 2, lambda: False).result(10) is None
        newer.set()
        assert slow.result(10) is None
        assert come(pool, stores[1], 1, newer.is_set).result(10) is None


def test_the_check_ends_the_wait_for_a_lost_peer(server: TCPStore) -> None:
    until = time.monotonic() + 0.5

    def gone() -> None:
        if time.monotonic() > until:
            raise GroupBroken("lost b")

    with pytest.raises(GroupBroken, match="lost b"):
        meet(server, gone).assemble(0, SIZE, lambda: False)


def test_the_wait_for_an_absent_peer_ends_at_the_deadline(server: TCPStore) -> None:
    with pytest.raises(GroupBroken, match="did not arrive at the rendezvous in time"):
        meet(server, seconds=0.5).assemble(0, SIZE, lambda: False)
