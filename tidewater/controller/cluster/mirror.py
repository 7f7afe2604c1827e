"""Copies of objects in memory, kept current by list and watch, so that decisions cost no request.

    pods = Mirror(cluster, [Source(PODS, selector="group-name=elastic.pytorch.org")], read_pod, changed)
    task = asyncio.create_task(pods.run())
    await pods.synced.wait()
    pods.entries[Key("default", "imagenet-worker-0")].value

A mirror keeps of each object only what ``read`` returns. The caller passes on what its own writes return (``wrote``),
so that a mirror never shows less than the caller has already done: an object that was created counts at once, not
when its event arrives. Events and answers arrive in any order; the one with the higher resourceVersion wins.
Resource versions are compared as integers, as Kubernetes allows for objects of one kind:
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions

A watch ends for many reasons: the API server ends each after some minutes, restarts, or the connection dies. The next
one continues from the last resourceVersion; only if that one is too old are all objects listed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tidewater.controller.cluster.client import Cluster, Manifest, Source
from tidewater.kube.errors import ClusterError, Gone, Refused

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0
"""Pause before a failed list or watch is tried again: doubled with each failure in a row, and jittered."""

FORBIDDEN_SECONDS = 300.0
"""Pause before optional objects that may not be read are tried again."""

_GRAVES = 4096


class Key(NamedTuple):
    """Namespace (empty for kinds without) and name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What a mirror keeps of one object. ``owner`` is the uid of the controlling owner, empty without one."""

    key: Key
    uid: str
    version: int
    owner: str
    value: T


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object before and after a change (None: it does not exist). ``mine``: made by a write of this process."""

    old: Entry[T] | None
    new: Entry[T] | None
    mine: bool = False


Report = Callable[[str, ClusterError | None], None]
"""Called with a kind's plural when its watch has ended: with the error, or None if the API server ended it."""


@dataclass
class _Feed:
    """How far one source has been read."""

    source: Source
    version: str | None = None
    failures: int = 0
    listed: bool = False


