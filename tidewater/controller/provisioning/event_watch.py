"""Listens to Karpenter while a pod waits for room.

    hearing = EventWatch(cluster, (), changed)
    hearing.waits(key, uid, True)           # a pod has found no room
    await hearing.run()                     # a task of its own: watches while a pod waits
    hearing.explanation(uid, now)           # Explanation("VcpuLimitExceeded", "insufficient capacity, ...")

Karpenter's events, NodeClaims, NodePools and EC2NodeClasses are watched, in one request each for all jobs, and only
while a pod has found no room. So a cluster in which nothing waits is asked nothing, and the number of requests doesn't
depend on that of the jobs. In one without Karpenter, these kinds are looked for again every five minutes.

Neither events nor objects would do alone: a NodeClaim without capacity is deleted at once, and other trouble has no
event. To list the events of single pods would have to be repeated for as long as they wait, and the API server reads
all events of a namespace for each such request. A watch needs no right but `watch`, and begins with what exists.

Without these rights, or without events, the conditions have the scheduler's words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from tidewater.controller.cluster.client import (
    NODE_CLAIMS,
    NODE_CLASSES,
    NODE_POOLS,
    Cluster,
    Manifest,
    Source,
    WatchEvent,
    within,
)
from tidewater.controller.cluster.mirror import FORBIDDEN_SECONDS, Key, Report, pause
from tidewater.controller.provisioning.conditions import dynamic, launch, launched, node_class, unready
from tidewater.controller.provisioning.messages import (
    FAILED_SCHEDULING,
    INSUFFICIENT_CAPACITY,
    NOMINATED,
    Explanation,
    Record,
    Said,
    claim_of,
    explanation,
    heard,
    moment,
    refused,
    shortage,
)
from tidewater.elasticjob.names import NODE_STARTING
from tidewater.kube.errors import ClusterError, Gone, NotFound, Refused
from tidewater.kube.kinds import EVENTS

KARPENTER = "karpenter"
"""The source of its events."""

REMEMBERED = 4096
"""At most so many pods, and so many NodeClaims, are remembered; the oldest are forgotten."""

V = TypeVar("V")


class Pools:
    """The NodePools and node classes that exist, and what they say of themselves: can Karpenter bring nodes at all?"""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[Explanation, str]] = {}  # why it isn't ready, and its node class
        self._classes: dict[str, Explanation] = {}
        self._unready = Explanation()
        self._all = False

    def heard(self, manifest: Manifest, *, gone: bool) -> bool:
        """Take over a NodePool or a node class. Return whether the explanation of any pod may have changed."""
        name, before = manifest["metadata"]["name"], (self._unready, self._all)
        if manifest["kind"] == NODE_CLASSES.kind:
            self._classes.pop(name, None)
            if not gone:
                self._classes[name] = unready(manifest)
        else:
            self._pools.pop(name, None)
            if not gone and dynamic(manifest):
                self._pools[name] = (unready(manifest), node_class(manifest))
        # A NodePool only says which conditions of its node class don't hold; the node class says why.
        causes = [(why, self._classes.get(of, why)) for _, (why, of) in sorted(self._pools.items()) if why.reason]
        self._unready = next((of if of.reason else why for why, of in causes), Explanation())
        self._all = len(causes) == len(self._pools)
        return before != (self._unready, self._all)

    def forget(self, kind: str) -> None:
        """Forget the objects of a kind: those that still exist are heard of again."""
        if kind == NODE_CLASSES.kind:
            self._classes.clear()
        elif kind == NODE_POOLS.kind:
            self._pools.clear()

    def explanation(self, said: Explanation) -> Explanation:
        """Return why no node comes for a pod, given what Karpenter has said of it.

        If no NodePool is ready, that is the cause, and Karpenter says nothing more of any pod. If some are, those that
        aren't may be the ones that it can't be scheduled without.
        """
        if not self._unready.reason:
            return said
        if self._all:
            return self._unready
        if said.reason == FAILED_SCHEDULING:
            return said._replace(why=f"{self._unready.why}; {said.why}")
        return said


class EventWatch:
    """Watches Karpenter's events and objects while a pod waits for room.

    Args:
        cluster: Where to watch.
        namespaces: Of the pods; none: all namespaces. Events about NodeClaims are seen only with all.
        changed: Called with a pod's key and uid when its explanation may have changed.
        report: Called when the API server refuses a watch.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Sequence[str],
        changed: Callable[[Key, str], None],
        report: Report = lambda plural, error: None,
    ) -> None:
        self._cluster = cluster
        self._events = within(Source(EVENTS, fields=f"source={KARPENTER}"), namespaces)
        self._changed = changed
        self._report = report
        self._waiting: dict[str, Key] = {}
        self._wanted = asyncio.Event()
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._refusals: OrderedDict[str, Said] = OrderedDict()  # by NodeClaim
        self._gone: OrderedDict[str, None] = OrderedDict()  # NodeClaims
        self._pools = Pools()

    def waits(self, key: Key, uid: str, waits: bool) -> None:
        """Note whether a pod waits for room."""
        if waits:
            self._waiting[uid] = key
            self._wanted.set()
        elif self._waiting.pop(uid, None) is not None:
            self._records.pop(uid, None)
            if not self._waiting:
                self._wanted.clear()

    def explanation(self, uid: str, now: datetime) -> Explanation:
        """Return why no node comes for a pod."""
        record = self._records.get(uid)
        said = Explanation() if record is None else explanation(record, now, gone=record.claim in self._gone)
        return said if said.reason == NODE_STARTING else self._pools.explanation(said)

    async def run(self) -> None:
        """Watch, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for events in self._events:
                tasks.create_task(self._watch(events, self._hear_event))
            tasks.create_task(self._watch(Source(NODE_CLAIMS), self._hear_claim))
            for kind in (NODE_POOLS, NODE_CLASSES):
                tasks.create_task(self._watch(Source(kind), self._hear_pool))

    async def _watch(self, source: Source, hear: Callable[[WatchEvent], None]) -> None:
        version, failures = "", 0
        while True:
            await self._wanted.wait()
            try:
                async with contextlib.aclosing(self._cluster.watch(source, version)) as events:
                    async for event in events:
                        version, failures = event.object["metadata"]["resourceVersion"], 0
                        if event.type != "BOOKMARK":
                            hear(event)
                        if not self._wanted.is_set():
                            break
            except Gone:
                version = ""  # begins with what exists
                self._pools.forget(source.kind.kind)
            except NotFound:  # a cluster without Karpenter
                await asyncio.sleep(FORBIDDEN_SECONDS)
            except Refused as refusal:
                self._report(source.kind.plural, refusal)
                await asyncio.sleep(FORBIDDEN_SECONDS)
            except ClusterError:
                pass  # mostly nothing has happened for long; what else it may be, the mirrors report
            await asyncio.sleep(pause(failures))
            failures += 1

    def _hear_event(self, heard_of: WatchEvent) -> None:
        if heard_of.type == "DELETED":
            return
        event = heard_of.object
        about, reason = event.get("involvedObject") or {}, event.get("reason")
        if about.get("kind") == "Pod" and reason in (FAILED_SCHEDULING, NOMINATED):
            uid = str(about.get("uid", ""))
            before = self._records.get(uid, Record(key=Key(about.get("namespace", ""), about.get("name", ""))))
            self._note(uid, before, heard(before, event, self._refusals.get(claim_of(event))))
        elif about.get("kind") == "NodeClaim" and reason == INSUFFICIENT_CAPACITY:
            self._refused(str(about.get("name", "")), shortage(event))

    def _hear_claim(self, event: WatchEvent) -> None:
        claim = event.object
        name = claim["metadata"]["name"]
        if event.type == "DELETED" or claim["metadata"].get("deletionTimestamp"):
            if name not in self._gone:
                _keep(self._gone, name, None)
                for uid, record in self._claimed(name):
                    self._changed(record.key, uid)
        elif launched(claim):
            if self._refusals.pop(name, None) is not None:
                for uid, record in self._claimed(name):
                    self._note(uid, record, replace(record, refusal=None))
        elif (failure := launch(claim)).reason:
            self._refused(name, Said(moment(claim), failure))

    def _hear_pool(self, event: WatchEvent) -> None:
        if self._pools.heard(event.object, gone=event.type == "DELETED"):
            for uid, key in self._waiting.items():
                self._changed(key, uid)

    def _refused(self, claim: str, said: Said) -> None:
        _keep(self._refusals, claim, said)
        for uid, record in self._claimed(claim):
            self._note(uid, record, refused(record, said))

    def _claimed(self, claim: str) -> list[tuple[str, Record]]:
        """Return the pods for which a NodeClaim was made."""
        return [each for each in self._records.items() if each[1].claim == claim]

    def _note(self, uid: str, before: Record, after: Record) -> None:
        if after == before:
            return
        _keep(self._records, uid, after)
        self._changed(after.key, uid)


def _keep(records: OrderedDict[str, V], key: str, value: V) -> None:
    records[key] = value
    records.move_to_end(key)
    if len(records) > REMEMBERED:
        records.popitem(last=False)
