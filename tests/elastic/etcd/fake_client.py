"""An etcd in memory, with revisions, leases and watches, for tests that need no network."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from tidewater.elastic.errors import Compacted, StoreError
from tidewater.elastic.etcd.client import Entry, Event, Snapshot
from tidewater.elastic.etcd.ranges import Range, under


class FakeStore:
    """Behaves like ``tidewater.elastic.etcd.client.Store``; ``away`` makes every call fail, ``clock`` times the leases.

    A watch ends after ``idle_seconds`` without an event.
    """

    def __init__(self, clock: Callable[[], float], *, idle_seconds: float = 0.2) -> None:
        self.away = False
        self.idle_seconds = idle_seconds
        self._clock = clock
        self._entries: dict[str, tuple[Entry, int]] = {}
        self._leases: dict[int, tuple[int, float]] = {}
        self._events: list[Event] = []
        self._compacted = 0
        self._revision = 1
        self._ids = itertools.count(1000)
        self._condition = threading.Condition()

    def read(self, prefix: str) -> Snapshot:
        return self.read_ranges([under(prefix)])

    def read_ranges(self, ranges: Sequence[Range]) -> Snapshot:
        with self._lock():
            found = [[entry for key, (entry, _) in sorted(self._entries.items()) if _has(each, key)] for each in ranges]
            chosen = [_chosen(each, entries) for each, entries in zip(ranges, found, strict=True)]
            return Snapshot(self._revision, tuple(itertools.chain(*chosen)), tuple(map(len, found)))

    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        with self._lock():
            if lease and lease not in self._leases:
                raise StoreError("lease not found")
            self._write(key, value, lease)

    def put_if(
        self, key: str, value: bytes, mod_revision: int, lease: int = 0, also: tuple[str, bytes] | None = None
    ) -> bool:
        with self._lock():
            if lease and lease not in self._leases:
                raise StoreError("lease not found")
            found = self._entries.get(key)
            if (found[0].mod_revision if found else 0) != mod_revision:
                return False
            self._write(key, value, lease)
            if also:
                self._revision -= 1
                self._write(*also, 0)
            return True

    def delete(self, key: str) -> None:
        with self._lock():
            self._remove([key])

    def grant(self, ttl_seconds: int) -> int:
        with self._lock():
            lease = next(self._ids)
            self._leases[lease] = (ttl_seconds, self._clock() + ttl_seconds)
            return lease

    def keep_alive(self, lease: int) -> bool:
        with self._lock():
            if lease not in self._leases:
                return False
            ttl_seconds, _ = self._leases[lease]
            self._leases[lease] = (ttl_seconds, self._clock() + ttl_seconds)
            return True

    def revoke(self, lease: int) -> None:
        with self._lock():
            self._end(lease)

    def watch(self, starts: Mapping[Range, int]) -> FakeWatch:
        with self._lock():
            return FakeWatch(self, starts)

    def compact(self) -> None:
        """Drop the history, as a compaction of etcd does."""
        with self._condition:
            self._compacted, self._events = self._revision, []

    def next_events(self, starts: Mapping[Range, int], ended: Callable[[], bool]) -> tuple[Event, ...]:
        """Return the events of these ranges; empty after some time without one, or when ``ended``."""
        with self._condition:
            if min(starts.values()) <= self._compacted:
                raise Compacted("compacted")

            def found() -> tuple[Event, ...]:
                return tuple(event for event in self._events if _concerns(starts, event))

            self._condition.wait_for(lambda: found() or ended(), self.idle_seconds)
            return found()

    def wake(self) -> None:
        """Let every watch look whether it has ended."""
        with self._condition:
            self._condition.notify_all()

    def _lock(self) -> threading.Condition:
        if self.away:
            raise StoreError("etcd is away")
        with self._condition:
            for lease in [lease for lease, (_, until) in self._leases.items() if until < self._clock()]:
                self._end(lease)
        return self._condition

    def _end(self, lease: int) -> None:
        self._leases.pop(lease, None)
        self._remove([key for key, (_, bound) in self._entries.items() if bound == lease and lease])

    def _write(self, key: str, value: bytes, lease: int) -> None:
        self._revision += 1
        found = self._entries.get(key)
        created = found[0].create_revision if found else self._revision
        entry = Entry(key, value, created, self._revision)
        self._entries[key] = (entry, lease)
        self._tell(Event(key, entry, self._revision))

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            if self._entries.pop(key, None):
                self._revision += 1
                self._tell(Event(key, None, self._revision))

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._condition.notify_all()


class FakeWatch:
    """A watch that ends after a time without events, as the real one does."""

    def __init__(self, store: FakeStore, starts: Mapping[Range, int]) -> None:
        self._store, self._starts, self._closed = store, starts, False

    def __iter__(self) -> Iterator[tuple[Event, ...]]:
        while not self._closed:
            events = self._store.next_events(self._starts, lambda: self._closed)
            if not events:
                return
            # As after etcd's progress, events of all ranges up to this revision have been sent.
            self._starts = {each: max(start, events[-1].revision + 1) for each, start in self._starts.items()}
            yield events

    def close(self) -> None:
        self._closed = True
        self._store.wake()


def _has(keys: Range, key: str) -> bool:
    return keys.first <= key < keys.end


def _concerns(starts: Mapping[Range, int], event: Event) -> bool:
    return any(_has(each, event.key) and event.revision >= start for each, start in starts.items())


def _chosen(keys: Range, entries: list[Entry]) -> list[Entry]:
    if keys.oldest is None:
        return entries
    return sorted(entries, key=lambda each: each.create_revision)[: keys.oldest]
