"""A client for etcd: the few operations that the trainer needs, over etcd's JSON gateway.

    store = EtcdStore(("http://etcd-0:2379", "http://etcd-1:2379"), timeout_seconds=2)
    snapshot = store.read("/tidewater/digits/")
    for events in store.watch({under("/tidewater/digits/"): snapshot.revision + 1}): ...

It uses the HTTP client of the standard library. A client package would have to be installed in every GPU image, and
etcd3gw supports only one endpoint and has no time-out on its streams. Gateway reference:
https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidewater.elastic.errors import Compacted, StoreError
from tidewater.elastic.etcd.access import (
    Access,
    Endpoint,
    Failure,
    authentication_is_off,
    error_of,
    failed,
    rejected,
    token_is_old,
)
from tidewater.elastic.etcd.ranges import Range, encoded, request, under

_OPEN = Access()
_NEWLINES_OF_A_LINE = 3
"""In a chunked response: at the end of the last chunk, of the next one's size, and of its JSON object."""
_READ_BYTES = 65536
"""At most so much of a watch is read, and handled, at once: about 130 changes. Python's 8 KiB would be 17."""
_BLANKS, _BEGIN_SECONDS = b" " * 1536, 2.0
"""Before the requests for watches on one connection, and the longest wait for the next one to begin after the first.
With its first answer Go's server discards what the handler has not read (``cw.writeHeader`` in net/http/server.go), and
etcd's JSON gateway reads 512 bytes, then 1,024, then 2,048 (json.Decoder): all requests, before the first answer."""
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Entry:
    """One key with its value and revisions."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True)
class Event:
    """A change of one key; ``entry`` is None when the key was deleted or its lease expired."""

    key: str
    entry: Entry | None
    revision: int


@dataclass(frozen=True)
class Snapshot:
    """Keys at one revision."""

    revision: int
    entries: tuple[Entry, ...]
    counts: tuple[int, ...] = ()
    """How many keys there are in each range that was read."""


class Watch(Protocol):
    """A stream of batches of events. ``close`` may be called from another thread and ends the iteration."""

    def __iter__(self) -> Iterator[tuple[Event, ...]]: ...

    def close(self) -> None:
        """End the iteration, from any thread."""


class Store(Protocol):
    """The operations that the trainer needs. Every method raises StoreError when no endpoint answers in time."""

    def read(self, prefix: str) -> Snapshot:
        """Return everything under ``prefix``; the read is linearizable."""

    def read_ranges(self, ranges: Sequence[Range]) -> Snapshot:
        """Return what is in these ranges, one after the other, at one revision; the read is linearizable."""

    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """Write unconditionally, bound to ``lease`` unless that is 0."""

    def put_if(
        self, key: str, value: bytes, mod_revision: int, lease: int = 0, also: tuple[str, bytes] | None = None
    ) -> bool:
        """Compare-and-set: write only if the key's mod revision is ``mod_revision`` (0: the key must not exist),
        bound to ``lease`` unless that is 0; with ``also``, another key and its value, at the same revision.

        False means that another process wrote first and nothing was changed. After a StoreError the write may or may
        not have happened: read before a retry.
        """

    def delete(self, key: str) -> None:
        """Delete the key if it exists."""

    def grant(self, ttl_seconds: int) -> int:
        """Create a lease. Return its id."""

    def keep_alive(self, lease: int) -> bool:
        """Renew the lease. Return False if it has expired, and with it the keys bound to it."""

    def revoke(self, lease: int) -> None:
        """End the lease and delete the keys bound to it. No error if it has already expired."""

    def watch(self, starts: Mapping[Range, int]) -> Watch:
        """Return the changes in each range from the given revision on. Only those of the same range are in order.

        The iterator raises Compacted or StoreError. It ends after some seconds without an event, so that a dead
        connection is not used for long.
        """


class EtcdStore:
    """etcd v3 over its JSON gateway. Tries the endpoints in order, starting with the last one that worked."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        *,
        timeout_seconds: float = 2.0,
        idle_seconds: float = 15.0,
        access: Access = _OPEN,
    ) -> None:
        self._endpoints = [Endpoint.parse(url) for url in endpoints]
        self._access = access
        self._token: str | None = None
        self._timeout_seconds = timeout_seconds
        self._idle_seconds = idle_seconds
        self._preferred = 0
        self._local = threading.local()

    def read(self, prefix: str) -> Snapshot:
        """See ``Store.read``."""
        answer = self._call("/v3/kv/range", request(under(prefix)))
        return Snapshot(int(answer["header"]["revision"]), _entries(answer), (_count(answer),))

    def read_ranges(self, ranges: Sequence[Range]) -> Snapshot:
        """See ``Store.read_ranges``."""
        answer = self._call("/v3/kv/txn", {"success": [{"request_range": request(each)} for each in ranges]})
        found = [each["response_range"] for each in answer["responses"]]
        entries = tuple(entry for each in found for entry in _entries(each))
        return Snapshot(int(answer["header"]["revision"]), entries, tuple(map(_count, found)))

    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        """See ``Store.put``."""
        self._call("/v3/kv/put", {"key": encoded(key), "value": encoded(value), "lease": str(lease)})

    def put_if(
        self, key: str, value: bytes, mod_revision: int, lease: int = 0, also: tuple[str, bytes] | None = None
    ) -> bool:
        """See ``Store.put_if``."""
        compare = {"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(mod_revision)}
        puts = [{"key": encoded(key), "value": encoded(value), "lease": str(lease)}]
        if also:
            puts.append({"key": encoded(also[0]), "value": encoded(also[1])})
        success = [{"request_put": each} for each in puts]
        return bool(self._call("/v3/kv/txn", {"compare": [compare], "success": success}).get("succeeded"))

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        self._call("/v3/kv/deleterange", {"key": encoded(key)})

    def grant(self, ttl_seconds: int) -> int:
        """See ``Store.grant``."""
        return int(self._call("/v3/lease/grant", {"TTL": str(ttl_seconds)})["ID"])

    def keep_alive(self, lease: int) -> bool:
        """See ``Store.keep_alive``."""
        return int(self._call("/v3/lease/keepalive", {"ID": str(lease)}).get("result", {}).get("TTL", 0)) > 0

    def revoke(self, lease: int) -> None:
        """See ``Store.revoke``."""
        # etcd answers 404 if the lease has already expired, which is what the caller wanted.
        self._call("/v3/lease/revoke", {"ID": str(lease)}, accept_missing=True)

    def watch(self, starts: Mapping[Range, int]) -> Watch:
        """See ``Store.watch``."""
        requests = [
            {"create_request": {**request(each), "start_revision": str(revision)}} for each, revision in starts.items()
        ]
        failures = []
        for index in self._order():
            endpoint = self._endpoints[index]
            try:
                headers = self._headers(index)
                connection = endpoint.connect(self._idle_seconds, self._access.context)
                stream = _WatchStream(connection, requests, headers)
            except (OSError, http.client.HTTPException, ValueError, _Rejected) as error:
                failures.append(_failure(endpoint.url, error))
                continue
            self._preferred = index
            return stream
        raise error_of(failures, "a watch")

    def _call(self, path: str, body: Mapping[str, Any], *, accept_missing: bool = False) -> dict[str, Any]:
        failures = []
        for index in self._order():
            try:
                answer = self._ask(index, path, body, accept_missing)
            except (OSError, http.client.HTTPException, ValueError, _Rejected) as error:
                failures.append(_failure(self._endpoints[index].url, error))
                continue
            self._preferred = index
            return answer
        raise error_of(failures, path)

    def _ask(self, index: int, path: str, body: Mapping[str, Any], accept_missing: bool) -> dict[str, Any]:
        data = json.dumps(body).encode()
        status, text = self._post(index, path, data, self._headers(index))
        if self._token and token_is_old(status, text):  # the token has expired, or that member of etcd has restarted
            self._token = None
            status, text = self._post(index, path, data, self._headers(index))
        if status == http.client.NOT_FOUND and accept_missing:
            return {}
        if status != http.client.OK:
            raise _Rejected(status, text)
        return dict(json.loads(text.splitlines()[0]))

    def _headers(self, index: int) -> dict[str, str]:
        if not self._access.user:
            return _JSON
        if self._token is None:
            self._token = self._authenticate(index)
        return {**_JSON, "Authorization": self._token} if self._token else _JSON

    def _authenticate(self, index: int) -> str:
        """Return a token for the user; empty if etcd needs none."""
        body = json.dumps({"name": self._access.user, "password": self._access.password}).encode()
        status, text = self._post(index, "/v3/auth/authenticate", body, _JSON)
        if status == http.client.OK:
            return str(json.loads(text)["token"])
        if authentication_is_off(text):
            return ""
        raise _Rejected(status, text)

    def _post(self, index: int, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Send one request over this thread's persistent connection. A stale connection is replaced once."""
        kept: dict[int, http.client.HTTPConnection] = self._local.__dict__.setdefault("connections", {})
        fresh = index not in kept
        connection = kept.pop(index, None)
        connection = connection or self._endpoints[index].connect(self._timeout_seconds, self._access.context)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # A server may close an idle connection at any time. A time-out is different: try the next endpoint.
            if fresh or isinstance(error, TimeoutError):
                raise
            return self._post(index, path, body, headers)
        kept[index] = connection
        return answer

    def _order(self) -> list[int]:
        count = len(self._endpoints)
        return [(self._preferred + offset) % count for offset in range(count)]


class _Rejected(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


def _failure(url: str, error: Exception) -> Failure:
    return rejected(url, error.status, error.text) if isinstance(error, _Rejected) else failed(url, error)


class _Answer(http.client.HTTPResponse):
    """The answer to a watch, read in larger pieces."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(sock.makefile("rb", 0), _READ_BYTES)


class _WatchStream:
    """The watches of some ranges on one connection: a chunked response with a JSON object per line."""

    def __init__(
        self, connection: http.client.HTTPConnection, requests: Sequence[Mapping[str, Any]], headers: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self._closed = False
        self._number = self._to_begin = len(requests)
        connection.response_class = _Answer
        connection.request("POST", "/v3/watch", _BLANKS + "\n".join(map(json.dumps, requests)).encode(), headers)
        self._socket = connection.sock
        self._response = connection.getresponse()
        if self._response.status != http.client.OK:
            text = self._response.read(1000).decode(errors="replace")
            connection.close()
            raise _Rejected(self._response.status, text)

    def __iter__(self) -> Iterator[tuple[Event, ...]]:
        try:
            yield from self._batches()
        except TimeoutError:
            if 0 < (begun := self._number - self._to_begin) < self._number:
                raise StoreError(f"etcd has begun only {begun} of {self._number} watches on one connection") from None
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if not self._closed:
                raise StoreError(f"the watch broke off: {error}") from error
        finally:
            self._connection.close()

    def _batches(self) -> Iterator[tuple[Event, ...]]:
        found: list[Event] = []
        try:
            while not self._closed and (text := self._response.readline()):
                found += self._events(json.loads(text))
                if found and not self._has_line():
                    yield tuple(found)
                    found = []
        except Exception:
            if found:  # etcd may not be reachable again for long
                yield tuple(found)
            raise
        if found:
            yield tuple(found)

    def _has_line(self) -> bool:
        """Return whether the next line has already been received, after the end of the last one's chunk.

        A process that is behind handles many changes at once, so it catches up. The end of a chunk is sent with the
        chunk, so this waits for nothing else, and needs no system call, which could wait for Python's lock. A proxy may
        divide the answer in another way; then each line is handled alone.
        """
        answer = self._response
        if answer.fp is None or not answer.chunked or answer.chunk_left != 0:
            return False
        return answer.fp.peek().count(b"\n") >= _NEWLINES_OF_A_LINE

    def _events(self, message: Mapping[str, Any]) -> tuple[Event, ...]:
        result = message.get("result", {})
        if int(result.get("compact_revision", 0)):
            raise Compacted(f"etcd has compacted up to revision {result['compact_revision']}")
        if result.get("canceled") or "error" in message:
            raise StoreError(f"etcd cancelled the watch: {result.get('cancel_reason') or message.get('error')}")
        if result.get("created"):
            self._to_begin -= 1
            self._socket.settimeout(_BEGIN_SECONDS if self._to_begin else self._connection.timeout)
        return tuple(_event(event) for event in result.get("events", ()))

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._closed = True
        # A shutdown wakes the reading thread; a close alone would not.
        with contextlib.suppress(OSError):
            if self._socket:
                self._socket.shutdown(socket.SHUT_RDWR)


def _entries(answer: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple(_entry(kv) for kv in answer.get("kvs", ()))


def _count(answer: Mapping[str, Any]) -> int:
    return int(answer.get("count", 0))


def _entry(kv: Mapping[str, Any]) -> Entry:
    return Entry(
        key=base64.b64decode(kv["key"]).decode(),
        value=base64.b64decode(kv.get("value", "")),
        create_revision=int(kv.get("create_revision", 0)),
        mod_revision=int(kv.get("mod_revision", 0)),
    )


def _event(event: Mapping[str, Any]) -> Event:
    entry = _entry(event["kv"])
    # The gateway omits fields with default values, and PUT is the default type.
    return Event(entry.key, None if event.get("type") == "DELETE" else entry, entry.mod_revision)
