"""A watch gives all changes that have arrived, and waits for no more."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidewater.elastic.errors import StoreError, TrainerError
from tidewater.elastic.etcd import client
from tidewater.elastic.etcd.access import Endpoint
from tidewater.elastic.etcd.client import EtcdStore, Watch
from tidewater.elastic.etcd.ranges import under

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CREATED = b'{"result": {"created": true}}\n'
PATIENCE_SECONDS = 20.0

Open = Callable[..., Watch]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def line(revision: int, value: str = "MQ==") -> bytes:
    content = {"key": "YQ==", "value": value, "create_revision": "1", "mod_revision": str(revision)}
    return json.dumps({"result": {"events": [{"kv": content}]}}).encode() + b"\n"


def change(revision: int, value: str = "MQ==") -> bytes:
    return chunk(line(revision, value))


@pytest.fixture
def etcd(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[EtcdStore, socket.socket]]:
    """Yield a store and the other end of its connection, which answers what the test sends."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_SECONDS)
    connection = http.client.HTTPConnection("etcd", timeout=PATIENCE_SECONDS)
    connection.sock = ours
    monkeypatch.setattr(Endpoint, "connect", lambda *_: connection)
    with ours, theirs:
        yield EtcdStore(("http://etcd:2379",)), theirs


def revisions(batches: Iterator[tuple[object, ...]]) -> list[int]:
    return [event.revision for event in next(batches)]  # type: ignore[attr-defined]


def test_changes_that_have_arrived_together_are_one_batch(etcd: tuple[EtcdStore, socket.socket]) -> None:
    store, server = etcd
    server.sendall(HEAD + chunk(CREATED) + change(2) + change(3) + change(4))
    batches = iter(store.watch({under("a"): 2}))
    assert revisions(batches) == [2, 3, 4]
    server.sendall(change(5))
    assert revisions(batches) == [5]


def test_a_hundred_changes_that_have_arrived_together_are_one_batch(etcd: tuple[EtcdStore, socket.socket]) -> None:
    """A member of a large job derives its view once for each batch."""
    store, server = etcd
    server.sendall(HEAD + b"".join(map(change, range(2, 102))))
    assert revisions(iter(store.watch({under("a"): 2}))) == list(range(2, 102))


@pytest.mark.parametrize("more", [0, 1, 9, len(change(3)) - 20, len(change(3)) - 3])
def test_a_change_does_not_wait_for_the_next_one(etcd: tuple[EtcdStore, socket.socket], more: int) -> None:
    store, server = etcd
    server.sendall(HEAD + change(2) + change(3)[:more])
    batches = iter(store.watch({under("a"): 2}))
    assert revisions(batches) == [2]
    server.sendall(change(3)[more:])
    assert revisions(batches) == [3]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + line(2), id="not-chunked"),
        pytest.param(HEAD + b"%x\r\n" % (2 * len(line(2))) + line(2), id="one-chunk-for-two-lines"),
    ],
)
def test_a_change_does_not_wait_if_a_proxy_has_divided_the_answer_in_its_own_way(
    etcd: tuple[EtcdStore, socket.socket], answer: bytes
) -> None:
    store, server = etcd
    server.sendall(answer)
    assert revisions(iter(store.watch({under("a"): 2}))) == [2]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(b"0\r\n\r\n", id="ends"),
        pytest.param(chunk(b'{"error": {"message": "etcdserver: server stopped"}}\n'), id="error"),
        pytest.param(chunk(b'{"result": {"compact_revision": "9"}}\n'), id="compacted"),
        pytest.param(chunk(b"<html>\n"), id="not-etcd"),
    ],
)
def test_the_last_changes_before_the_end_of_a_watch_are_given(
    etcd: tuple[EtcdStore, socket.socket], end: bytes
) -> None:
    """etcd may not be reachable again for long."""
    store, server = etcd
    server.sendall(HEAD + change(2) + change(3) + end)
    batches = iter(store.watch({under("a"): 2}))
    assert revisions(batches) == [2, 3]
    with pytest.raises((StopIteration, TrainerError)):
        next(batches)


def test_the_events_of_a_long_line_come_whole(etcd: tuple[EtcdStore, socket.socket]) -> None:
    store, server = etcd
    server.sendall(HEAD + change(2) + change(3, "MQ==" * 20_000) + change(4))
    batches = iter(store.watch({under("a"): 2}))
    found = revisions(batches)
    while found[-1] < 4:
        found += revisions(batches)
    assert found == [2, 3, 4]


def test_a_connection_on_which_etcd_has_lost_the_request_for_a_watch_is_not_used(
    etcd: tuple[EtcdStore, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes in that range would come after the connection's idle time, and be late for the others."""
    monkeypatch.setattr(client, "_BEGIN_SECONDS", 0.1)
    store, server = etcd
    server.sendall(HEAD + chunk(CREATED) + change(2))
    batches = iter(store.watch({under("a"): 2, under("b"): 2}))
    assert revisions(batches) == [2]
    with pytest.raises(StoreError, match="1 of 2 watches"):
        next(batches)


def test_a_watch_that_has_begun_waits_for_changes_as_long_as_its_connection_may_be_idle(
    etcd: tuple[EtcdStore, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_BEGIN_SECONDS", 0.1)
    store, server = etcd
    server.sendall(HEAD + chunk(CREATED) + chunk(CREATED))
    threading.Timer(0.5, server.sendall, [change(2)]).start()
    assert revisions(iter(store.watch({under("a"): 2, under("b"): 2}))) == [2]
