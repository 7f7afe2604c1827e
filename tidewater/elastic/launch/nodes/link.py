"""Connections between the launchers of a worker over several machines.

    gate = Gate(Identity(secret, "3fa9"), host, mailbox)    # on the first machine
    link = call(me, address, Hello(…))                      # on a further one
    link.send(Idle(0)); messages = link.receive()           # when its descriptor can be read

Each connection begins with a handshake (see ``peer.handshake``). The first machine serves the keys at which the
processes of all machines meet, too.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from typing import Any

from tidewater.elastic.addresses import Address, listen
from tidewater.elastic.launch.nodes.messages import Hello, Message, Ping, decode, encode
from tidewater.elastic.peer import handshake, keyvalue
from tidewater.elastic.peer.handshake import Identity, Responder
from tidewater.elastic.peer.keyvalue import Board, Place

_BACKLOG = 128
_MOST_STRANGERS = 128
_STRANGER_SECONDS = 5.0
_CONNECT_SECONDS = 2.0
_SEND_SECONDS = 1.0
"""A message is small: only a machine that doesn't read takes longer, and that one is lost."""
_LAST_SECONDS = 2.0
_MOST_BYTES = 1 << 16


class Mailbox:
    """What threads have for a loop that waits for descriptors."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that can be read when there is something."""
        return self._woken.fileno()

    def put(self, item: Any) -> None:
        """Give something to the loop. Any thread may call this."""
        self._items.put(item)
        with contextlib.suppress(OSError):  # the buffer has a wake-up call already
            self._waker.send(b"!")

    def take(self) -> list[Any]:
        """Return what there is."""
        with contextlib.suppress(OSError):
            self._woken.recv(_MOST_BYTES)
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._items.get_nowait())
        return found


class Link:
    """A connection to another launcher, on which both have authenticated. For one thread."""

    def __init__(self, connection: socket.socket, place: Place | None = None) -> None:
        self._connection, self.place = connection, place
        """``place`` is that of the keys, without a number, in a link to the first machine."""
        connection.settimeout(_SEND_SECONDS)
        self.closed = False
        self.heard_at = self.pinged_at = time.monotonic()
        self._received = bytearray()

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        """Send a message. If that fails, it is closed."""
        try:
            self._connection.sendall(encode(message))
        except OSError:
            self.closed = True

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, when its descriptor can be read."""
        try:
            data = self._connection.recv(_MOST_BYTES)
            self.closed = self.closed or not data
            self.heard_at = time.monotonic()
            *lines, self._received = (self._received + data).split(b"\n")
            return [decode(bytes(line)) for line in lines]
        except TimeoutError:  # there was nothing
            return []
        except (OSError, ValueError):
            self.closed = True
            return []

    def beat(self, now: float, interval: float) -> None:
        """Let the other launcher know that this one is there, if that is due."""
        if now - self.pinged_at >= interval:
            self.pinged_at = now
            self.send(Ping())

    def finish(self) -> None:
        """Close it when the other launcher has had time to read everything."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            until = time.monotonic() + _LAST_SECONDS
            while time.monotonic() < until and self._connection.recv(_MOST_BYTES):
                pass
        self.close()

    def close(self) -> None:
        """Close it."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Gate:
    """Where the other launchers, and the processes of all machines, reach the launcher of the first machine.

    Each launcher that has come is put into ``mailbox``: its ``Hello`` and the ``Link``. It is no ``PeerServer``, since
    that needs torch, which a launcher doesn't import.
    """

    def __init__(self, me: Identity, host: str, mailbox: Mailbox) -> None:
        self._me, self._mailbox = me, mailbox
        self._listener = listen(_BACKLOG)
        self.place = Place(Address(host, int(self._listener.getsockname()[1]), me.id), 0, me.secret)
        """Of the keys, without a number."""
        self._board = Board()
        self._strangers = threading.Semaphore(_MOST_STRANGERS)
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def close(self) -> None:
        """Let no other come."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            self._strangers.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._strangers.release()
                if self._listener.fileno() < 0:
                    return
                time.sleep(0.1)  # no file descriptor is left
                continue
            threading.Thread(target=self._serve, args=[connection], name="gate", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            request = self._greeted(connection)
            if isinstance(request, Hello):
                self._mailbox.put((request, Link(connection)))
                return
            if request is not None:
                keyvalue.serve(connection, self._board.at(request))
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            pass
        connection.close()

    def _greeted(self, connection: socket.socket) -> Hello | int | None:
        """Return what a client wants that has authenticated: to be a machine, or the keys of a meeting."""
        try:
            until, responder = time.monotonic() + _STRANGER_SECONDS, Responder(self._me)
            connection.settimeout(_STRANGER_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(responder.challenge)
            proof, known = responder.answer(handshake.exactly(connection, handshake.HELLO, until))
            connection.sendall(proof)
            if not known:
                return None
            line = bytearray()
            while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
                line += handshake.exactly(connection, 1, until)  # what follows is for the keys
        finally:
            self._strangers.release()
        meeting = dict(json.loads(line)).get("meet")
        if meeting is not None:
            return int(meeting)
        message = decode(bytes(line))
        return message if isinstance(message, Hello) else None


def answers(secret: bytes, address: Address) -> bool:
    """Return whether a launcher of a first machine is there."""
    try:
        handshake.connect(Identity(secret), address, seconds=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def call(secret: bytes, address: Address, hello: Hello) -> Link:
    """Return a link to the launcher of the first machine. Raise OSError."""
    connection = handshake.connect(Identity(secret), address, seconds=_CONNECT_SECONDS)
    connection.sendall(encode(hello))
    return Link(connection, Place(address, 0, secret))
