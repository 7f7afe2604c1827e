"""What Karpenter says of the pods that no node has room for: why no node comes, in its own words.

    hearing = Hearing(cluster, None, changed)
    hearing.waits(uid, True)                # a pod has found no room
    await hearing.run()                     # a task of its own: watches while a pod waits
    hearing.told(uid, now)                  # Told("VcpuLimitExceeded", "insufficient capacity, ...")

The scheduler only knows that no node has room. Karpenter records Kubernetes events about why none comes:

- `FailedScheduling` about the pod: no instance type fits it, or the NodePool's limit is reached;
- `Nominated` about the pod: a NodeClaim was made for it;
- `InsufficientCapacityError` about that NodeClaim, with EC2's own words, which name instance types, zones and quotas.

(Karpenter v1.14: `scheduling/events.go` and `nodeclaim/lifecycle/launch.go` below `pkg/controllers` of its core.)

They are watched, in one request for all jobs, and only while a pod has found no room. So a cluster in which nothing
waits is asked nothing, one without Karpenter has nothing to say, and the number of requests doesn't depend on that of
the jobs. The NodeClaims themselves would not do: one without capacity is deleted at once, and without Karpenter there
is no such kind. To list the events of single pods would have to be repeated for as long as they wait, and the API
server reads all events of a namespace for each such request. A watch needs no right but `watch`, and begins with the
events that exist.

Without that right, or without events, a person is told the scheduler's words.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from controller.cluster.client import EVENTS, Cluster, Manifest, Source
from controller.cluster.errors import ClusterError, Gone, Refused
from controller.cluster.mirror import FORBIDDEN_SECONDS, Key, Report, pause
from controller.decide.observed import NODE_STARTING

KARPENTER = "karpenter"
"""The source of its events."""

FAILED_SCHEDULING, NOMINATED, INSUFFICIENT_CAPACITY = "FailedScheduling", "Nominated", "InsufficientCapacityError"
LIMITS = "NodePoolLimits"
"""Our word for a FailedScheduling because a NodePool may have no more nodes."""

SETTLE = timedelta(seconds=10)
"""After a failed attempt, a new NodeClaim counts as a node on its way only after this time: mostly it fails as well."""

SHORTAGE = timedelta(minutes=10)
"""For this long, a shortage says more than a later FailedScheduling: Karpenter doesn't try an offering again for three
minutes after a shortage, and meanwhile only says that there is no offering."""

STALE = timedelta(minutes=20)
"""Karpenter repeats itself every five minutes while it has the same trouble; what is older than this may be over."""

REMEMBERED = 4096
"""Pods, and NodeClaims, of which something is remembered; the oldest are forgotten."""

_CLAIM = re.compile(r"\bnodeclaim/([a-z0-9][a-z0-9.-]*)")
_CODE = re.compile(r"fleet error\(s\), ([A-Z][A-Za-z.]+): ")
_LIMITED = re.compile(r"\blimits\b.*\bnodepool\b")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

V = TypeVar("V")


class Told(NamedTuple):
    """Why a pod has no room yet: in one word, and in Karpenter's words if it has trouble. Both empty: nothing is known.

    ``until``: when something else is told of it although Karpenter says nothing more; None: never.
    """

    reason: str = ""
    why: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that Karpenter said, and when it last did."""

    at: datetime
    told: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The last that Karpenter has said of a pod.

    Attributes:
        key: The pod.
        failure: Why it can't make a NodeClaim.
        shortage: Why the cloud had no instance for the NodeClaim.
        claim: The last NodeClaim that was made for the pod.
        claimed: When.
    """

    key: Key
    failure: Said | None = None
    shortage: Said | None = None
    claim: str = ""
    claimed: datetime = _LONG_AGO


class Hearing:
    """Watches Karpenter's events while a pod waits for room.

    Args:
        cluster: Where to watch.
        namespace: Of the pods; None: all namespaces. Events about NodeClaims are seen only with all.
        changed: Called with a pod's key and uid when something else may be told of it.
        report: Called when the API server refuses the watch.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str | None,
        changed: Callable[[Key, str], None],
        report: Report = lambda plural, error: None,
    ) -> None:
        self._cluster = cluster
        self._source = Source(EVENTS, namespace, fields=f"source={KARPENTER}")
        self._changed = changed
        self._report = report
        self._waiting: set[str] = set()
        self._wanted = asyncio.Event()
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._shortages: OrderedDict[str, Said] = OrderedDict()

    def waits(self, uid: str, waits: bool) -> None:
        """Note whether a pod waits for room."""
        if waits:
            self._waiting.add(uid)
            self._wanted.set()
        elif uid in self._waiting:
            self._waiting.discard(uid)
            self._records.pop(uid, None)
            if not self._waiting:
                self._wanted.clear()

    def told(self, uid: str, now: datetime) -> Told:
        """Return why no node comes for a pod."""
        record = self._records.get(uid)
        return Told() if record is None else told(record, now)

    async def run(self) -> None:
        """Watch, for ever."""
        version, failures = "", 0
        while True:
            await self._wanted.wait()
            try:
                async with contextlib.aclosing(self._cluster.watch(self._source, version)) as events:
                    async for event in events:
                        version, failures = event.object["metadata"]["resourceVersion"], 0
                        if event.type in ("ADDED", "MODIFIED"):
                            self._hear(event.object)
                        if not self._wanted.is_set():
                            break
            except Gone:
                version = ""  # begins with the events that exist
            except Refused as refused:
                self._report(EVENTS.plural, refused)
                await asyncio.sleep(FORBIDDEN_SECONDS)
            except ClusterError:
                pass  # mostly Karpenter has said nothing for long; what else it may be, the mirrors report
            await asyncio.sleep(pause(failures))
            failures += 1

    def _hear(self, event: Manifest) -> None:
        about, reason = event.get("involvedObject") or {}, event.get("reason")
        if about.get("kind") == "Pod" and reason in (FAILED_SCHEDULING, NOMINATED):
            uid = str(about.get("uid", ""))
            before = self._records.get(uid, Record(key=Key(about.get("namespace", ""), about.get("name", ""))))
            self._note(uid, before, heard(before, event, self._shortages.get(claim_of(event))))
        elif about.get("kind") == "NodeClaim" and reason == INSUFFICIENT_CAPACITY:
            name, said = str(about.get("name", "")), shortage(event)
            _keep(self._shortages, name, said)
            for uid, record in [each for each in self._records.items() if each[1].claim == name]:
                self._note(uid, record, replace(record, shortage=latest(record.shortage, said)))

    def _note(self, uid: str, before: Record, after: Record) -> None:
        if after == before:
            return
        _keep(self._records, uid, after)
        self._changed(after.key, uid)