class Mirror(Generic[T]):
    """The objects of some sources, by key. Only ``run`` and the caller's own writes change them.

    Args:
        cluster: Where to list and watch.
        sources: Which objects: of one kind, and of different namespaces if there are several.
        read: Returns what to keep of an object. It must not raise, whatever users write into objects.
        changed: Called for every object that appears, disappears, or gets another result from ``read``.
        report: Called when a watch has ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        sources: Sequence[Source],
        read: Callable[[Manifest], T],
        changed: Callable[[Change[T]], None],
        report: Report = lambda plural, error: None,
    ) -> None:
        self.entries: dict[Key, Entry[T]] = {}
        self.synced = asyncio.Event()
        self._cluster = cluster
        self._feeds = [_Feed(source) for source in sources]
        self._read = read
        self._changed = changed
        self._report = report
        # Deleted objects and the version of the deletion: an answer to an earlier write may still arrive after it.
        self._graves: dict[Key, int] = {}

    async def run(self) -> None:
        """List, then watch, for ever. Errors of the API server are reported and tried again."""
        async with asyncio.TaskGroup() as tasks:
            for feed in self._feeds:
                tasks.create_task(self._follow(feed))

    async def _follow(self, feed: _Feed) -> None:
        while True:
            error: ClusterError | None = None
            try:
                if feed.version is None:
                    feed.version = await self._list(feed)
                await self._watch(feed, feed.version)
            except Gone as gone:
                error, feed.version = gone, None
            except ClusterError as failure:
                error = failure
            self._report(feed.source.kind.plural, error)
            if feed.source.optional and isinstance(error, Refused):
                self._listed(feed)
                await asyncio.sleep(FORBIDDEN_SECONDS)
            else:
                await asyncio.sleep(pause(feed.failures))
                feed.failures += 1  # reset as soon as anything arrives

    def _listed(self, feed: _Feed) -> None:
        feed.listed = True
        if all(each.listed for each in self._feeds):
            self.synced.set()

    def wrote(self, manifest: Manifest) -> None:
        """Take over what a create, patch or delete of the caller returned."""
        entry = self._entry(manifest)
        if entry.version > self._graves.get(entry.key, 0):
            self._put(entry, mine=True)

    def deleted(self, manifest: Manifest) -> None:
        """Take over what a deletion returned: the object as it ends, or as it was before it was removed at once.

        Without a version it says nothing: another client has deleted the object too, and the watch says the rest.
        """
        meta = manifest["metadata"]
        if not meta.get("deletionTimestamp"):
            self.gone(Key(meta.get("namespace", ""), meta["name"]), meta["uid"])
        elif meta.get("resourceVersion"):
            self.wrote(manifest)

    def gone(self, key: Key, uid: str) -> None:
        """Forget an object that the API server says does not exist any more."""
        known = self.entries.get(key)
        if known is not None and known.uid == uid:
            self._remove(known, known.version, mine=True)

    async def _list(self, feed: _Feed) -> str:
        """Replace all of a source by what the API server lists, and return the version to watch from."""
        page = await self._cluster.list(feed.source)
        version = int(page.version)
        listed = {entry.key: entry for entry in map(self._entry, page.items)}
        while page.token:
            page = await self._cluster.list(feed.source, page.token)
            listed.update((entry.key, entry) for entry in map(self._entry, page.items))
        for entry in listed.values():
            self._put(entry)
        here = feed.source.namespace
        for known in [entry for key, entry in self.entries.items() if key not in listed]:
            # What this process has created since is newer than the list.
            if known.version <= version and here in (None, known.key.namespace):
                self._remove(known, version)
        feed.failures = 0
        self._listed(feed)
        return str(version)

    async def _watch(self, feed: _Feed, version: str) -> None:
        """Apply events until the API server ends the watch."""
        async with contextlib.aclosing(self._cluster.watch(feed.source, version)) as events:
            async for event in events:
                feed.version = event.object["metadata"]["resourceVersion"]
                if event.type != "BOOKMARK":
                    self._apply(event.object, deleted=event.type == "DELETED")
                feed.failures = 0

    def _apply(self, manifest: Manifest, *, deleted: bool) -> None:
        entry = self._entry(manifest)
        if not deleted:
            self._put(entry)
            return
        known = self.entries.get(entry.key)
        if known is not None and known.version <= entry.version:
            self._remove(known, entry.version)
        else:
            self._bury(entry.key, entry.version)

    def _put(self, entry: Entry[T], *, mine: bool = False) -> None:
        known = self.entries.get(entry.key)
        if known is not None and entry.version <= known.version:
            return
        self.entries[entry.key] = entry
        if known is None or (known.uid, known.owner, known.value) != (entry.uid, entry.owner, entry.value):
            self._changed(Change(known, entry, mine))

    def _remove(self, known: Entry[T], version: int, *, mine: bool = False) -> None:
        del self.entries[known.key]
        self._bury(known.key, version)
        self._changed(Change(known, None, mine))

    def _bury(self, key: Key, version: int) -> None:
        self._graves.pop(key, None)  # so that the oldest come first
        self._graves[key] = version
        if len(self._graves) > _GRAVES:
            del self._graves[next(iter(self._graves))]

    def _entry(self, manifest: Manifest) -> Entry[T]:
        meta = manifest["metadata"]
        owner = next((each["uid"] for each in meta.get("ownerReferences", ()) if each.get("controller")), "")
        key = Key(meta.get("namespace", ""), meta["name"])
        return Entry(key, meta["uid"], int(meta["resourceVersion"]), owner, self._read(manifest))


def pause(failures: int) -> float:
    """Return the seconds to wait after a list or watch has ended, `failures` times in a row without an event.

    It is random, so that the mirrors of all controllers don't come back to a restarted API server together.
    """
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 10))
    return random.uniform(longest / 2, longest)
