"""The torch stores at which the ranks of one generation meet. Waiting at them can be interrupted.

A rank that connects to its peers waits for keys, which a dead peer never writes. torch's own stores wait until they
time out, or, if the machine with the keys has disappeared, until TCP stops trying: a quarter of an hour. These stores
check every few hundred milliseconds whether the generation is still wanted.

The connecting itself can't be interrupted. So no rank begins to connect before all have arrived (``assemble``), and a
generation that is superseded before that is cancelled for all ranks or for none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

# torch.distributed offers these too, but its type information does not say so.
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from trainer.errors import GroupBroken

Address = tuple[str, int]

_Answer = TypeVar("_Answer")

_SLICE = timedelta(milliseconds=200)
_OUTCOME, _GO, _OFF = "outcome", "go", "off"


class MeetingStore(Store):
    """The keys of one generation, in the torch store of the process that has rank 0."""

    def __init__(self, uuid: int, server: Store, wanted: Callable[[], None], deadline: float) -> None:
        super().__init__()
        self._keys = PrefixStore(str(uuid), server)
        self._wanted, self._deadline = wanted, deadline

    def set(self, key: str, value: Any) -> None:
        """Write a key."""
        self._ask(lambda: self._keys.set(key, value))

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value."""
        self.wait([key])
        return self._ask(lambda: bytes(self._keys.get(key)))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Raise GroupBroken after the deadline, or when the generation is not wanted any more."""
        while True:
            with contextlib.suppress(dist.DistStoreError):
                return self._ask(lambda: self._keys.wait(keys, _SLICE))

    def assemble(self, rank: int, size: int, superseded: Callable[[], bool]) -> None:
        """Return when all ranks have called this. If superseded, raise GroupBroken on all ranks or on none.

        Args:
            rank: Rank of this process.
            size: Number of ranks.
            superseded: Returns whether there is a newer generation; called several times a second.
        """
        places = [f"here/{each}" for each in range(size)]
        self.set(places[rank], "")
        arrived = False
        while not arrived:
            # A rank that has seen all others may already be connecting: the first verdict counts.
            if superseded() and self.compare_set(_OUTCOME, "", _OFF) == _OFF.encode():
                raise GroupBroken("there is a newer generation")
            with contextlib.suppress(dist.DistStoreError):
                self._ask(lambda: self._keys.wait(places, _SLICE))
                arrived = True
        if self.compare_set(_OUTCOME, "", _GO) == _OFF.encode():
            raise GroupBroken("there is a newer generation")

    def compare_set(self, key: str, expected: Any, value: Any) -> bytes:
        """Write a key if it has the expected value (empty: does not exist). Return its value afterwards."""
        return self._ask(lambda: bytes(self._keys.compare_set(key, expected, value)))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter. Return its new value."""
        return self._ask(lambda: int(self._keys.add(key, amount)))

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist, without waiting."""
        return self._ask(lambda: bool(self._keys.check(keys)))

    def delete_key(self, key: str) -> bool:
        """Remove a key. Return whether it existed."""
        return self._ask(lambda: bool(self._keys.delete_key(key)))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        return _answer(question, self._check)

    def _check(self) -> None:
        self._wanted()
        if time.monotonic() > self._deadline:
            raise GroupBroken("a peer did not arrive at the rendezvous in time")


class SwitchedStore(Store):
    """The store of a ProcessGroup. It forwards to a meeting, which changes with every generation."""

    def __init__(self) -> None:
        super().__init__()
        self.current: MeetingStore | None = None

    def __getattribute__(self, name: str) -> Any:
        """Return a method of the current meeting. torch's C++ code looks up store methods here."""
        if name in ("set", "get", "wait", "compare_set", "add", "check", "delete_key"):
            return getattr(object.__getattribute__(self, "current"), name)
        return super().__getattribute__(name)


def join(address: Address, wanted: Callable[[], None], deadline: float) -> TCPStore:
    """Return a client of another process's torch store. Raise GroupBroken like ``MeetingStore.wait``."""

    def connect() -> TCPStore:
        return TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=1))

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise GroupBroken(f"rank 0 at {address[0]}:{address[1]} does not answer")

    while True:
        check()
        with contextlib.suppress(dist.DistNetworkError, dist.DistStoreError):
            return _answer(connect, check)


def _answer(question: Callable[[], _Answer], check: Callable[[], None]) -> _Answer:
    """Call ``question`` in another thread and return or raise its result. Stop waiting when ``check`` raises."""
    answer: Future[_Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="meeting", daemon=True).start()
    while not answer.done():
        check()
        wait([answer], _SLICE.total_seconds())
    return answer.result()


def use_interface_of(host: str) -> None:
    """Make gloo and NCCL use the network interface that has the address ``host``, unless the environment names one.

    Otherwise gloo uses the address of the machine's name, which is loopback on many machines.
    """
    name = _interface_of(host)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_of(host: str) -> str | None:
    ask_address = 0x8915  # SIOCGIFADDR in linux/sockios.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), ask_address, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == host:
                    return name
    return None
