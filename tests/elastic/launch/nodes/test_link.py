"""Launchers reach each other with the job's secret, and serve keys for the processes of all machines."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.elastic.workers import CHECKOUT, SECRET
from tests.processes import eventually
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken, Stranger
from tidewater.elastic.launch.nodes.link import Gate, Link, Mailbox, call
from tidewater.elastic.launch.nodes.messages import End, Ended, Hello, Message, Ping, Stop, encode
from tidewater.elastic.peer import handshake, keyvalue
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.keyvalue import Place

HELLO = Hello(1, 2, 4, "a-1", 8)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def gate(mailbox: Mailbox) -> Iterator[Gate]:
    gate = Gate(Identity(SECRET, "first"), "127.0.0.1", mailbox)
    yield gate
    gate.close()


def address(gate: Gate, name: str = "first") -> Address:
    return gate.place.address._replace(id=name)


def linked(gate: Gate, mailbox: Mailbox) -> tuple[Link, Link]:
    """Return both ends of a link: that of the first machine comes first."""
    further = call(SECRET, address(gate), HELLO)
    ((hello, first),) = eventually(mailbox.take)
    assert hello == HELLO
    return first, further


def arrived(link: Link) -> list[Message]:
    """Return what arrives next."""
    return eventually(link.receive)


def test_messages_go_both_ways_in_order(gate: Gate, mailbox: Mailbox) -> None:
    first, further = linked(gate, mailbox)
    assert further.place == Place(address(gate), 0, SECRET)
    further.send(Ended(137, 3))
    assert arrived(first) == [Ended(137, 3)]
    first.send(Stop(None))
    first.send(End(0))
    found: list[Message] = []
    while len(found) < 2:
        found += arrived(further)
    assert found == [Stop(None), End(0)]


def test_a_link_is_finished_when_the_other_side_has_read_the_last_message(gate: Gate, mailbox: Mailbox) -> None:
    first, further = linked(gate, mailbox)
    further.send(Ping())
    first.send(End(143))
    finishing = threading.Thread(target=first.finish)
    finishing.start()
    assert arrived(further) == [End(143)]
    finishing.join(0.1)
    assert finishing.is_alive()
    further.close()
    finishing.join(1.0)
    assert not finishing.is_alive()
    assert first.closed


def test_a_link_is_closed_with_the_other_end_or_by_what_is_no_message(gate: Gate, mailbox: Mailbox) -> None:
    first, further = linked(gate, mailbox)
    further.close()
    eventually(lambda: first.receive() == [] and first.closed)
    first, further = linked(gate, mailbox)
    first._connection.sendall(b'{"Exec": {"what": "rm"}}\n')
    eventually(lambda: further.receive() == [] and further.closed)


def test_a_ping_is_sent_at_intervals_and_counts_as_heard(gate: Gate, mailbox: Mailbox) -> None:
    first, further = linked(gate, mailbox)
    began = further.pinged_at
    further.beat(began + 0.9, 1.0)
    further.beat(began + 1.0, 1.0)
    further.beat(began + 1.1, 1.0)
    first.heard_at = 0.0
    assert arrived(first) == [Ping()]
    assert first.heard_at > 0


@pytest.mark.parametrize(("secret", "name"), [(b"another" * 5, "first"), (SECRET, "the launcher before")])
def test_a_stranger_is_refused(secret: bytes, name: str, gate: Gate, mailbox: Mailbox) -> None:
    with pytest.raises(Stranger):
        call(secret, address(gate, name), HELLO)
    assert mailbox.take() == []


def test_a_message_of_a_client_without_the_secret_is_not_read(gate: Gate, mailbox: Mailbox) -> None:
    with socket.create_connection(gate.place.address[:2], timeout=5.0) as stranger:
        stranger.sendall(bytes(handshake.HELLO) + encode(HELLO))
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := stranger.recv(1024):
                received += data
    assert set(received[16:]) <= {0}
    assert mailbox.take() == []


def test_a_gate_that_is_closed_lets_no_other_come(gate: Gate) -> None:
    gate.close()
    with pytest.raises(OSError, match=r"."):
        call(SECRET, address(gate), HELLO)


def test_the_processes_of_a_start_have_keys_of_their_own(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Place.of(str(Place(address(gate), number, SECRET))) for number in (7, 7, 8)]
    assert all(places)
    a, b, other = (keyvalue.lasting(each) for each in places if each)
    a.set("here", "a")
    assert b.get("here", 5.0) == "a"
    assert other.get("here", 0.0) is None
    monkeypatch.setattr(keyvalue, "_IDLE_SECONDS", 1.0)  # then the server ends the connection
    connection: Any = a._connection
    a._used_at -= 0.6
    assert a.get("here", 5.0) == "a"
    assert a._connection is not connection


@pytest.mark.parametrize("name", ["first", "the launcher before"])
def test_keys_of_a_launcher_that_is_lost_are_an_error(name: str, gate: Gate) -> None:
    place = Place(address(gate, name), 7, SECRET)
    if name == "first":
        gate.close()
    with pytest.raises(GroupBroken, match="the launcher of this worker's first machine is lost"):
        keyvalue.lasting(place)


def test_keys_of_a_launcher_that_does_not_answer_for_a_moment_are_there(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, connect = [TimeoutError("timed out"), OSError(113, "No route to host")], handshake.connect

    def fail(*given: Any, **more: Any) -> socket.socket:
        if failures:
            raise failures.pop()
        return connect(*given, **more)

    monkeypatch.setattr(keyvalue, "connect", fail)
    keys = keyvalue.lasting(Place(address(gate), 7, SECRET))
    keys.set("here", "a")
    assert failures == []


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::7"])
def test_a_place_is_read_from_its_text_and_a_file_is_none(host: str) -> None:
    place = Place(Address(host, 4711, "3fa9"), 2**61, SECRET)
    assert Place.of(str(place)) == place
    assert Place.of("/tmp/tidewater-x/0-1") is None
    assert Place.of("") is None


def test_what_threads_have_found_wakes_the_loop(mailbox: Mailbox) -> None:
    for _ in range(70_000 // 16):
        mailbox.put("found")
    with socket.fromfd(mailbox.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as woken:
        assert woken.recv(1, socket.MSG_PEEK)
    assert len(mailbox.take()) == 70_000 // 16
    assert mailbox.take() == []


def test_a_launcher_does_not_import_torch() -> None:
    text = "import sys, tidewater.elastic.launch.launcher; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], cwd=CHECKOUT, check=False).returncode == 0
