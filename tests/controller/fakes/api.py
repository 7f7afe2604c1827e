"""An API server in memory, for tests of what the controller does with a real one.

    api = Api()
    client = api.client()                 # a `Cluster`
    await client.create(PODS, manifest)
    api.get(PODS, "default", "imagenet-worker-0")

It keeps objects, resource versions and the events of watches; it knows conflicts, names that exist, uid preconditions,
graceful deletion, the garbage collector, and expired versions. Each client stands for one process, and a fault can be
injected before or after each of its requests.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.controller.fakes import virtual
from tidewater.controller.cluster.client import Manifest, Page, Ref, Source, WatchEvent
from tidewater.kube.errors import ClusterError, Conflict, Exists, Gone, NotFound, Refused, Unavailable
from tidewater.kube.kinds import PODS, Kind

WRITES = ("create", "update", "patch", "delete")
BOOKMARK_SECONDS = 60.0
PAGE = 50

T = TypeVar("T")
Key = tuple[str, str]


@dataclass(frozen=True)
class Call:
    """A request that a client has sent."""

    verb: str
    kind: Kind
    name: str
    body: Manifest | None = None
    namespace: str = ""
    """Of a list or a watch; empty for all."""

    def __str__(self) -> str:
        return f"{self.verb} {self.kind.plural} {self.name}"


@dataclass(frozen=True)
class _Change:
    version: int
    kind: Kind
    type: str
    object: Manifest


class Killed(BaseException):
    """The process is killed: no code of it runs any more."""


Fault = Callable[[Call, str], None]
"""Called with each request and "before" or "after"; may raise."""


class KilledAtWrite:
    """A fault: the process is killed before or after the write with this number, from 0."""

    def __init__(self, number: int, moment: str = "after") -> None:
        self._number, self._moment = number, moment
        self.writes = 0
        """How many came to this moment."""

    def __call__(self, call: Call, moment: str) -> None:
        if call.verb in WRITES and moment == self._moment:
            self.writes += 1
            if self.writes == self._number + 1:
                raise Killed


class Api:
    """The state of the API server. Methods that don't end in a client's name act as another client."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.down = False
        self.refuse: Callable[[Kind, Manifest], str | None] = lambda kind, manifest: None
        self._objects: dict[Kind, dict[Key, Manifest]] = {}
        self._changes: list[_Change] = []
        self._compacted = 0
        self._versions = itertools.count(1)
        self._version = 0
        self._uids = itertools.count(1)
        self._news = asyncio.Event()
        self._epoch = 0

    async def change_after(self, version: int) -> None:
        """Wait until something has changed since that version."""
        while self._version == version:
            await self._news.wait()

    def client(self, fault: Fault = lambda call, moment: None) -> Client:
        """Return the connection of one process."""
        return Client(self, fault)

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._version

    # What anybody may do, at once and without faults.

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """Return an object."""
        try:
            return copy.deepcopy(self._objects.get(kind, {})[namespace, name])
        except KeyError:
            raise NotFound(f'{kind.plural} "{name}" not found', status=404) from None

    def all(self, kind: Kind, namespace: str | None = None) -> list[Manifest]:
        """Return the objects of a kind, by name."""
        found = sorted(self._objects.get(kind, {}).items())
        return [copy.deepcopy(each) for (place, _), each in found if namespace in (None, place)]

    def names(self, kind: Kind) -> list[str]:
        """Return the names of the objects of a kind."""
        return [each["metadata"]["name"] for each in self.all(kind)]

    def added(self, kind: Kind) -> list[str]:
        """Return the names of all objects of a kind that were ever created, in order."""
        added = (change.object for change in self._changes if change.kind == kind and change.type == "ADDED")
        return [each["metadata"]["name"] for each in added]

    def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Create an object."""
        made: Manifest = json.loads(json.dumps(manifest))
        meta = made["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if key in self._objects.get(kind, {}):
            raise Exists(f'{kind.plural} "{meta["name"]}" already exists', status=409)
        if problem := self.refuse(kind, made):
            raise Refused(problem, status=422)
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        meta |= {"creationTimestamp": _stamp(), "generation": 1}
        if kind == PODS:
            made.setdefault("status", {"phase": "Pending"})
        return self._store(kind, key, made, "ADDED")

    def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """Apply a merge patch; a change of the spec is a new generation."""
        before = self.get(ref.kind, ref.namespace or "", ref.name)
        version = change.get("metadata", {}).get("resourceVersion")
        if version is not None and version != before["metadata"]["resourceVersion"]:
            raise Conflict(f'{ref.kind.plural} "{ref.name}": the object has been modified', status=409)
        parts = ("status",) if subresource == "status" else tuple(key for key in change if key != "status")
        after = merged(before, {key: value for key, value in change.items() if key in parts})
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if after == before:
            return before
        if problem := self.refuse(ref.kind, after):
            raise Refused(problem, status=422)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        return self._store(ref.kind, (ref.namespace or "", ref.name), after, "MODIFIED")

    def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object that still has the manifest's version."""
        meta = manifest["metadata"]
        before = self.get(kind, meta.get("namespace", ""), meta["name"])
        if meta.get("resourceVersion") != before["metadata"]["resourceVersion"]:
            raise Conflict(f'{kind.plural} "{meta["name"]}": the object has been modified', status=409)
        key = (meta.get("namespace", ""), meta["name"])
        return self._store(kind, key, json.loads(json.dumps(manifest)), "MODIFIED")

    def delete(self, ref: Ref, *, uid: str | None = None, grace: int | None = None) -> Manifest:
        """Delete an object and what it owns. A pod on a node ends gracefully, unless `grace` is 0."""
        found = self.get(ref.kind, ref.namespace or "", ref.name)
        if uid is not None and found["metadata"]["uid"] != uid:
            raise Conflict(f'{ref.kind.plural} "{ref.name}": the uid is another', status=409)
        key = (ref.namespace or "", ref.name)
        ended = found.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if ref.kind == PODS and found.get("spec", {}).get("nodeName") and grace != 0 and not ended:
            if "deletionTimestamp" in found["metadata"]:
                return found
            found["metadata"]["deletionTimestamp"] = _stamp()
            return self._store(ref.kind, key, found, "MODIFIED")
        return self._remove(ref.kind, key)

    def compact(self) -> None:
        """Forget the past: a watch from an earlier version gets Gone."""
        self._compacted = self._version

    def restart(self) -> None:
        """End all watches, as a restarted API server does."""
        self._epoch += 1
        self._wake()

    # What the clients use.

    def page(self, source: Source, token: str) -> Page:
        """Return a part of a list."""
        found = [each for each in self.all(source.kind) if _selects(source, each)]
        start = int(token.partition("@")[0]) if token else 0
        version = token.partition("@")[2] if token else str(self._version)
        rest = start + PAGE < len(found)
        return Page(found[start : start + PAGE], version, f"{start + PAGE}@{version}" if rest else "")

    async def events(self, source: Source, after: str) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a version, for ever, with a bookmark when nothing happens for long.

        Without a version, the objects that exist come first.
        """
        version, epoch = int(after or self._version), self._epoch
        if version < self._compacted:
            raise Gone("too old resource version", status=410)
        for each in [] if after else self.all(source.kind):
            if _selects(source, each):
                yield WatchEvent("ADDED", each)
        while True:
            news = self._news
            for change in self._changes[version:]:  # the first change has version 1
                version = change.version
                if change.kind == source.kind and _selects(source, change.object):
                    yield WatchEvent(change.type, copy.deepcopy(change.object))
            try:
                async with asyncio.timeout(BOOKMARK_SECONDS):
                    await news.wait()
            except TimeoutError:
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            if self.down or epoch != self._epoch:
                raise Unavailable("the watch was interrupted")

    def _store(self, kind: Kind, key: Key, manifest: Manifest, type_: str) -> Manifest:
        self._version = next(self._versions)
        manifest["metadata"]["resourceVersion"] = str(self._version)
        self._objects.setdefault(kind, {})[key] = manifest
        self._tell(_Change(self._version, kind, type_, copy.deepcopy(manifest)))
        return copy.deepcopy(manifest)

    def _remove(self, kind: Kind, key: Key) -> Manifest:
        found = self._objects[kind].pop(key)
        self._version = next(self._versions)
        found["metadata"]["resourceVersion"] = str(self._version)
        self._tell(_Change(self._version, kind, "DELETED", copy.deepcopy(found)))
        for other, objects in self._objects.items():
            for owned, each in list(objects.items()):
                if any(
                    owner["uid"] == found["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences", ())
                ):
                    self._remove(other, owned)
        return found

    def _tell(self, change: _Change) -> None:
        self._changes.append(change)
        self._wake()

    def _wake(self) -> None:
        self._news, news = asyncio.Event(), self._news
        news.set()


@dataclass
class Client:
    """One process's connection: a `Cluster`. After a fault that is no API error, the process is dead."""

    api: Api
    fault: Fault
    dead: BaseException | None = None
    calls: list[Call] = field(default_factory=list)

    async def list(self, source: Source, token: str = "") -> Page:
        """See `Cluster.list`."""
        return await self._request(
            Call("list", source.kind, "", None, source.namespace or ""), lambda: self.api.page(source, token)
        )

    async def watch(self, source: Source, version: str) -> AsyncGenerator[WatchEvent, None]:
        """See `Cluster.watch`."""
        await self._request(Call("watch", source.kind, "", None, source.namespace or ""), lambda: None)
        async for event in self.api.events(source, version):
            yield event

    async def get(self, ref: Ref) -> Manifest:
        """See `Cluster.get`."""
        act = lambda: self.api.get(ref.kind, ref.namespace or "", ref.name)  # noqa: E731
        return await self._request(Call("get", ref.kind, ref.name), act)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        call = Call("create", kind, manifest["metadata"]["name"], manifest)
        return await self._request(call, lambda: self.api.create(kind, manifest))

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See `Cluster.replace`."""
        call = Call("update", kind, manifest["metadata"]["name"], manifest)
        return await self._request(call, lambda: self.api.replace(kind, manifest))

    async def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """See `Cluster.patch`."""
        call = Call("patch", ref.kind, ref.name, change)
        return await self._request(call, lambda: self.api.patch(ref, change, subresource))

    async def delete(self, ref: Ref, *, uid: str, grace: int | None = None) -> Manifest | None:
        """See `Cluster.delete`."""
        return await self._request(
            Call("delete", ref.kind, ref.name), lambda: self.api.delete(ref, uid=uid, grace=grace)
        )

    async def _request(self, call: Call, act: Callable[[], T]) -> T:
        """Send a request: others have their turn before and after, as on a network."""
        await self._pass(call, "before")
        if self.api.down:
            raise Unavailable("connection refused")
        self.calls.append(call)
        self.api.calls.append(call)
        found = act()
        await self._pass(call, "after")
        return found

    async def _pass(self, call: Call, moment: str) -> None:
        await asyncio.sleep(0)
        if self.dead is not None:
            raise self.dead
        try:
            self.fault(call, moment)
        except ClusterError:
            raise
        except BaseException as death:
            self.dead = death
            raise


def merged(before: Any, change: Any) -> Any:
    """Return a value with a JSON merge patch applied (RFC 7386)."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    found = dict(before) if isinstance(before, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def _selects(source: Source, manifest: Manifest) -> bool:
    if source.namespace is not None and manifest["metadata"].get("namespace", "") != source.namespace:
        return False
    wanted = [part.split("=") for part in source.selector.split(",") if part]
    fields = [part.split("=") for part in source.fields.split(",") if part]
    known = {"source": manifest.get("source", {}).get("component")}  # the only field that the controller selects by
    return all(manifest["metadata"].get("labels", {}).get(key) == value for key, value in wanted) and all(
        known[key] == value for key, value in fields
    )


def _stamp() -> str:
    return virtual.now().strftime("%Y-%m-%dT%H:%M:%SZ")
