"""Keys at which the ranks of one generation meet, in the memory of the process that has rank 0.

    board = Board(); board.at(uuid).set("here/0", "")         # in that process
    serve(connection, board.at(uuid))                         # in a thread of its server, for each other rank
    RemoteKeys(connection, check).get("here/0", seconds=0.2)  # in the other ranks

    Place(address, number, secret)                            # the same for processes that a launcher starts
    lasting(place).get("here/0", seconds=0.2)                 # in these

They replace torch's TCPStore, which lets anybody who reaches its port read and write. ``connection`` has authenticated
(see ``handshake``). A message is its length and a list as JSON: an operation with its arguments, or its result. Values
are texts; bytes are written as Latin-1.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tidewater.elastic.addresses import Address, bare
from tidewater.elastic.errors import GroupBroken, Stranger
from tidewater.elastic.peer.handshake import Identity, connect, exactly

_SIZE = struct.Struct("!I")
_MOST_BYTES = 1 << 20
_MOST_KEYS = 1 << 16
_MOST_MEETINGS = 8
_LONGEST_WAIT_SECONDS = 1.0
_IDLE_SECONDS = 60.0
_CONNECT_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
_SCHEME = "tcp://"
_ANSWER_SECONDS = 30.0
_OPERATIONS = ("set", "get", "wait", "compare_set", "add", "check", "delete_key")


class Place(NamedTuple):
    """Where a launcher serves keys for its processes, and for those of other machines. As text it is a variable of
    them, which only their user can read."""

    address: Address
    number: int
    """Of the meeting."""
    secret: bytes
    """With which the launcher and they authenticate to each other."""

    def __str__(self) -> str:
        return f"{_SCHEME}{self.address}/{self.address.id}/{self.number}/{self.secret.hex()}"

    @classmethod
    def of(cls, text: str) -> Place | None:
        """Return the place of such a text; None for another one."""
        if not text.startswith(_SCHEME):
            return None
        where, name, number, secret = text.removeprefix(_SCHEME).split("/")
        host, _, port = where.rpartition(":")
        return cls(Address(bare(host), int(port), name), int(number), bytes.fromhex(secret))


class Keys(Protocol):
    """The keys of one generation."""

    def set(self, key: str, value: str) -> None:
        """Write a key."""

    def get(self, key: str, seconds: float) -> str | None:
        """Return a key's value; None if it is still missing after ``seconds``."""

    def wait(self, keys: Sequence[str], seconds: float) -> bool:
        """Return whether all keys exist, after at most ``seconds``."""

    def compare_set(self, key: str, expected: str, value: str) -> str:
        """Write a key if it has the expected value (empty: or does not exist). Return its value afterwards."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter. Return its new value."""

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys exist."""

    def delete_key(self, key: str) -> bool:
        """Remove a key. Return whether it existed."""


class LocalKeys:
    """Keys in this process's memory. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        """See ``Keys``."""
        with self._changed:
            self._write(key, value)

    def get(self, key: str, seconds: float) -> str | None:
        """See ``Keys``."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, seconds)
            return self._values.get(key)

    def wait(self, keys: Sequence[str], seconds: float) -> bool:
        """See ``Keys``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._values.keys() >= set(keys), seconds)

    def compare_set(self, key: str, expected: str, value: str) -> str:
        """See ``Keys``."""
        with self._changed:
            if self._values.get(key, "") == expected:
                self._write(key, value)
            return self._values.get(key, expected)

    def add(self, key: str, amount: int) -> int:
        """See ``Keys``."""
        with self._changed:
            total = int(self._values.get(key, "0")) + amount
            self._write(key, str(total))
            return total

    def check(self, keys: Sequence[str]) -> bool:
        """See ``Keys``."""
        return self.wait(keys, 0)

    def delete_key(self, key: str) -> bool:
        """See ``Keys``."""
        with self._changed:
            return self._values.pop(key, None) is not None

    def _write(self, key: str, value: str) -> None:
        if key not in self._values and len(self._values) >= _MOST_KEYS:
            raise ValueError(f"a generation has no more than {_MOST_KEYS} keys")
        self._values[key] = value
        self._changed.notify_all()


