"""A small TCP server in every worker, and its clients: it serves the training state and answers pings.

    server = PeerServer(traits, member_id=me.id); server.start()     # its port goes into the member record
    server.offer(uuid, tree); …; server.withdraw()                   # in the process that has the state
    tree = fetch(address, uuid, wanted, deadline)                    # in a process that needs it
    look(address, member_id); ask_traits(address)                    # in any process, at any time

It is independent of the process group. So it is the same for gloo and NCCL, and a large state does not delay
collectives. A request is a line of JSON. One thread answers pings and does nothing else. So a process that is busy with
a long step answers; a frozen process does not, although its kernel still accepts connections. State and traits are sent
by one thread per request.

A transfer that breaks off, stalls or does not match its checksums raises GroupBroken, because the remedy is the same: a
new generation. The tree is read in place, not copied, so it must not change from ``offer`` to ``withdraw``.
``withdraw`` ends running transfers. A receiver never accepts a state that was withdrawn during the transfer.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.errors import ConfigError, GroupBroken, RecordError
from trainer.membership.missing import Sign
from trainer.membership.traits import Traits
from trainer.peer import transfer
from trainer.tree import Tree

PONG = b"pong\n"

_CONNECT_SECONDS = 0.5
_STALL_SECONDS = 3.0
_WAIT_SECONDS = 0.5
"""Interval at which a sender without an offer tells the receiver that it is alive."""
_REQUEST_SECONDS = 600.0
_IDLE_SECONDS = 60.0
_MOST_REQUEST = 4096
GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""Errors of a connection attempt when nothing listens: the process has ended."""


@dataclass(frozen=True)
class _Offer:
    uuid: int
    parcel: transfer.Parcel


@dataclass
class _Caller:
    """A connection whose next request has not arrived completely yet."""

    received: bytearray = field(default_factory=bytearray)
    heard_at: float = field(default_factory=time.monotonic)


