"""Either all ranks of a generation begin to connect, or none."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import TCPStore

from tests.elastic.workers import SECRET, free_port
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.rendezvous import MeetingStore, exchange, join
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.keyvalue import RemoteKeys
from tidewater.elastic.peer.server import PeerServer

UUID = 7
SIZE = 3


def nothing() -> None:
    pass


@pytest.fixture
def server() -> PeerServer:
    server = PeerServer(Identity(SECRET, "a"))
    server.start()
    return server


def meet(server: PeerServer, check: Callable[[], None] = nothing, seconds: float = 60) -> MeetingStore:
    """Return a rank's own connection to the rendezvous."""
    deadline = time.monotonic() + seconds
    address = Address("127.0.0.1", server.port, "a")
    return MeetingStore(join(Identity(SECRET, "b"), address, UUID, check, deadline), check, deadline)


def come(pool: ThreadPoolExecutor, store: MeetingStore, rank: int, superseded: Callable[[], bool]) -> Future[None]:
    return pool.submit(store.assemble, rank, SIZE, superseded)


def test_all_members_connect_once_all_have_arrived(server: PeerServer) -> None:
    with ThreadPoolExecutor(SIZE) as pool:
        first = [come(pool, meet(server), rank, lambda: False) for rank in (0, 1)]
        time.sleep(0.3)
        assert not any(future.done() for future in first)
        for future in [*first, come(pool, meet(server), 2, lambda: False)]:
            assert future.result(60) is None


def test_each_rank_learns_the_words_of_all_by_two_requests(server: PeerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process answers the requests of all ranks, some thousands a second."""
    asked: dict[RemoteKeys, set[object]] = defaultdict(set)
    ask = RemoteKeys._ask

    def noted(self: RemoteKeys, *request: object) -> object:
        asked[self].add(request)
        return ask(self, *request)

    monkeypatch.setattr(RemoteKeys, "_ask", noted)
    ranks = [MeetingStore(server.board.at(UUID), nothing, time.monotonic() + 60), *(meet(server) for _ in range(2))]
    words = ["a", "\u00e4", "c"]
    with ThreadPoolExecutor(SIZE) as pool:
        got = list(pool.map(lambda rank: exchange(ranks[rank], "words", rank, SIZE, words[rank]), range(SIZE)))
    assert got == [words] * SIZE
    assert [len(requests) for requests in asked.values()] == [2, 2]


def test_a_rendezvous_superseded_before_all_have_arrived_is_cancelled_for_all(server: PeerServer) -> None:
    newer = threading.Event()
    with ThreadPoolExecutor(SIZE) as pool:
        first = come(pool, meet(server), 0, newer.is_set)
        newer.set()
        with pytest.raises(GroupBroken, match="newer generation"):
            first.result(60)
        # The last rank to arrive does not know of the newer generation yet.
        for rank, superseded in ((1, True), (2, False)):
            with pytest.raises(GroupBroken, match="newer generation"):
                come(pool, meet(server), rank, lambda known=superseded: known).result(60)  # type: ignore[misc]


def test_a_rendezvous_superseded_after_one_may_have_connected_continues_for_all(server: PeerServer) -> None:
    newer = threading.Event()
    with ThreadPoolExecutor(SIZE) as pool:
        stores = [meet(server) for _ in range(SIZE)]
        slow = come(pool, stores[0], 0, newer.is_set)
        stores[1].set("here/1", "")
        assert come(pool, stores[2], 2, lambda: False).result(60) is None
        newer.set()
        assert slow.result(60) is None
        assert come(pool, stores[1], 1, newer.is_set).result(60) is None


def test_the_check_ends_the_wait_for_a_lost_peer(server: PeerServer) -> None:
    until = time.monotonic() + 0.5

    def gone() -> None:
        if time.monotonic() > until:
            raise GroupBroken("lost b")

    with pytest.raises(GroupBroken, match="lost b"):
        meet(server, gone).assemble(0, SIZE, lambda: False)


def test_the_wait_for_an_absent_peer_ends_at_the_deadline(server: PeerServer) -> None:
    with pytest.raises(GroupBroken, match="did not arrive at the rendezvous in time"):
        meet(server, seconds=0.5).assemble(0, SIZE, lambda: False)


def test_a_worker_with_another_secret_cannot_meet_and_writes_nothing(server: PeerServer) -> None:
    address = Address("127.0.0.1", server.port, "a")
    with pytest.raises(GroupBroken, match="knows the job's secret"):
        join(Identity(b"another", "b"), address, UUID, nothing, time.monotonic() + 60)
    assert not server.board.at(UUID).check(["here/1"])


def test_all_ranks_see_the_same_keys_in_any_process(server: PeerServer) -> None:
    """The operations that torch uses, with the results of its own TCPStore."""
    there, here = meet(server), MeetingStore(server.board.at(UUID), nothing, time.monotonic() + 60)
    theirs = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (there, here, theirs):
        name = f"{id(store)}/"
        store.compare_set(name + "bytes", b"", b"\0\xff")  # type: ignore[arg-type]
        assert bytes(store.get(name + "bytes")) == b"\0\xff"
        assert [store.add(name + "count", 2), store.add(name + "count", 40)] == [2, 42]
        assert bytes(store.get(name + "count")) == b"42"
        assert bytes(store.compare_set(name + "new", "", "1")) == b"1"
        assert bytes(store.compare_set(name + "new", "", "2")) == b"1"
        assert bytes(store.compare_set(name + "new", "1", "3")) == b"3"
        assert bytes(store.compare_set(name + "absent", "1", "3")) == b"1"
        assert store.check([name + "new"])
        assert not store.check([name + "new", name + "absent"])
        assert store.delete_key(name + "new")
        assert not store.delete_key(name + "new")
        store.wait([name + "bytes", name + "count"])
    here.set("from here", "1")
    assert there.get("from here") == b"1"
    assert not theirs.check(["from here"])


def test_a_rank_that_asks_at_once_is_not_lost(server: PeerServer) -> None:
    """Its first question arrives together with the request to meet."""
    for _ in range(100):
        store = meet(server, seconds=60)
        assert store.add("rounds", 0) == 0


def test_a_lost_rank_0_ends_the_wait() -> None:
    address = Address("127.0.0.1", free_port(), "a")
    with pytest.raises(GroupBroken, match="did not arrive at the rendezvous in time"):
        join(Identity(SECRET, "b"), address, UUID, nothing, time.monotonic() + 0.5)