def told(record: Record, now: datetime) -> Told:
    """Return why no node comes for a pod, from what Karpenter has said of it."""
    trouble, starting = record.failure, Told(NODE_STARTING)
    if record.shortage is not None and (trouble is None or trouble.at - record.shortage.at <= SHORTAGE):
        trouble = record.shortage
    if trouble is None or now - trouble.at > STALE:
        return starting if record.claim else Told()
    if record.claimed <= trouble.at:
        return trouble.told
    settled = record.claimed + SETTLE
    return starting if settled <= now else trouble.told._replace(until=settled)


def heard(record: Record, event: Manifest, claims_shortage: Said | None) -> Record:
    """Return what is known of a pod after an event about it.

    Args:
        record: What was known.
        event: Of reason FailedScheduling or Nominated.
        claims_shortage: What has been said of the NodeClaim that the event names.
    """
    at, message = moment(event), str(event.get("message", ""))
    if event["reason"] == FAILED_SCHEDULING:
        why = message.removeprefix("Failed to schedule pod, ")
        said = Said(at, Told(LIMITS if _LIMITED.search(why) else FAILED_SCHEDULING, why))
        return replace(record, failure=latest(record.failure, said))
    if at <= record.claimed:
        return record
    merged = record.shortage if claims_shortage is None else latest(record.shortage, claims_shortage)
    return replace(record, claim=claim_of(event), claimed=at, shortage=merged)


def claim_of(event: Manifest) -> str:
    """Return the NodeClaim that an event about a pod names; empty if it names none."""
    found = _CLAIM.search(str(event.get("message", "")))
    return found[1] if found else ""


def shortage(event: Manifest) -> Said:
    """Return what an event of reason InsufficientCapacityError says: the first of EC2's error codes, and its words."""
    message = str(event.get("message", ""))
    why = message.removeprefix(f"NodeClaim {event['involvedObject'].get('name', '')} event: ")
    code = _CODE.search(why)
    return Said(moment(event), Told(code[1] if code else INSUFFICIENT_CAPACITY, why))


def latest(before: Said | None, after: Said) -> Said:
    """Return the later of two of a kind. If both have the same reason, the words are the earlier ones.

    With every attempt EC2 lists its errors in another order, and Karpenter cuts them off: without this, the status of
    each job that waits would be written again every few minutes.
    """
    if before is None:
        return after
    first, last = sorted((before, after), key=lambda said: said.at)
    return replace(first, at=last.at) if first.told.reason == last.told.reason else last


def moment(event: Manifest) -> datetime:
    """Return when an event last happened."""
    series: dict[str, Any] = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return datetime.fromisoformat(text)
    created = event["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(created) if created else _LONG_AGO


def _keep(records: OrderedDict[str, V], key: str, value: V) -> None:
    records[key] = value
    records.move_to_end(key)
    if len(records) > REMEMBERED:
        records.popitem(last=False)
