"""Proof that both ends of a connection know the job's secret, before anything else is sent.

    connection = connect(me, address, seconds=2)             # the client's part, blocking
    initiator = Initiator(me, "w-1-3c"); initiator.advance(…)   # the same for a client with a selector
    responder = Responder(me); responder.challenge; responder.answer(hello)      # the server's part

Three messages of fixed size, HMAC-SHA256 (RFC 2104) with the secret as the key:

    server → client   challenge: 16 random bytes
    client → server   hello: 16 random bytes, SHA-256 of its id, HMAC
    server → client   proof: HMAC; or zeros, if it does not accept the hello

Each HMAC covers a label for its direction, both ids and both random values. So it can't be used in the other direction,
for another member or on another connection. A client without the secret learns 16 random bytes.

What follows is neither encrypted nor authenticated message by message: anyone who can change packets on the way can
still read and change it. Only a network with encryption prevents that.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import Stranger

_NONCE = 16
_DIGEST = hashlib.sha256().digest_size
HELLO = _NONCE + 2 * _DIGEST
"""Bytes of the client's message."""
_LABEL = b"tidewater peer 1 "
_CONNECT_SECONDS = 0.5
_SLICE_SECONDS = 0.2
_PAUSE_SECONDS = 0.05
_NO = bytes(_DIGEST)


@dataclass(frozen=True)
class Identity:
    """What a process needs to authenticate."""

    secret: bytes = field(repr=False)
    """The job's secret."""
    id: str = ""
    """Member id of this process."""


class Initiator:
    """The client's part of one handshake. Input and output are up to the caller."""

    def __init__(self, me: Identity, peer: str) -> None:
        self._me, self._peer = me, peer
        self._hello = self._expected = b""
        self.needs = _NONCE
        """Bytes to read next; 0 when the server has proved that it is ``peer`` and knows the secret."""

    def advance(self, data: bytes) -> bytes:
        """Process the next ``needs`` bytes of the server. Return what to send. Raise Stranger if the proof is wrong."""
        if not self._hello:
            nonce, mine = secrets.token_bytes(_NONCE), _digest(self._me.id)
            parts = (self._me.secret, self._peer, mine, data, nonce)
            self._expected = _mac(b"server", *parts)
            self._hello = nonce + mine + _mac(b"client", *parts)
            self.needs = _DIGEST
            return self._hello
        if not hmac.compare_digest(data, self._expected):
            raise Stranger("it does not prove that it is this member and knows the job's secret")
        self.needs = 0
        return b""


class Responder:
    """The server's part of one handshake."""

    def __init__(self, me: Identity) -> None:
        self._me = me
        self.challenge = secrets.token_bytes(_NONCE)
        """The first message."""

    def answer(self, hello: bytes) -> tuple[bytes, bool]:
        """Return the last message, and whether the client has proved that it knows the secret."""
        nonce, theirs, proof = hello[:_NONCE], hello[_NONCE:-_DIGEST], hello[-_DIGEST:]
        parts = (self._me.secret, self._me.id, theirs, self.challenge, nonce)
        if not hmac.compare_digest(proof, _mac(b"client", *parts)):
            return _NO, False
        return _mac(b"server", *parts), True


def connect(
    me: Identity, address: Address, *, seconds: float, check: Callable[[], None] | None = None
) -> socket.socket:
    """Return a connection to that member on which both ends have authenticated.

    A connection that the peer closes during the handshake is opened again, because a server with too many connections
    closes the oldest of those that have not authenticated.

    Args:
        me: This process.
        address: The peer's.
        seconds: Longest time. Afterwards TimeoutError is raised.
        check: Called several times a second while waiting for the peer's messages; may raise to stop.

    Raises:
        Stranger: The process at that address is not this member, or has another secret.
        OSError: It can't be reached.
    """
    until = time.monotonic() + seconds
    while True:
        connection = socket.create_connection(address[:2], timeout=max(min(seconds, _CONNECT_SECONDS), 0.01))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            initiator = Initiator(me, address.id)
            while initiator.needs:
                connection.sendall(initiator.advance(exactly(connection, initiator.needs, until, check)))
            connection.settimeout(seconds)
            return connection
        except ConnectionError:
            connection.close()
            if time.monotonic() + _PAUSE_SECONDS > until:
                raise TimeoutError("it closes the connection before it has authenticated") from None
            time.sleep(_PAUSE_SECONDS)
        except BaseException:
            connection.close()
            raise


def exactly(connection: socket.socket, size: int, until: float, check: Callable[[], None] | None = None) -> bytes:
    """Return the next ``size`` bytes. Raise ConnectionError if the peer closes, TimeoutError at ``until`` (monotonic).

    ``check`` is called several times a second and may raise to stop.
    """
    received = bytearray()
    while len(received) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        connection.settimeout(min(left, _SLICE_SECONDS) if check else left)
        with contextlib.suppress(TimeoutError):
            data = connection.recv(size - len(received))
            if not data:
                raise ConnectionResetError("the peer closed the connection")
            received += data
        if check:
            check()
    return bytes(received)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _mac(label: bytes, secret: bytes, server: str, client: bytes, challenge: bytes, nonce: bytes) -> bytes:
    # All parts but the label have a fixed size, so no two sets of them give the same text.
    return hmac.digest(secret, _LABEL + label + _digest(server) + client + challenge + nonce, "sha256")
