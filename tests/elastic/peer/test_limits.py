"""A flood of connections disturbs neither pings nor the acceptance of peers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.elastic.workers import CHECKOUT, SECRET
from tests.processes import eventually
from tidewater.elastic.addresses import Address
from tidewater.elastic.group.rendezvous import MeetingStore, join
from tidewater.elastic.membership.rules import Member
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.peer import server as peer_server
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.heartbeat import Heartbeat
from tidewater.elastic.peer.server import MOST_STRANGERS, PeerServer, look

ME = Identity(SECRET, "me")
FLOOD = 500
MEMBERS = 300
DESCRIPTORS = 300
"""Of the flooded process: fewer than the connections."""

CODE = f"""
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer
server = PeerServer(Identity({SECRET!r}, "peer"))
server.start()
print(server.port, flush=True)
time.sleep(600)
"""


@pytest.fixture
def flooded() -> Iterator[tuple[Address, list[socket.socket]]]:
    """Yield a peer's address, and the connections of a client that opens many and sends nothing."""
    process = subprocess.Popen([sys.executable, "-c", CODE], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    address = Address("127.0.0.1", int(process.stdout.readline()), "peer")
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address[:2], timeout=60)) for _ in range(FLOOD)]
        yield address, idle
    process.kill()
    process.wait()


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(100):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def test_a_flood_stops_neither_pings_nor_a_join(flooded: tuple[Address, list[socket.socket]]) -> None:
    address, idle = flooded
    heartbeat = Heartbeat(ME, interval=0.1, timeout=60)
    heartbeat.start()
    heartbeat.watch([Member("peer", "peer", address.host, address.port, "", 0)])
    heartbeat.tense(True)
    try:
        assert look(ME, address, seconds=60) is Sign.ANSWERS
        until = time.monotonic() + 60
        store = MeetingStore(join(ME, address, 7, lambda: None, until), lambda: None, until)
        store.set("here/1", "")
        assert store.check(["here/1"])
        eventually(lambda: heartbeat._peers["peer"].answered)
    finally:
        heartbeat.stop()
    assert sum(map(is_open, idle)) <= MOST_STRANGERS


def test_hundreds_of_workers_meet_at_one() -> None:
    """Each has a connection, which a thread of the server answers, until the next generation."""
    server = PeerServer(Identity(SECRET, "peer"))
    server.start()
    address, until = Address("127.0.0.1", server.port, "peer"), time.monotonic() + 60
    ranks = [str(rank) for rank in range(1, MEMBERS)]
    met = [join(Identity(SECRET, rank), address, 7, lambda: None, until) for rank in ranks]
    for rank, keys in zip(ranks, met, strict=True):
        keys.set(rank, "")
    assert all(keys.check(ranks) for keys in met)


def test_who_does_not_authenticate_in_time_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it sends a byte from time to time."""
    monkeypatch.setattr(peer_server, "STRANGER_SECONDS", 0.5)
    server = PeerServer(Identity(SECRET, "peer"))
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        deadline = time.monotonic() + 60
        while is_open(slow):
            assert time.monotonic() < deadline, "it is still connected"
            with contextlib.suppress(OSError):
                slow.send(b"x")
            time.sleep(0.4)
