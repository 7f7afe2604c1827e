"""Only who knows the job's secret is let in, and only by the member that is addressed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.elastic.workers import SECRET
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import Stranger
from tidewater.elastic.membership.traits import Traits
from tidewater.elastic.peer.handshake import HELLO, Identity, Initiator, Responder, connect
from tidewater.elastic.peer.outline import Outline
from tidewater.elastic.peer.server import PONG, PeerServer, ask_traits, look

ME, PEER = Identity(SECRET, "me"), Identity(SECRET, "peer")
OTHER = Identity(b"another secret", "me")
GREETING = 16 + 32
"""The most bytes that a stranger gets: the challenge, and the refusal."""


@pytest.fixture
def server() -> PeerServer:
    server = PeerServer(PEER, Traits((("--token", "1f"),)))
    server.start()
    server.offer(7, Outline.of(["the state"])[0])
    return server


def hello(responder: Responder, me: Identity = ME, peer: str = "peer") -> tuple[Initiator, bytes]:
    initiator = Initiator(me, peer)
    return initiator, initiator.advance(responder.challenge)


def test_both_ends_prove_that_they_know_the_secret() -> None:
    responder = Responder(PEER)
    initiator, message = hello(responder)
    proof, known = responder.answer(message)
    assert known
    assert len(message) == HELLO
    initiator.advance(proof)
    assert not initiator.needs


@pytest.mark.parametrize(
    ("me", "peer"),
    [
        pytest.param(OTHER, "peer", id="another-secret"),
        pytest.param(ME, "somebody-else", id="another-member-is-addressed"),
    ],
)
def test_who_cannot_authenticate_is_refused(me: Identity, peer: str) -> None:
    responder = Responder(PEER)
    initiator, message = hello(responder, me, peer)
    proof, known = responder.answer(message)
    assert not known
    assert proof == bytes(32)
    with pytest.raises(Stranger):
        initiator.advance(proof)


def test_a_server_without_the_secret_is_not_believed() -> None:
    responder = Responder(Identity(b"another secret", "peer"))
    initiator, message = hello(responder)
    for forged in (responder.answer(message)[0], message[-32:], bytes(32)):
        with pytest.raises(Stranger):
            initiator.advance(forged)


def test_a_hello_is_valid_on_one_connection_only() -> None:
    _, recorded = hello(Responder(PEER))
    assert not Responder(PEER).answer(recorded)[1]


def test_a_servers_proof_cannot_be_used_as_a_clients() -> None:
    """An attacker opens a connection in each direction, and returns to the worker what it says."""
    responder = Responder(PEER)
    _, message = hello(responder)
    proof, _ = responder.answer(message)
    assert not responder.answer(message[:-32] + proof)[1]


@pytest.mark.parametrize(
    "request_line",
    [
        pytest.param(b'{"ping": ""}\n', id="ping"),
        pytest.param(b'{"ping": true}\n', id="ping-after-the-handshake"),
        pytest.param(b'{"traits": true}\n', id="traits"),
        pytest.param(b'{"state": 7}\n', id="state"),
        pytest.param(b'{"meet": 7}\n', id="meet"),
    ],
)
def test_a_request_without_a_handshake_gets_nothing(server: PeerServer, request_line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
        stranger.sendall(request_line.ljust(HELLO, b" "))
        received = bytearray()
        try:
            while data := stranger.recv(4096):
                received += data
                assert len(received) <= GREETING
        except ConnectionResetError:
            pass
    assert PONG not in received
    assert b"the state" not in received
    assert b"--token" not in received


def test_a_worker_with_another_secret_learns_nothing(server: PeerServer) -> None:
    address = Address("127.0.0.1", server.port, "peer")
    with pytest.raises(Stranger):
        ask_traits(OTHER, address, seconds=30)
    assert look(OTHER, address, seconds=30).value == "ended"
    assert ask_traits(ME, address, seconds=30) == Traits((("--token", "1f"),))


def test_the_secret_is_not_shown_in_a_text_of_the_identity() -> None:
    assert "by which" not in repr(ME)


class Endless:
    """A member that authenticates and then sends without end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1], "peer")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        responder = Responder(PEER)
        connection.sendall(responder.challenge)
        connection.sendall(responder.answer(connection.recv(HELLO))[0])
        with connection:
            try:
                while True:
                    connection.sendall(b"x" * 4096)
            except OSError:
                pass


def test_a_client_stops_reading_from_a_server_that_sends_without_end() -> None:
    began = time.monotonic()
    assert ask_traits(ME, Endless().address, seconds=0.5) is None
    assert time.monotonic() - began < 30


@pytest.fixture
def closing() -> Iterator[Address]:
    """Yield the address of a server that closes the first connection, as under a flood."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            listener.accept()[0].close()
            connection, _ = listener.accept()
            responder = Responder(PEER)
            connection.sendall(responder.challenge)
            connection.sendall(responder.answer(connection.recv(HELLO))[0])

        threading.Thread(target=run, daemon=True).start()
        yield Address("127.0.0.1", listener.getsockname()[1], "peer")


def test_a_member_whose_connection_is_closed_in_a_flood_opens_another(closing: Address) -> None:
    connect(ME, closing, seconds=60).close()


def test_requests_are_json_lines_after_the_handshake(server: PeerServer) -> None:
    with connect(ME, Address("127.0.0.1", server.port, "peer"), seconds=60) as connection:
        for _ in range(3):
            connection.sendall(json.dumps({"ping": True}).encode() + b"\n")
            assert connection.recv(100) == PONG
