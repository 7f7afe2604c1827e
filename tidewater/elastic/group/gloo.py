"""gloo: sums on CPUs.

A work of gloo is done when its result is there, and it reports its own failure. But gloo ends a collective only when it
times out or a connection ends (see ``connections``), so an abort ends the connections. Rarely gloo misses even that, if
it is sending (it goes on waiting in UnboundBuffer::waitSend). Such a collective occupies one of the two threads of its
group, so the next generation gets another group; and the destructor of a group waits for its collectives, so a group is
not destroyed before they have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tidewater.elastic.group import backend
from tidewater.elastic.group.backend import Backend
from tidewater.elastic.group.rendezvous import MeetingStore, SwitchedStore, exchange

_SOON = timedelta(milliseconds=50)
_CLOSE_SECONDS = 2.0
"""Longest wait for pending collectives to fail after their connections were ended."""
_CLOSE_POLL_SECONDS = 0.005
_CONNECT_SECONDS = 0.6
"""Connection time-out for gloo. gloo waits five times as long for its peers' connections and can't be interrupted.
Three seconds allow two retries of a lost SYN."""
End = tuple[str, int]
"""One end of a connection: address and port, written in the same way on all machines."""

_DESCRIPTORS = Path("/proc/self/fd")


class Gloo(Backend):
    """What both ways to form the group have in common."""

    name = "gloo"

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self.connect_seconds = self.group_seconds = min(timeout_seconds, _CONNECT_SECONDS)
        self._waits = False
        self._in_flight: list[Any] = []
        """Collectives that have begun and are not known to have succeeded."""
        self._listens: frozenset[End] = frozenset()
        """The addresses at which gloo listens."""
        self._ends: frozenset[End] = frozenset()
        """The addresses of all ranks: each connection of the generation has one of them."""
        self._is_connected = self._is_severed = False
        """Whether all connections of the generation have been made, and whether they have been ended then."""
        self._size = 1
        """Ranks of the generation."""
        self._former: list[tuple[dist.ProcessGroup, list[Any]]] = []
        """Groups that aren't used any more, and their collectives that had not ended then."""

    def leave(self) -> None:
        """Forget the collectives that have ended."""
        self._is_connected = self._is_severed = False
        self._in_flight = _unended(self._in_flight)

    def prepare(self) -> None:
        """Return: a CPU does not fail by itself."""

    def begin(self, tensor: torch.Tensor, seconds: float) -> Any:
        """Start a sum, and keep its work until it has ended. A rank that is alone has the sum: it starts none."""
        return None if self._size == 1 else self._kept(super().begin(tensor, seconds))

    def broadcast(self, tensor: torch.Tensor, source: int, seconds: float) -> Any:
        """Start a broadcast, and keep its work until it has ended."""
        return self._kept(super().broadcast(tensor, source, seconds))

    def _kept(self, work: Any) -> Any:
        self._in_flight.append(work)
        return work

    def finish(self, works: Sequence[Any], check: Callable[[], None], deadline: float) -> bool:
        """Wait in slices of 50 ms that can't be interrupted: most collectives take no longer than one."""
        began, self._waits = time.monotonic(), True
        try:
            for work in filter(None, works):
                if not _done_soon(work):
                    # Not by a callback: it would run in gloo's thread, possibly after the end of the interpreter.
                    while not work.is_completed():
                        check()
                        if time.monotonic() > deadline:
                            return False
                        _done_soon(work)
                    work.wait()  # raises if it has failed
                self._in_flight.remove(work)
            return True
        finally:
            self._waits = False
            self.waited_seconds += time.monotonic() - began

    def waits(self) -> bool:
        """Return whether ``finish`` is running: on CPUs everything before it has been computed."""
        return self._waits

    def error(self) -> str:
        """Return nothing: each work reports its own failure."""
        return ""

    def abort(self) -> None:
        """End the connections. The collectives that use them fail at once."""
        if not self._is_severed:
            all_are_there = self._is_connected  # before: one that is made meanwhile may not be found
            found = sever(self._ends)
            self._is_severed = all_are_there and found > 0

    def ended(self, works: Sequence[Any]) -> bool:
        """Return whether all have ended: their connections are closed, and gloo has seen it."""
        return all(work.is_completed() for work in works)

    def close(self) -> None:
        """Wait for the end of pending collectives.

        gloo's threads release Python objects when a collective ends. If that happens while the interpreter ends, the
        process aborts and its exit code is lost. The end of the process must not wait for those that last, either.
        """
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self.left_in_flight() and time.monotonic() < deadline:
            time.sleep(_CLOSE_POLL_SECONDS)
        if self.left_in_flight():
            for group in (*(group for group, _ in self._former), self.pg):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # it is never destroyed

    def left_in_flight(self) -> list[Any]:
        """Return the works that have begun and not ended."""
        return _unended([*self._in_flight, *itertools.chain.from_iterable(works for _, works in self._former)])

    def _set_aside(self) -> bool:
        """Keep the group until its collectives have ended, if some have not. Return whether that is so."""
        self._former = [(group, works) for group, works in self._former if _unended(works)]
        if left := _unended(self._in_flight):
            self._former.append((self.pg, left))
            self._in_flight = []
        return bool(left)

    def _exchange(self, store: MeetingStore, rank: int, size: int, word: str = "") -> list[str]:
        """Exchange the addresses of gloo and ``word`` with all peers, in one round. Return the words by rank."""
        self._size = size
        mine = json.dumps([word, *sorted(self._listens)])
        told = [json.loads(each) for each in exchange(store, "words", rank, size, mine)]
        self._ends = frozenset((host, port) for _, *ends in told for host, port in ends)
        return [word for word, *_ in told]

    def _open(self, store: Any, rank: int, size: int, *, reconfigurable: bool = False) -> dist.ProcessGroup:
        before = listening()
        group = super()._open(store, rank, size, reconfigurable=reconfigurable)
        self._listens = listening() - before
        return group


