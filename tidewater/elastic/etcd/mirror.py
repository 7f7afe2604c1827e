"""A copy of one prefix of etcd, updated by a watch, and one record of this process, bound to a lease.

    mirror = Mirror(store, "/tidewater-torchrun/digits/", lease_seconds=5)
    mirror.start()
    mirror.publish(key, value)               # exists until stop(), or until lease_seconds after this process's death
    mirror.wait(lambda entries: key in entries, deadline)

When etcd is unavailable, both threads continue to retry. When it is back, they replace a lost lease and write the
record again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from tidewater.elastic.errors import Compacted, StoreError
from tidewater.elastic.etcd.client import Entry, Event, Store, Watch
from tidewater.elastic.etcd.ranges import under

Entries = Mapping[str, Entry]

_NOTHING: Entries = {}
_RETRY_SECONDS = 0.3
_RENEWALS_IN_A_LEASE = 5


class Mirror:
    """Start and stop it once. Every method may be called from any thread."""

    def __init__(self, store: Store, prefix: str, *, lease_seconds: int) -> None:
        self._store, self._prefix, self._lease_seconds = store, prefix, lease_seconds
        self._entries: Entries | None = None
        self._error: StoreError | None = None
        self._record: tuple[str, bytes] | None = None
        self._written = True
        self._lease = 0
        self._watch: Watch | None = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._lease_lock = threading.Lock()

    @property
    def entries(self) -> Entries:
        """The last known entries; never changed in place."""
        return _NOTHING if self._entries is None else self._entries

    @property
    def error(self) -> StoreError | None:
        """Why nothing could be read yet; None after a success, or while nothing has failed."""
        return None if self._entries is not None else self._error

    def start(self) -> None:
        """Start the threads. Return at once."""
        for work in (self._follow, self._keep_lease):
            threading.Thread(target=work, name=f"rendezvous-{work.__name__.strip('_')}", daemon=True).start()

    def stop(self) -> None:
        """Withdraw the record and end the threads. Safe to call twice."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._watch:
            self._watch.close()
        with self._lease_lock, contextlib.suppress(StoreError):
            if self._lease:
                self._store.revoke(self._lease)
            self._lease = 0

    def publish(self, key: str, value: bytes) -> None:
        """Write this process's record. If etcd is unavailable, it is written later."""
        with self._lease_lock:
            self._record, self._written = (key, value), False
            with contextlib.suppress(StoreError):
                self._write()

    def wait(self, condition: Callable[[Entries], bool], deadline: float) -> bool:
        """Wait until the entries are known and satisfy ``condition``. Return False at the (monotonic) deadline."""
        with self._changed:
            while self._entries is None or not condition(self._entries):
                left = deadline - time.monotonic()
                if left <= 0 or self._stopping.is_set():
                    return False
                self._changed.wait(left)
            return True

    def wait_for_news(self, seen: Entries, deadline: float) -> None:
        """Wait until the entries differ from ``seen``, or until the deadline."""
        self.wait(lambda entries: entries is not seen, deadline)

    def _write(self) -> None:
        """Renew the lease, and write the record unless etcd has it. The caller holds the lock."""
        if self._stopping.is_set() or self._record is None:
            return
        if self._lease and not self._store.keep_alive(self._lease):
            self._lease, self._written = 0, False
        if not self._lease:
            self._lease = self._store.grant(self._lease_seconds)
        if not self._written:
            self._store.put(*self._record, self._lease)
            self._written = True

    def _keep_lease(self) -> None:
        while not self._stopping.wait(self._lease_seconds / _RENEWALS_IN_A_LEASE):
            with self._lease_lock, contextlib.suppress(StoreError):
                self._write()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                snapshot = self._store.read(self._prefix)
                self._set({entry.key: entry for entry in snapshot.entries})
                self._follow_from(snapshot.revision + 1)
            except StoreError as error:
                with self._changed:
                    self._error = error
                self._stopping.wait(_RETRY_SECONDS)

    def _follow_from(self, revision: int) -> None:
        """Follow the events until the history is compacted. Raise StoreError when the connection breaks."""
        while not self._stopping.is_set():
            self._watch = self._store.watch({under(self._prefix): revision})
            try:
                for events in self._watch:
                    revision = max([revision, *(event.revision + 1 for event in events)])
                    self._set(_applied(self.entries, events))
            except Compacted:
                return

    def _set(self, entries: Entries) -> None:
        with self._changed:
            self._entries = entries
            self._changed.notify_all()


def _applied(entries: Entries, events: Iterable[Event]) -> Entries:
    changed = dict(entries)
    for event in events:
        if event.entry:
            changed[event.key] = event.entry
        else:
            changed.pop(event.key, None)
    return changed
