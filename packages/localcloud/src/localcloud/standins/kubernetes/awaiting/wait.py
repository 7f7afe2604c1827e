"""The loop that asks a decider until an object is ready, and the one that waits until it is gone.

Each turn reads the object and the objects related to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from localcloud.standins.kubernetes.awaiting import pods, workloads
from localcloud.standins.kubernetes.awaiting.conditions import decider
from localcloud.standins.kubernetes.awaiting.decision import Decide, Failed, Ready, Related, Waiting
from localcloud.standins.kubernetes.cluster.client import Cluster
from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.metadata import (
    SKIP_AWAIT,
    WAIT_FOR,
    Object,
    annotated_true,
    annotation,
    namespace,
    object_id,
)
from tidewater.kube.errors import ApiError, Forbidden, NoAccess, NotFound

DEFAULT_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Awaiter:
    """How to wait for a kind.

    Args:
        decide: The pure decision.
        related: The kinds of objects that it looks at.
        seconds: How long at most, unless the resource says otherwise.
        on_read: Whether `refresh` reports an object of the kind that is not ready.
    """

    decide: Decide
    related: tuple[str, ...] = ()
    seconds: float = DEFAULT_SECONDS
    on_read: bool = True


_AWAITERS: Final[dict[tuple[str, str], Awaiter]] = {
    ("apps", "Deployment"): Awaiter(workloads.decide_deployment, ("ReplicaSet", "Pod", "PersistentVolumeClaim")),
    ("apps", "StatefulSet"): Awaiter(workloads.decide_stateful_set, ("Pod",)),
    ("apps", "DaemonSet"): Awaiter(workloads.decide_daemon_set, ("Pod",)),
    ("batch", "Job"): Awaiter(workloads.decide_job, ("Pod", "Event")),
    ("", "Pod"): Awaiter(pods.decide_pod),
    ("", "Service"): Awaiter(workloads.decide_service, ("EndpointSlice",)),
    ("", "PersistentVolume"): Awaiter(workloads.decide_volume, seconds=300, on_read=False),
    ("", "PersistentVolumeClaim"): Awaiter(workloads.decide_claim, ("StorageClass",), seconds=300, on_read=False),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Awaiter(
        workloads.decide_definition, seconds=60, on_read=False
    ),
}
_GROUP_VERSIONS: Final = {
    "ReplicaSet": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
}
_OPTIONAL: Final = frozenset({"Event", "StorageClass"})
"""Kinds that an object's user may have no right to read."""
_SKIPS_DELETE_WAIT: Final = frozenset(
    {"DaemonSet", "Deployment", "Job", "Namespace", "Pod", "ReplicationController", "StatefulSet"}
)
"""For these kinds `skipAwait` also applies to deletion, as in pulumi-kubernetes (#1232)."""


class NotReady(Exception):
    """The object did not become ready, or (`gone_wanted`) is still there; the last live object and why."""

    def __init__(self, live: Object, reasons: tuple[str, ...], *, gone_wanted: bool = False) -> None:
        super().__init__("; ".join(reasons))
        self.live = live
        self.gone_wanted = gone_wanted
        self.reasons = reasons


def awaiter_for(obj: Object, inputs: Object) -> Awaiter | None:
    """Return how to wait for an object; None when there is nothing to wait for, or its annotation says not to."""
    if annotated_true(inputs, SKIP_AWAIT):
        return None
    expression = annotation(inputs, WAIT_FOR)
    if expression:
        return Awaiter(decider(expression), ("Event",), on_read=False)
    return _AWAITERS.get((group_of(str(obj.get("apiVersion"))), str(obj.get("kind"))))


def skips_delete_wait(inputs: Object) -> bool:
    """Return whether nothing waits for the object's deletion."""
    return annotated_true(inputs, SKIP_AWAIT) and inputs.get("kind") in _SKIPS_DELETE_WAIT


@dataclass(frozen=True)
class Waiter:
    """Waits on one cluster.

    Args:
        cluster: The client.
        cancelled: Set when the user cancels.
        progress: Receives (is a warning, message).
    """

    cluster: Cluster
    cancelled: threading.Event
    progress: Callable[[bool, str], None]

    def until_ready(self, live: Object, awaiter: Awaiter, deadline: float) -> Object:
        """Return the live object once it is ready.

        Args:
            live: The object as the API server last returned it.
            awaiter: How to wait for it.
            deadline: On the monotonic clock.

        Raises:
            NotReady: It failed, the deadline passed, the user cancelled, or the object was deleted meanwhile.
        """
        said: set[tuple[bool, str]] = set()
        label, pauses = _label(live), _pauses()
        while True:
            try:
                live = self.cluster.get(live)
                decision = awaiter.decide(live, self._related(live, awaiter.related))
            except (ApiError, NoAccess) as error:
                if isinstance(error, NotFound):
                    raise NotReady(live, ("the object was deleted while waiting for it",)) from error
                decision = Waiting(f"the API server answers: {error}")
            if isinstance(decision, Ready):
                return live
            if isinstance(decision, Failed):
                raise NotReady(live, decision.reasons)
            for message in [(False, decision.message), *((True, text) for text in decision.pods)]:
                if message not in said:
                    said.add(message)
                    self.progress(*message)
            if self._over(deadline, next(pauses)):
                why = (
                    "Resource operation was cancelled for"
                    if self.cancelled.is_set()
                    else "timed out waiting to be Ready:"
                )
                raise NotReady(live, (f"{why} {label}", *decision.reasons))

    def check(self, live: Object, awaiter: Awaiter) -> tuple[str, ...]:
        """Return why a live object isn't ready at this moment; empty when it is."""
        decision = awaiter.decide(live, self._related(live, awaiter.related))
        return () if isinstance(decision, Ready) else decision.reasons

    def until_gone(self, obj: Object, deadline: float) -> None:
        """Wait until the object is gone, or replaced by another of the same name.

        Raises:
            NotReady: It is still there at the deadline; the reason names its finalizers.
        """
        uid, pauses, said = obj.get("metadata", {}).get("uid"), _pauses(), ""
        while True:
            try:
                live = self.cluster.get(obj)
            except NotFound:
                return
            if uid and live["metadata"].get("uid") != uid:
                return
            finalizers = live["metadata"].get("finalizers") or live.get("spec", {}).get("finalizers") or []
            held = f" (finalizers: {', '.join(finalizers)})" if finalizers else ""
            reason = f"{_label(live)} still exists{held}"
            if reason != said:
                self.progress(False, reason)
            said = reason
            if self._over(deadline, next(pauses)):
                raise NotReady(live, (f"timed out waiting for deletion: {reason}",), gone_wanted=True)

    def _over(self, deadline: float, pause: float) -> bool:
        """Sleep, and return whether the time is up or the user cancelled."""
        left = deadline - time.monotonic()
        return left <= 0 or self.cancelled.wait(min(left, pause))

    def _related(self, live: Object, kinds: tuple[str, ...]) -> Related:
        found: dict[str, list[Object]] = {}
        for kind in kinds:
            try:
                found[kind] = self.cluster.list_objects(_GROUP_VERSIONS.get(kind, "v1"), kind, namespace(live))
            except Forbidden:
                if kind not in _OPTIONAL:
                    raise
                found[kind] = []
        return found


def _pauses() -> Iterator[float]:
    """Yield the seconds between two turns: few for what is quick, more for what takes minutes."""
    pause = 0.1
    while True:
        yield pause
        pause = min(pause * 1.5, 2.0)


def _label(obj: Object) -> str:
    return f"{obj.get('kind')} {object_id(obj)}"
