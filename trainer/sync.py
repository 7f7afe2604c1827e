"""State from peer to peer, and whether a peer's process still exists: a small TCP server in every worker.

    server = PeerServer(); server.start()         # its port goes into the member record
    server.offer(uuid, payload)                   # in the process that has the state
    payload = fetch(host, port, uuid, deadline)   # in the one that needs it

It works beside the process group, so it is the same for gloo and NCCL, and a large state does not hold up
collectives. The payload is framed by its length and its sha256; a transfer that breaks off or does not match raises
GroupBroken, since its remedy is the same: a new generation.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable

from trainer.errors import GroupBroken

_CHUNK = 1 << 20
_CONNECT_SECONDS = 0.5
_GONE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)


class PeerServer:
    """Answers peers from threads of its own: one that accepts, one per transfer."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._offer: tuple[int, bytes] | None = None
        self._condition = threading.Condition()

    def start(self) -> None:
        """Start answering."""
        threading.Thread(target=self._accept, name="peer-server", daemon=True).start()

    def offer(self, uuid: int, payload: bytes) -> None:
        """Serve ``payload`` to the members of that generation until ``withdraw``."""
        with self._condition:
            self._offer = (uuid, payload)
            self._condition.notify_all()

    def withdraw(self) -> None:
        """Stop serving state, and let go of its memory."""
        with self._condition:
            self._offer = None

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="peer-transfer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, KeyError):
            connection.settimeout(60)
            with connection.makefile("rb") as stream:
                request = stream.readline(4096)
            if not request:  # a probe: it only wanted to know whether somebody listens
                return
            payload = self._wait_for_offer(int(json.loads(request)["uuid"]))
            header = {"size": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
            connection.sendall(json.dumps(header).encode() + b"\n")
            connection.sendall(payload)

    def _wait_for_offer(self, uuid: int) -> bytes:
        with self._condition:
            self._condition.wait_for(lambda: self._offer is not None and self._offer[0] == uuid, timeout=60)
            if self._offer is None or self._offer[0] != uuid:
                raise KeyError(uuid)
            return self._offer[1]


def fetch(address: tuple[str, int], uuid: int, wanted: Callable[[], None], deadline: float) -> bytes:
    """The state that the peer offers to generation ``uuid``.

    Args:
        address: host and port of the peer's server.
        wanted: raises GroupBroken once the generation is not wanted any more; asked several times a second.
        deadline: monotonic; then GroupBroken is raised.
    """
    try:
        with socket.create_connection(address, timeout=_CONNECT_SECONDS) as connection:
            connection.settimeout(0.2)
            connection.sendall(json.dumps({"uuid": uuid}).encode() + b"\n")
            received = bytearray()
            header = None
            while header is None or len(received) < header["size"]:
                chunk = _receive(connection, wanted, deadline)
                received += chunk
                if header is None and b"\n" in received:
                    line, _, rest = bytes(received).partition(b"\n")
                    header, received = json.loads(line), bytearray(rest)
    except (OSError, ValueError) as error:
        raise GroupBroken(f"the state could not be fetched from {address[0]}:{address[1]}: {error}") from error
    if hashlib.sha256(received).hexdigest() != header["sha256"]:
        raise GroupBroken(f"the state from {address[0]}:{address[1]} does not match its checksum")
    return bytes(received)


def _receive(connection: socket.socket, wanted: Callable[[], None], deadline: float) -> bytes:
    while True:
        wanted()
        if time.monotonic() > deadline:
            raise GroupBroken("the peer with the state did not send it in time")
        with contextlib.suppress(TimeoutError):
            chunk = connection.recv(_CHUNK)
            if not chunk:
                raise OSError("the peer closed the connection")
            return chunk


def is_gone(address: tuple[str, int]) -> bool:
    """Whether nothing listens at a peer's server: its process has ended. A peer that does not answer is not gone."""
    try:
        with socket.create_connection(address, timeout=_CONNECT_SECONDS):
            return False
    except OSError as error:
        return error.errno in _GONE