class Reconfigured(Gloo):
    """One ProcessGroup object, to which torch's ``_reconfigure`` gives new peers, as long as its collectives end."""

    def __init__(self, device: torch.device, timeout_seconds: float) -> None:
        super().__init__(device, timeout_seconds)
        self._make()

    def _make(self) -> None:
        self._store = SwitchedStore()
        self.pg = self._open(self._store, 0, 1, reconfigurable=True)

    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        """Give the group its new peers."""
        if self._set_aside():
            self._make()
        self._store.current = store
        handles = self._exchange(store, rank, size, backend.handle(self.pg))
        backend.reconfigure(self.pg, uuid, handles, self.connect_seconds)
        self._is_connected = True


class Restarted(Gloo):
    """A new process group for every generation."""

    def connect(self, uuid: int, store: MeetingStore, rank: int, size: int) -> None:
        """Replace the group by one with the new peers."""
        self._set_aside()
        self.pg = self._open(store, rank, size)
        self._exchange(store, rank, size)
        self._is_connected = True


def _unended(works: Sequence[Any]) -> list[Any]:
    return [work for work in works if not work.is_completed()]


def _done_soon(work: Any) -> bool:
    """Return whether the work has succeeded, after a short wait that can't be interrupted.

    A callback would need another switch of threads.
    """
    try:
        return bool(work.wait(_SOON))
    except RuntimeError:  # it takes longer, or has failed
        return False


def listening() -> frozenset[End]:
    """Return the addresses at which this process listens."""
    return frozenset(
        _end(found.getsockname()) for found in _sockets() if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def sever(ends: AbstractSet[End]) -> int:
    """End this process's connections that have one of ``ends`` on either side. Return their number.

    gloo's pending collectives then fail at once, as if the peer had closed them; torch has no call that does this
    (ProcessGroupGloo.abort does not affect them). Otherwise a collective occupies one of the two threads that all
    generations share until it times out, and two that wait for a frozen peer would block all others.
    """
    severed = 0
    for found in _sockets():
        with contextlib.suppress(OSError):  # not connected: it listens, or has been closed
            if ends & {_end(found.getsockname()), _end(found.getpeername())}:
                found.shutdown(socket.SHUT_RDWR)
                severed += 1
    return severed


def _end(place: tuple[Any, ...]) -> End:
    # An IPv6 address may have the name of its interface, which differs between machines; and a socket for both kinds
    # of addresses writes IPv4 addresses as IPv6.
    return str(place[0]).partition("%")[0].removeprefix("::ffff:"), int(place[1])


def _sockets() -> Iterator[socket.socket]:
    """Yield each TCP socket of this process, with a duplicated descriptor so that it stays open."""
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed since it was listed
            if not stat.S_ISSOCK((_DESCRIPTORS / name).stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