class Board:
    """The keys of the last generations. Any thread may use it."""

    def __init__(self) -> None:
        self._meetings: dict[int, LocalKeys] = {}
        self._lock = threading.Lock()

    def at(self, uuid: int) -> LocalKeys:
        """Return the keys of a generation, none at first. Other ranks may come before this process does."""
        with self._lock:
            if uuid not in self._meetings and len(self._meetings) >= _MOST_MEETINGS:
                del self._meetings[next(iter(self._meetings))]
            return self._meetings.setdefault(uuid, LocalKeys())


def serve(connection: socket.socket, keys: LocalKeys) -> None:
    """Answer until the peer disconnects, or is idle for a minute. Raise OSError, or ValueError for a wrong request."""
    while True:
        operation, *arguments = _receive(connection, time.monotonic() + _IDLE_SECONDS)
        if operation not in _OPERATIONS:
            raise ValueError(f"no such operation: {operation!r}")
        if operation in ("get", "wait"):
            arguments[1] = min(float(arguments[1]), _LONGEST_WAIT_SECONDS)
        _send(connection, [getattr(keys, operation)(*arguments)])


class RemoteKeys:
    """Keys in another process.

    Every method raises GroupBroken when that process is lost, and whatever ``check`` raises. Any thread may call the
    methods; they take turns. With ``again``, which connects, a connection that has been idle is replaced, since
    ``serve`` ends it.
    """

    def __init__(
        self, connection: socket.socket, check: Callable[[], None], again: Callable[[], socket.socket] | None = None
    ) -> None:
        self._connection, self._check, self._again = connection, check, again
        self._used_at = time.monotonic()
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        """See ``Keys``."""
        self._ask("set", key, value)

    def get(self, key: str, seconds: float) -> str | None:
        """See ``Keys``."""
        value = self._ask("get", key, seconds)
        return None if value is None else str(value)

    def wait(self, keys: Sequence[str], seconds: float) -> bool:
        """See ``Keys``."""
        return bool(self._ask("wait", list(keys), seconds))

    def compare_set(self, key: str, expected: str, value: str) -> str:
        """See ``Keys``."""
        return str(self._ask("compare_set", key, expected, value))

    def add(self, key: str, amount: int) -> int:
        """See ``Keys``."""
        return int(self._ask("add", key, amount))

    def check(self, keys: Sequence[str]) -> bool:
        """See ``Keys``."""
        return bool(self._ask("check", list(keys)))

    def delete_key(self, key: str) -> bool:
        """See ``Keys``."""
        return bool(self._ask("delete_key", key))

    def _ask(self, *request: Any) -> Any:
        with self._lock:
            try:
                if self._again and time.monotonic() - self._used_at > _IDLE_SECONDS / 2:
                    self._connection.close()
                    self._connection = self._again()
                self._used_at = time.monotonic()
                _send(self._connection, request)
                return _receive(self._connection, time.monotonic() + _ANSWER_SECONDS, self._check)[0]
            except BaseException as error:
                self._connection.close()  # the answer may still come, and would be taken for that of the next request
                if isinstance(error, OSError | ValueError):
                    raise GroupBroken(f"rank 0 is lost: {error}") from error
                raise


def lasting(place: Place) -> RemoteKeys:
    """Return the keys that a launcher serves for as long as this process lives. Raise GroupBroken if it is lost."""

    def connected() -> socket.socket:
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                connection = connect(Identity(place.secret), place.address, seconds=_CONNECT_SECONDS)
                connection.sendall(json.dumps({"meet": place.number}).encode() + b"\n")
                return connection
            except OSError as error:
                is_gone = isinstance(error, ConnectionRefusedError | Stranger)
                if is_gone or time.monotonic() > until:
                    raise GroupBroken(f"the launcher of this worker's first machine is lost: {error}") from error
                time.sleep(_PAUSE_SECONDS)

    return RemoteKeys(connected(), lambda: None, connected)


def _send(connection: socket.socket, message: Sequence[Any]) -> None:
    data = json.dumps(message).encode()
    if len(data) > _MOST_BYTES:
        raise ValueError(f"a message has {len(data)} bytes, the most is {_MOST_BYTES}")
    connection.settimeout(_ANSWER_SECONDS)
    connection.sendall(_SIZE.pack(len(data)) + data)


def _receive(connection: socket.socket, until: float, check: Callable[[], None] | None = None) -> list[Any]:
    (size,) = _SIZE.unpack(exactly(connection, _SIZE.size, until, check))
    if size > _MOST_BYTES:
        raise ValueError(f"a message has {size} bytes, the most is {_MOST_BYTES}")
    return list(json.loads(exactly(connection, size, until, check)))
