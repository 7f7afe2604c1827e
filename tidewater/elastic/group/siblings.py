"""The processes of one pod, one for each of its GPUs, or those that divide a model, give up a generation together.

    siblings = Siblings.of(os.environ)                  # None if this process is the only one
    siblings.listen(lambda uuid: group.interrupt(…))    # called in another thread
    siblings.give_up(uuid)

When NCCL aborts a communicator it frees memory that the kernels of other GPUs of the machine may still read
(NVIDIA/nccl#863). The others would learn of it from etcd some ten milliseconds later; this takes less than one.

On one machine a process sends datagrams to sockets in the pod's network namespace that are named for its launcher. A
datagram that is lost, or comes from another process, does no harm: a generation that one of its members has given up
ends anyway, and only a member knows its number. Processes on other machines learn of it through their peer servers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence

from tidewater.contract import env
from tidewater.elastic.addresses import Address
from tidewater.elastic.peer import server
from tidewater.elastic.peer.handshake import Identity

_BYTES = 8


class Siblings:
    """The other processes of the launcher ``name``; this one has the number ``rank``. Raise OSError if it is taken.

    ``let_know`` is called with the number of each generation that this process gives up, and returns at once.
    """

    def __init__(self, name: str, rank: int, size: int, let_know: Callable[[int], None] = lambda uuid: None) -> None:
        self._others = [_address(name, other) for other in range(size) if other != rank]
        self._let_know = let_know
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(_address(name, rank))

    @staticmethod
    def of(environment: Mapping[str, str]) -> Siblings | None:
        """Return the siblings of this process as its launcher's variables say."""
        size = int(environment.get(env.LOCAL_SIZE, "1"))
        if size < 2 or env.LOCAL_RANK not in environment:
            return None
        with contextlib.suppress(OSError):  # the process before this one has not quite ended: the others have etcd
            return Siblings(str(os.getppid()), int(environment[env.LOCAL_RANK]), size)
        return None

    @staticmethod
    def of_parts(name: str, me: Identity, index: int, places: Sequence[Address]) -> Siblings:
        """Return those of the process ``index`` that divides a model with others; ``places`` has all peer servers."""
        far = [place for place in places if place.host != places[index].host]
        return Siblings(name, index, len(places), lambda uuid: server.give_up(me, far, uuid))

    def listen(self, given_up: Callable[[int], None]) -> None:
        """Call ``given_up`` with the number of each generation that a sibling gives up, in a thread."""
        threading.Thread(target=self._listen, args=[given_up], name="siblings", daemon=True).start()

    def _listen(self, given_up: Callable[[int], None]) -> None:
        with contextlib.suppress(OSError):  # closed
            while message := self._socket.recv(_BYTES):
                given_up(int.from_bytes(message))

    def give_up(self, uuid: int) -> None:
        """Let the siblings know that this process gives up the generation."""
        for other in self._others:
            with contextlib.suppress(OSError):  # it has ended, or has not begun
                self._socket.sendto(uuid.to_bytes(_BYTES), socket.MSG_DONTWAIT, other)
        self._let_know(uuid)

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _address(name: str, rank: int) -> str:
    return f"\0tidewater-{name}-{rank}"  # abstract: it ends with the process
