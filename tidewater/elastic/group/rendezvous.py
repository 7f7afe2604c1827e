"""The store at which the ranks of one generation meet. Waiting at it can be interrupted.

A rank that connects to its peers waits for keys, which a dead peer never writes. torch's own stores wait until they
time out, or, if the machine with the keys has disappeared, until TCP stops trying: a quarter of an hour. And they let
anybody write. This store checks every few hundred milliseconds whether the generation is still wanted, and its keys are
in the authenticated server of the process that has rank 0 (see ``tidewater.elastic.peer.keyvalue``).

The connecting itself can't be interrupted. So no rank begins to connect before all have arrived (``assemble``), and a
generation that is superseded before that is cancelled for all ranks or for none.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

# torch.distributed offers it too, but its type information does not say so.
from torch._C._distributed_c10d import Store

from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken, Stranger
from tidewater.elastic.peer import handshake
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.keyvalue import Keys, RemoteKeys

_SLICE_SECONDS = 0.2
_CONNECT_SECONDS = 2.0
_PAUSE_SECONDS = 0.02
_OUTCOME, _GO, _OFF = "outcome", "go", "off"
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")


class MeetingStore(Store):
    """The keys of one generation as a torch store."""

    def __init__(self, keys: Keys, wanted: Callable[[], None], deadline: float) -> None:
        super().__init__()
        self._keys, self._wanted, self._deadline = keys, wanted, deadline

    def set(self, key: str, value: Any) -> None:
        """Write a key."""
        self.ensure_wanted()
        self._keys.set(key, _text(value))

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value. Raise like ``wait``."""
        while True:
            self.ensure_wanted()
            value = self._keys.get(key, _SLICE_SECONDS)
            if value is not None:
                return _bytes(value)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Raise GroupBroken after the deadline, or when the generation is not wanted any more."""
        while True:
            self.ensure_wanted()
            if self._keys.wait(keys, _SLICE_SECONDS):
                return

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
            self.ensure_wanted()
            # A rank that has seen all others may already be connecting: the first verdict counts.
            if superseded() and self.compare_set(_OUTCOME, "", _OFF) == _OFF.encode():
                raise GroupBroken("there is a newer generation")
            arrived = self._keys.wait(places, _SLICE_SECONDS)
        if self.compare_set(_OUTCOME, "", _GO) == _OFF.encode():
            raise GroupBroken("there is a newer generation")

    def compare_set(self, key: str, expected: Any, value: Any) -> bytes:
        """Write a key if it has the expected value (empty: does not exist). Return its value afterwards."""
        self.ensure_wanted()
        return _bytes(self._keys.compare_set(key, _text(expected), _text(value)))

    def add(self, key: str, amount: int) -> int:
        """Add to a counter. Return its new value."""
        self.ensure_wanted()
        return self._keys.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist, without waiting."""
        self.ensure_wanted()
        return self._keys.check(keys)

    def delete_key(self, key: str) -> bool:
        """Remove a key. Return whether it existed."""
        self.ensure_wanted()
        return self._keys.delete_key(key)

    def ensure_wanted(self, late: str = "a peer did not arrive at the rendezvous in time") -> None:
        """Raise GroupBroken after the deadline, with the reason ``late``, or when the generation is not wanted."""
        self._wanted()
        if time.monotonic() > self._deadline:
            raise GroupBroken(late)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode("latin-1")


def _bytes(value: str) -> bytes:
    return value.encode("latin-1")


def exchange(store: Store, what: str, rank: int, size: int, word: str) -> list[str]:
    """Return the words that all ranks have given for the same ``what``, by rank. Raise like ``MeetingStore.wait``.

    Rank 0, which has the keys, collects them: each request to it takes a fraction of a millisecond of its process.
    """
    store.set(f"{what}/{rank}", json.dumps(word))
    if rank == 0:
        store.set(what, json.dumps([json.loads(store.get(f"{what}/{each}")) for each in range(size)]))
    return list(json.loads(store.get(what)))


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


def join(me: Identity, address: Address, uuid: int, wanted: Callable[[], None], deadline: float) -> RemoteKeys:
    """Return the keys of a generation in the process of rank 0. Raise GroupBroken like ``MeetingStore.wait``."""

    def check() -> None:
        wanted()
        if time.monotonic() > deadline:
            raise GroupBroken(f"a peer did not arrive at the rendezvous in time: rank 0 at {address} does not answer")

    while True:
        check()
        try:
            connection = handshake.connect(me, address, seconds=_CONNECT_SECONDS, check=check)
            connection.sendall(json.dumps({"meet": uuid}).encode() + b"\n")
            return RemoteKeys(connection, check)
        except Stranger as error:
            raise GroupBroken(f"rank 0 is not at {address}: {error}") from error
        except OSError:
            time.sleep(_PAUSE_SECONDS)


def use_interface_of(host: str) -> None:
    """Make gloo and NCCL use the network interface that has the address ``host``, unless the environment names one.

    Otherwise gloo uses the address of the machine's name, which is loopback on many machines. On an interface with both
    kinds of addresses, gloo uses IPv4, and NCCL the kind of ``host``.
    """
    name = interface_of(host)
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
        if ":" in host:
            os.environ.setdefault("NCCL_SOCKET_FAMILY", "AF_INET6")


def interface_of(host: str) -> str | None:
    """Return the name of the network interface with the address ``host``; None if there is none."""
    if ":" in host:
        return _interface_of_ipv6(host)
    ask_address = 0x8915  # SIOCGIFADDR in linux/sockios.h
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(probe.fileno(), ask_address, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == host:
                    return name
    return None


def _interface_of_ipv6(host: str) -> str | None:
    with contextlib.suppress(FileNotFoundError, ValueError):  # IPv6 is switched off, or this is no address
        wanted = ipaddress.IPv6Address(host.partition("%")[0])
        for line in _IPV6_ADDRESSES.read_text().splitlines():  # proc(5): address, …, name of the interface
            address, *_, name = line.split()
            if ipaddress.IPv6Address(bytes.fromhex(address)) == wanted:
                return name
    return None
