"""Kubernetes events about jobs, few and late rather than many and at once.

    recorder = Recorder(cluster, identity)
    recorder.record(about(job), "Normal", "SuccessfulCreatePod", "Created pod imagenet-worker-0")
    await recorder.run()            # sends; a task of its own

Recording costs nothing and never fails: events tell people what happened, nothing depends on them. They are sent in
the background, at most `RATE` a second, so that the creation of a thousand jobs is not slowed down by its own
narration. An event that happens again is counted in the one that exists, and many different ones with the same reason
about the same job become one. If more events wait than `WAITING`, the newest are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from tidewater.controller.cluster.client import Cluster, Manifest, Ref
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob
from tidewater.kube.errors import ClusterError, Unavailable
from tidewater.kube.kinds import EVENTS

RATE = 20.0
"""Events sent per second, at most."""

WAITING = 2000
"""Events that may wait to be sent."""

SIMILAR = 10
"""Different messages with the same reason about the same job, before further ones are combined."""

REMEMBERED = 4096
"""Events that are counted up rather than created again; the oldest are forgotten."""

_MESSAGE_LENGTH = 1024  # of the API's validation
_RETRY_SECONDS = 2.0
_COMBINED = "(combined from similar events; each one is in the controller's log)"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class About:
    """The job that an event is about."""

    namespace: str
    name: str
    uid: str


def about(job: ElasticJob) -> About:
    """Return the reference to a job."""
    return About(job.namespace, job.name, job.uid)


@dataclass(frozen=True)
class Event:
    """What is recorded: equal ones are counted, not repeated."""

    job: About
    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Series:
    """How often an event has happened and when; ``name`` is that of its object, empty before it is created."""

    first: datetime
    last: datetime
    count: int = 1
    name: str = ""


class _Remembered(OrderedDict[K, V]):
    """A dict that forgets its oldest entries beyond `REMEMBERED`."""

    def keep(self, key: K, value: V) -> None:
        """Add an entry or make it the newest."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


def manifest(event: Event, series: Series, name: str, identity: str) -> Manifest:
    """Return the object of an event."""
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": event.job.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": event.job.namespace,
            "name": event.job.name,
            "uid": event.job.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_MESSAGE_LENGTH],
        "count": series.count,
        "firstTimestamp": _stamp(series.first),
        "lastTimestamp": _stamp(series.last),
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": identity,
    }


class Recorder:
    """Records events and sends them later.

    Args:
        cluster: Where to send them.
        identity: Which replica of the controller this is.
        now: Returns the time.
        dropped: Called for each event that is given up.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._now = now
        self._dropped = dropped
        self._pending: OrderedDict[Event, Series] = OrderedDict()
        self._sent: _Remembered[Event, Series] = _Remembered()
        self._messages: _Remembered[tuple[About, str], set[str]] = _Remembered()
        self._recorded = asyncio.Event()

    def record(self, job: About, type: str, reason: str, message: str) -> None:
        """Record an event; `type` is Normal or Warning."""
        event, now = self._combined(Event(job, type, reason, message)), self._now()
        waiting = self._pending.get(event)
        if waiting is not None:
            self._pending[event] = replace(waiting, last=now, count=waiting.count + 1)
        elif len(self._pending) >= WAITING:
            self._dropped()
        else:
            self._pending[event] = Series(now, now)
            self._recorded.set()

    async def run(self) -> None:
        """Send what is recorded, for ever."""
        while True:
            while not self._pending:
                self._recorded.clear()
                await self._recorded.wait()
            event, series = self._pending.popitem(last=False)
            try:
                await self._send(event, series)
            except Unavailable:
                self._pending.setdefault(event, series)
                await asyncio.sleep(_RETRY_SECONDS)
            except ClusterError:  # the namespace is going, or an administrator allows no events
                self._dropped()
            await asyncio.sleep(1.0 / RATE)

    async def _send(self, event: Event, series: Series) -> None:
        """Create the event, or count it up if it exists."""
        sent = self._sent.get(event)
        if sent is not None:
            total = replace(sent, last=series.last, count=sent.count + series.count)
            change: dict[str, Any] = {
                "count": total.count,
                "lastTimestamp": _stamp(total.last),
                "message": event.message[:_MESSAGE_LENGTH],
            }
            try:
                await self._cluster.patch(Ref(EVENTS, event.job.namespace, sent.name), change)
            except Unavailable:
                raise
            except ClusterError:  # the API server has deleted it: events live for an hour
                del self._sent[event]
            else:
                self._sent.keep(event, total)
                return
        name = f"{event.job.name}.{time.time_ns():x}"
        await self._cluster.create(EVENTS, manifest(event, series, name, self._identity))
        self._sent.keep(event, replace(series, name=name))

    def _combined(self, event: Event) -> Event:
        """Return the event, without its message if too many others like it were recorded."""
        key = (event.job, event.reason)
        messages = self._messages.get(key, set())
        if event.message not in messages and len(messages) >= SIMILAR:
            return replace(event, message=_COMBINED)
        messages.add(event.message)
        self._messages.keep(key, messages)
        return event


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
