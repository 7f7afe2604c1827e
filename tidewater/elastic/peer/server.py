"""A small TCP server in every worker, and its clients: it serves the outline of the state and answers pings.

    server = PeerServer(Identity(secret, me.id), traits); server.start()     # its port goes into the member record
    server.offer(uuid, outline); …; server.withdraw()                # in the process that has the state
    outline = fetch(me, address, uuid, wanted, deadline)             # in a process that needs it
    look(me, address); ask_traits(me, address)                       # in any process, at any time

It is independent of the process group, so it is the same for gloo and NCCL. Each connection begins with a handshake
(see ``handshake``); only then are requests read. A request is a line of JSON. One thread answers pings, takes votes and
does nothing else. So a process that is busy with a long step answers; a frozen process does not, although its kernel
still accepts connections. Other requests are answered by one thread each.

A client that can't authenticate can only open connections. Their number and time are limited: at the limit a new
connection replaces the oldest one of the address that has most of them.

A transfer that breaks off, stalls or does not match its checksum raises GroupBroken, because the remedy is the same: a
new generation. If a state can't be sent or read, another generation has the same: the process that needs it ends, and
the others continue.
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
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tidewater.elastic.addresses import Address, listen
from tidewater.elastic.errors import ConfigError, GroupBroken, RecordError, Stranger
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.membership.traits import Traits
from tidewater.elastic.peer import handshake, keyvalue, outline, votes
from tidewater.elastic.peer.handshake import Identity, Responder
from tidewater.elastic.peer.outline import Outline

PING = b'{"ping": true}\n'
PONG = b"pong\n"
_YES, _NO = b"1", b"0"

_CONNECT_SECONDS = 0.5
_STALL_SECONDS = 3.0
_WAIT_SECONDS = 0.5
"""Interval at which a sender without an offer tells the receiver that it is alive."""
_REQUEST_SECONDS = 600.0
_IDLE_SECONDS = 60.0
_BACKLOG = 512
_MOST_READ, _MOST_LINE = 4096, 1 << 22  # the votes of 64 members that each can't reach hundreds of others
_MOST_TRAITS = 1 << 26
MOST_STRANGERS = 128
"""Connections that have not authenticated. The most file descriptors of a process are often 1024."""
STRANGER_SECONDS = 5.0
"""Time to authenticate."""
_MOST_PEERS = 4096
"""As many ranks as the numbers of a generation's seal are exact for (see ``group.ballot``)."""
_MOST_CALLERS = 2 * _MOST_PEERS
"""Connections that have authenticated and wait for requests: each peer has one for its pings."""
_MOST_REQUESTS = 2 * _MOST_PEERS
"""Requests that are answered by a thread at the same time. While it has rank 0, each peer has one to meet."""
GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""Errors of a connection attempt when nothing listens: the process has ended."""


@dataclass(frozen=True)
class _Offer:
    uuid: int
    text: bytes
    """The outline; empty if there is none."""
    refusal: str = ""
    """Why there is none."""


@dataclass
class _Caller:
    """A connection; its next request has not arrived completely yet."""

    host: str
    responder: Responder | None
    """None when it has authenticated."""
    received: bytearray = field(default_factory=bytearray)
    heard_at: float = field(default_factory=time.monotonic)
    """Monotonic time of its last request, or of the beginning if it has not authenticated."""


class PeerServer:
    """Answers peers: pings in one thread, other requests in one thread each."""

    def __init__(self, identity: Identity, traits: Traits | None = None) -> None:
        self.identity = identity
        """This server and its clients authenticate to each other with it."""
        self.board = keyvalue.Board()
        """The keys of the generations in which this process has rank 0."""
        self.traits = traits
        """What it answers when a peer asks what must be equal."""
        self.waits: Callable[[], bool] = lambda: True
        """What it answers when a peer asks whether this process waits for the others."""
        self.given_up: Callable[[int], None] = lambda uuid: None
        """Called with the number of a generation that another process of this worker has given up; see ``give_up``."""
        self.hear: Callable[[Mapping[str, str]], Collection[str] | None] = lambda found: None
        self.pass_on: Callable[[Mapping[str, str], int], Collection[str]] = lambda found, turn: ()
        """What takes the votes of peers, quickly, and what passes them on if that is None: see ``membership.votes``."""
        self._listener = listen(_BACKLOG)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._offer: _Offer | None = None
        self._condition = threading.Condition()
        self._strangers: dict[socket.socket, _Caller] = {}
        self._callers: dict[socket.socket, _Caller] = {}
        self._requests: set[socket.socket] = set()

    def start(self) -> None:
        """Start answering."""
        os.register_at_fork(after_in_child=self.close)
        threading.Thread(target=self._answer, name="peer-server", daemon=True).start()

    def close(self) -> None:
        """Close the port and all connections, as the end of the process does."""
        # A data loader's process must not keep its parent's sockets open: the parent would seem alive after its end.
        # Not through the selector: it is shared with the parent, which still needs its registrations.
        for connection in [self._listener, *self._strangers, *self._callers, *self._requests]:
            connection.close()

    def offer(self, uuid: int, state: Outline) -> None:
        """Serve the outline of the state to the members of that generation, until ``withdraw``."""
        self._set(_Offer(uuid, state.text))

    def refuse(self, uuid: int, reason: str) -> None:
        """Tell the members of that generation that the state can't be sent to them, until ``withdraw``."""
        self._set(_Offer(uuid, b"", reason))

    def _set(self, offer: _Offer) -> None:
        with self._condition:
            self._offer = offer
            self._condition.notify_all()

    def withdraw(self) -> None:
        """Stop serving the outline. Safe to call twice."""
        with self._condition:
            self._offer = None

    def _answer(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while self._listener.fileno() >= 0:
                for key, _ in selector.select(STRANGER_SECONDS / 5 if self._strangers else _IDLE_SECONDS):
                    connection = key.fileobj
                    if connection is self._listener:
                        self._accept(selector)
                    elif isinstance(connection, socket.socket) and connection in self._strangers:
                        self._authenticate(selector, connection)
                    elif isinstance(connection, socket.socket) and connection in self._callers:
                        self._read(selector, connection)
                self._sweep(selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        if len(self._strangers) >= MOST_STRANGERS:
            self._make_room(selector)
        try:
            connection, (host, *_) = self._listener.accept()
        except OSError:  # the client has disconnected, or no file descriptor is left; in that case avoid a busy loop
            if not self._make_room(selector):
                time.sleep(0.01)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        responder = Responder(self.identity)
        self._strangers[connection] = _Caller(host, responder)
        selector.register(connection, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            connection.send(responder.challenge)

    def _make_room(self, selector: selectors.BaseSelector) -> bool:
        """Close the oldest stranger of the address that has most of them. Return False if there is none."""
        if not self._strangers:
            return False
        ((most, _),) = Counter(caller.host for caller in self._strangers.values()).most_common(1)
        oldest = next(each for each, caller in self._strangers.items() if caller.host == most)
        self._forget(selector, oldest).close()
        return True

    def _authenticate(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        caller = self._strangers[connection]
        try:
            data = connection.recv(handshake.HELLO - len(caller.received))
            caller.received += data
            if not data:
                raise ConnectionResetError
            if caller.responder is None or len(caller.received) < handshake.HELLO:
                return
            proof, known = caller.responder.answer(bytes(caller.received))
            connection.send(proof)
            if not known:
                raise Stranger
        except OSError:
            self._forget(selector, connection).close()
            return
        del self._strangers[connection]
        if len(self._callers) >= _MOST_CALLERS:
            idle = min(self._callers, key=lambda each: self._callers[each].heard_at)
            self._forget(selector, idle).close()
        self._callers[connection] = _Caller(caller.host, None)

    def _read(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        caller = self._callers[connection]
        try:
            seen = connection.recv(_MOST_READ, socket.MSG_PEEK)
            data = connection.recv(seen.find(b"\n") + 1 or len(seen))  # what follows may be for another thread
        except OSError:
            data = b""
        caller.heard_at = time.monotonic()
        caller.received += data
        if not data or len(caller.received) > _MOST_LINE:
            self._forget(selector, connection).close()
        elif data.endswith(b"\n"):
            line, caller.received = bytes(caller.received), bytearray()
            self._reply(selector, connection, line)

    def _reply(self, selector: selectors.BaseSelector, connection: socket.socket, line: bytes) -> None:
        try:
            request = dict(json.loads(line))
            if "ping" in request:
                connection.send(PONG)
                return
            if "votes" in request and (taken := self.hear(said := votes.of(request))) is not None:
                connection.send(votes.answers(said, taken))
                return
            if len(self._requests) >= _MOST_REQUESTS:
                raise OSError("too many requests at the same time")
            self._requests.add(self._forget(selector, connection))
            threading.Thread(target=self._send, args=(connection, request), name="peer-send", daemon=True).start()
        except (OSError, ValueError, TypeError, RuntimeError):  # also if it is nested too deep, or no thread can start
            self._requests.discard(self._forget(selector, connection))
            connection.close()

    def _sweep(self, selector: selectors.BaseSelector) -> None:
        """Close what does not authenticate in time, and what a peer left open when it was cut off or powered off."""
        now = time.monotonic()
        for callers, seconds in ((self._strangers, STRANGER_SECONDS), (self._callers, _IDLE_SECONDS)):
            for connection in [each for each, caller in callers.items() if caller.heard_at < now - seconds]:
                self._forget(selector, connection).close()

    def _forget(self, selector: selectors.BaseSelector, connection: socket.socket) -> socket.socket:
        if self._callers.pop(connection, None) or self._strangers.pop(connection, None):
            selector.unregister(connection)
        return connection

    def _send(self, connection: socket.socket, request: dict[str, object]) -> None:
        try:
            with connection, contextlib.suppress(OSError, ValueError, TypeError, IndexError):
                connection.settimeout(_IDLE_SECONDS)
                if "traits" in request and self.traits:
                    connection.sendall(self.traits.to_json() + b"\n")
                elif "waits" in request:
                    connection.sendall(_YES if self.waits() else _NO)
                elif "give_up" in request:
                    self.given_up(int(str(request["give_up"])))
                elif "votes" in request:
                    said = votes.of(request)
                    taken = self.pass_on(said, int(str(request.get("turn"))))
                    connection.sendall(votes.answers(said, taken))
                elif "meet" in request:
                    keyvalue.serve(connection, self.board.at(int(str(request["meet"]))))
                elif "state" in request:
                    self._send_outline(connection, int(str(request["state"])))
        finally:
            self._requests.discard(connection)

    def _send_outline(self, connection: socket.socket, uuid: int) -> None:
        offer = self._wait_for_offer(connection, uuid)
        if offer.refusal:
            outline.send_refusal(connection, offer.refusal)
        else:
            outline.send(connection, offer.text)

    def _wait_for_offer(self, connection: socket.socket, uuid: int) -> _Offer:
        until = time.monotonic() + _REQUEST_SECONDS
        while time.monotonic() < until:
            with self._condition:
                self._condition.wait_for(lambda: self._offer is not None and self._offer.uuid == uuid, _WAIT_SECONDS)
                if self._offer is not None and self._offer.uuid == uuid:
                    return self._offer
            outline.send_wait(connection)
        raise OSError(f"no state was offered to generation {uuid}")


def fetch(me: Identity, address: Address, uuid: int, wanted: Callable[[], None], deadline: float) -> Outline:
    """Return the outline of the state that the peer offers to generation ``uuid``.

    Args:
        me: This process.
        address: The peer's.
        uuid: Uuid of the generation.
        wanted: Called several times a second; raises GroupBroken when the generation is not wanted any more.
        deadline: Monotonic time after which GroupBroken is raised.

    Raise GroupBroken if another generation may succeed; ConfigError if the peer can't send the state, with its reason;
    RecordError if it is of another version of the code.
    """

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise OSError("it did not arrive in time")

    try:
        with _request(me, address, {"state": uuid}, _STALL_SECONDS, check) as connection:
            return Outline.of_text(outline.receive(connection, check, _STALL_SECONDS))
    except OSError as error:
        raise GroupBroken(f"the state could not be fetched from {address}: {error}") from error


def ask_traits(me: Identity, address: Address, *, seconds: float = 2.0) -> Traits | None:
    """Return the traits of a peer; None if it does not answer within ``seconds``. Raise Stranger if it is another
    process, or has another secret."""
    until = time.monotonic() + seconds
    try:
        with _request(me, address, {"traits": True}, seconds) as connection:
            received = bytearray()
            while not received.endswith(b"\n"):
                connection.settimeout(max(until - time.monotonic(), 0.001))
                data = connection.recv(_MOST_READ)
                if not data or len(received) > _MOST_TRAITS or time.monotonic() > until:
                    return None
                received += data
            return Traits.from_json(bytes(received))
    except Stranger:
        raise
    except (OSError, ValueError, ConfigError, RecordError):
        return None


def ask_waits(me: Identity, address: Address, *, seconds: float = 2.0) -> bool | None:
    """Return whether a peer waits for the others; None if it does not answer within ``seconds``."""
    try:
        with _request(me, address, {"waits": True}, seconds) as connection:
            return handshake.exactly(connection, len(_YES), time.monotonic() + seconds) == _YES
    except OSError:
        return None


def give_up(me: Identity, addresses: Sequence[Address], uuid: int) -> None:
    """Let these processes know, without a wait for them, that another one of their worker gives the generation up."""

    def send(address: Address) -> None:
        with contextlib.suppress(OSError), _request(me, address, {"give_up": uuid}, _STALL_SECONDS):
            pass

    for each in addresses:
        threading.Thread(target=send, args=[each], name="give-up", daemon=True).start()


def look(me: Identity, address: Address, *, seconds: float = _CONNECT_SECONDS) -> Sign:
    """Ping a member's process once. Return the result."""
    try:
        with handshake.connect(me, address, seconds=seconds) as connection:
            connection.sendall(PING)
            handshake.exactly(connection, len(PONG), time.monotonic() + seconds)
    except (ConnectionError, Stranger):  # nothing, or another process, listens at its port
        return Sign.ENDED
    except OSError:  # includes EHOSTUNREACH, which an interrupted network causes
        return Sign.SILENT
    return Sign.ANSWERS


def is_gone(address: Address) -> bool:
    """Return whether nothing listens at the address, so the process has ended. A silent peer is not gone."""
    try:
        with socket.create_connection(address[:2], timeout=_CONNECT_SECONDS):
            return False
    except OSError as error:
        return error.errno in GONE


def _request(
    me: Identity,
    address: Address,
    request: dict[str, object],
    seconds: float,
    check: Callable[[], None] | None = None,
) -> socket.socket:
    connection = handshake.connect(me, address, seconds=seconds, check=check)
    connection.sendall(json.dumps(request).encode() + b"\n")
    return connection
