"""What Karpenter's events say of the pods that no node has room for: why no node comes, in its own words.

    record = heard(record, event, said_of_its_claim)
    explanation(record, now)                # Explanation("VcpuLimitExceeded", "insufficient capacity, ...")

The scheduler only knows that no node has room. Karpenter records Kubernetes events about why none comes:

- `FailedScheduling` about the pod: no instance type fits it, or the NodePool's limit is reached;
- `Nominated` about the pod: a NodeClaim was made for it;
- `InsufficientCapacityError` about that NodeClaim, with EC2's own words, which name instance types, zones and quotas.

(Karpenter v1.14: `scheduling/events.go` and `nodeclaim/lifecycle/launch.go` below `pkg/controllers` of its core.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tidewater.controller.cluster.client import Manifest
from tidewater.controller.cluster.mirror import Key
from tidewater.elasticjob.names import NODE_STARTING

FAILED_SCHEDULING, NOMINATED, INSUFFICIENT_CAPACITY = "FailedScheduling", "Nominated", "InsufficientCapacityError"
LIMITS = "NodePoolLimits"
"""Our word for a FailedScheduling because a NodePool may have no more nodes."""

SETTLE = timedelta(seconds=10)
"""After a failed attempt, a new NodeClaim counts as a node on its way only after this time: mostly it fails as well."""

SHORTAGE = timedelta(minutes=10)
"""For this long, a shortage says more than a later FailedScheduling: Karpenter doesn't try an offering again for three
minutes after a shortage, and meanwhile only says that there is no offering."""

STALE = timedelta(minutes=20)
"""Karpenter repeats itself every two to five minutes while nothing changes, and gives a NodeClaim up if its node isn't
there after 15 minutes; what is older than this may be over."""

_CLAIM = re.compile(r"\bnodeclaim/([a-z0-9][a-z0-9.-]*)")
_CODE = re.compile(r"fleet error\(s\), ([A-Z][A-Za-z.]+): ")
_LIMITED = re.compile(r"\blimits\b.*\bnodepool\b")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Explanation(NamedTuple):
    """Why a pod has no room yet: in one word, and in Karpenter's words if it has trouble. Both empty: nothing is known.

    ``until``: when the explanation changes although Karpenter says nothing more; None: never.
    """

    reason: str = ""
    why: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that Karpenter said, and when it last did."""

    at: datetime
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The last that Karpenter has said of a pod.

    Attributes:
        key: The pod.
        failure: Why it can't make a NodeClaim.
        refusal: Why the cloud gave no instance for the NodeClaim.
        claim: The last NodeClaim that was made for the pod.
        claimed: When, or when Karpenter last said so.
    """

    key: Key
    failure: Said | None = None
    refusal: Said | None = None
    claim: str = ""
    claimed: datetime = _LONG_AGO


def explanation(record: Record, now: datetime, *, gone: bool = False) -> Explanation:
    """Return why no node comes for a pod, from what Karpenter has said of it.

    Args:
        record: What it has said.
        now: The time.
        gone: Whether the pod's NodeClaim doesn't exist any more.
    """
    trouble = record.failure
    if record.refusal is not None and (trouble is None or trouble.at - record.refusal.at <= SHORTAGE):
        trouble = record.refusal
    starting = Explanation()
    if record.claim and not gone and now < record.claimed + STALE:
        starting = Explanation(NODE_STARTING, until=record.claimed + STALE)
    if trouble is None or now >= trouble.at + STALE:
        return starting
    if record.claimed <= trouble.at or not starting.reason:
        return trouble.explanation._replace(until=trouble.at + STALE)
    settled = record.claimed + SETTLE
    return starting if settled <= now else trouble.explanation._replace(until=settled)


def heard(record: Record, event: Manifest, of_claim: Said | None) -> Record:
    """Return what is known of a pod after an event about it.

    Args:
        record: What was known.
        event: Of reason FailedScheduling or Nominated.
        of_claim: Why the cloud gave no instance for the NodeClaim that the event names.
    """
    at, message = moment(event), str(event.get("message", ""))
    if event["reason"] == FAILED_SCHEDULING:
        why = message.removeprefix("Failed to schedule pod, ")
        said = Said(at, Explanation(LIMITS if _LIMITED.search(why) else FAILED_SCHEDULING, why))
        return record if record.failure is not None and at < record.failure.at else replace(record, failure=said)
    if at <= record.claimed:
        return record
    after = replace(record, claim=claim_of(event), claimed=at)
    return after if of_claim is None else refused(after, of_claim)


def refused(record: Record, of_claim: Said) -> Record:
    """Return what is known of a pod when the cloud gives no instance for its NodeClaim.

    It holds for as long as that NodeClaim is there, also if Karpenter says again that the pod belongs on it.
    """
    said = replace(of_claim, at=max(of_claim.at, record.claimed))
    return replace(record, refusal=latest(record.refusal, said))


def claim_of(event: Manifest) -> str:
    """Return the NodeClaim that an event about a pod names; empty if it names none."""
    found = _CLAIM.search(str(event.get("message", "")))
    return found[1] if found else ""


def shortage(event: Manifest) -> Said:
    """Return what an event of reason InsufficientCapacityError says: the first of EC2's error codes, and its words."""
    message = str(event.get("message", ""))
    why = message.removeprefix(f"NodeClaim {event['involvedObject'].get('name', '')} event: ")
    code = _CODE.search(why)
    return Said(moment(event), Explanation(code[1] if code else INSUFFICIENT_CAPACITY, why))


def latest(before: Said | None, after: Said) -> Said:
    """Return the later of two shortages. If both have the same reason, the words are the earlier ones.

    With every attempt EC2 lists its errors in another order, and Karpenter cuts them off: without this, the status of
    each job that waits would be written again every few minutes.
    """
    if before is None:
        return after
    first, last = sorted((before, after), key=lambda said: said.at)
    return replace(first, at=last.at) if first.explanation.reason == last.explanation.reason else last


def moment(event: Manifest) -> datetime:
    """Return when an event last happened, or when another object was created."""
    series: dict[str, Any] = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return datetime.fromisoformat(text)
    created = event["metadata"].get("creationTimestamp")
    return datetime.fromisoformat(created) if created else _LONG_AGO