class PeerServer:
    """Answers peers: pings in one thread, other requests in one thread each."""

    def __init__(self, traits: Traits | None = None, *, member_id: str = "") -> None:
        self._traits, self._member_id = traits, member_id
        self._listener = socket.create_server(("", 0), backlog=64)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._offer: _Offer | None = None
        self._condition = threading.Condition()
        self._callers: dict[socket.socket, _Caller] = {}
        self._transfers: set[socket.socket] = set()

    def start(self) -> None:
        """Start answering."""
        os.register_at_fork(after_in_child=self._close_in_child)
        threading.Thread(target=self._answer, name="peer-server", daemon=True).start()

    def offer(self, uuid: int, tree: Tree) -> None:
        """Serve ``tree`` to the members of that generation. It must not change until ``withdraw``.

        Raise ConfigError if the tree contains something that can't be sent.
        """
        offer = _Offer(uuid, transfer.Parcel.of(tree))
        with self._condition:
            self._offer = offer
            self._condition.notify_all()

    def withdraw(self) -> None:
        """Stop serving the state and release it. Running transfers fail. Safe to call twice."""
        with self._condition:
            self._offer = None
            for connection in self._transfers:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _close_in_child(self) -> None:
        # A data loader's process must not keep its parent's sockets open: the parent would seem alive after its end.
        # Not through the selector: it is shared with the parent, which still needs its registrations.
        for connection in [self._listener, *self._callers, *self._transfers]:
            connection.close()

    def _answer(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(_IDLE_SECONDS):
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket):
                        self._read(selector, key.fileobj)
                self._sweep(selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the client has disconnected, or no file descriptor is left; in that case avoid a busy loop
            time.sleep(0.01)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._callers[connection] = _Caller()
        selector.register(connection, selectors.EVENT_READ)

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        caller = self._callers[connection]
        try:
            data = connection.recv(_MOST_REQUEST)
        except OSError:
            data = b""
        caller.heard_at = time.monotonic()
        caller.received += data
        line, newline, rest = caller.received.partition(b"\n")
        if not data or len(caller.received) > _MOST_REQUEST:
            self._forget(selector, connection).close()
        elif newline:
            caller.received = rest
            self._reply(selector, connection, bytes(line))

    def _reply(self, selector: selectors.BaseSelector, connection: socket.socket, line: bytes) -> None:
        try:
            request = dict(json.loads(line))
            if "ping" not in request:
                self._forget(selector, connection)
                threading.Thread(target=self._send, args=(connection, request), name="peer-send", daemon=True).start()
            elif request["ping"] in ("", self._member_id) or not self._member_id:
                connection.send(PONG)
            else:  # the ping is for another process that has ended and whose port this one has now
                raise ValueError(request["ping"])
        except (OSError, ValueError, TypeError):
            self._forget(selector, connection).close()

    def _sweep(self, selector: selectors.BaseSelector) -> None:
        """Close connections that a peer left open when it was cut off or powered off."""
        oldest = time.monotonic() - _IDLE_SECONDS
        for connection in [each for each, caller in self._callers.items() if caller.heard_at < oldest]:
            self._forget(selector, connection).close()

    def _forget(self, selector: selectors.BaseSelector, connection: socket.socket) -> socket.socket:
        if self._callers.pop(connection, None):
            selector.unregister(connection)
        return connection

    def _send(self, connection: socket.socket, request: dict[str, object]) -> None:
        with connection, contextlib.suppress(OSError, ValueError, TypeError):
            connection.settimeout(_IDLE_SECONDS)
            if "traits" in request and self._traits:
                connection.sendall(self._traits.to_json() + b"\n")
            elif "state" in request:
                self._send_state(connection, int(str(request["state"])))

    def _send_state(self, connection: socket.socket, uuid: int) -> None:
        offer = self._wait_for_offer(connection, uuid)
        with self._condition:
            if self._offer is not offer:
                return
            self._transfers.add(connection)
        try:
            transfer.send(connection, offer.parcel, lambda: self._offer is offer)
        finally:
            with self._condition:
                self._transfers.discard(connection)

    def _wait_for_offer(self, connection: socket.socket, uuid: int) -> _Offer:
        until = time.monotonic() + _REQUEST_SECONDS
        while time.monotonic() < until:
            with self._condition:
                self._condition.wait_for(lambda: self._offer is not None and self._offer.uuid == uuid, _WAIT_SECONDS)
                if self._offer is not None and self._offer.uuid == uuid:
                    return self._offer
            transfer.send_wait(connection)
        raise OSError(f"no state was offered to generation {uuid}")


def fetch(address: tuple[str, int], uuid: int, wanted: Callable[[], None], deadline: float) -> Tree:
    """Return the state that the peer offers to generation ``uuid``; its tensors are on the CPU.

    Args:
        address: Host and port of the peer's server.
        uuid: Uuid of the generation.
        wanted: Called several times a second; raises GroupBroken when the generation is not wanted any more.
        deadline: Monotonic time after which GroupBroken is raised.
    """

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise OSError("it did not arrive in time")

    try:
        with _request(address, {"state": uuid}, _STALL_SECONDS) as connection:
            return transfer.receive(connection, check, _STALL_SECONDS)
    except (OSError, ValueError, KeyError, RecordError) as error:
        raise GroupBroken(f"the state could not be fetched from {address[0]}:{address[1]}: {error}") from error


def ask_traits(address: tuple[str, int], *, seconds: float = 2.0) -> Traits | None:
    """Return the traits of a peer; None if it does not answer within ``seconds``."""
    until = time.monotonic() + seconds
    try:
        with _request(address, {"traits": True}, seconds) as connection, connection.makefile("rb") as answer:
            received = bytearray()
            while not received.endswith(b"\n"):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                data = answer.read1()
                if not data:
                    return None
                received += data
            return Traits.from_json(bytes(received))
    except (OSError, ValueError, ConfigError, RecordError):
        return None


def look(address: tuple[str, int], member_id: str, *, seconds: float = _CONNECT_SECONDS) -> Sign:
    """Ping a member's process once. Return the result."""
    try:
        with socket.create_connection(address, timeout=seconds) as connection:
            connection.sendall(ping(member_id))
            answer = connection.recv(len(PONG))
    except (ConnectionRefusedError, ConnectionResetError):
        return Sign.ENDED
    except OSError:  # includes EHOSTUNREACH, which an interrupted network causes
        return Sign.SILENT
    return Sign.ANSWERS if answer == PONG else Sign.ENDED  # closed by another process that has the port now


def ping(member_id: str) -> bytes:
    """Return a request that only the server of that member answers with PONG."""
    return json.dumps({"ping": member_id}).encode() + b"\n"


def is_gone(address: tuple[str, int]) -> bool:
    """Return whether nothing listens at the address, so the process has ended. A silent peer is not gone."""
    try:
        with socket.create_connection(address, timeout=_CONNECT_SECONDS):
            return False
    except OSError as error:
        return error.errno in GONE


def _request(address: tuple[str, int], request: dict[str, object], seconds: float) -> socket.socket:
    connection = socket.create_connection(address, timeout=seconds)
    connection.sendall(json.dumps(request).encode() + b"\n")
    return connection
