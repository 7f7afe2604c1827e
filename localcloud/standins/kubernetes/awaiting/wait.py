"""The loop that asks a decider until an object is ready, and the one that waits until it is gone.

Each turn reads the object and what belongs to it, decides, and sleeps on a watch of the object, which a change ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from localcloud.standins.kubernetes.awaiting import others, pods, workloads
from localcloud.standins.kubernetes.awaiting.conditions import decider
from localcloud.standins.kubernetes.awaiting.decision import Decision, Failed, Ready, Related, Waiting
from localcloud.standins.kubernetes.client import Cluster
from localcloud.standins.kubernetes.errors import ApiError, ClusterError, Unreachable
from localcloud.standins.kubernetes.kinds import group_of
from localcloud.standins.kubernetes.metadata import (
    SKIP_AWAIT,
    WAIT_FOR,
    Object,
    annotated_true,
    annotation,
    name,
    namespace,
)

TURN_SECONDS: Final = 10
"""How long a watch is waited on before everything is read anew: pods' troubles do not always change their owner."""
DEFAULT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 1.0
"""For Services, whose readiness shows in other objects, and after an error."""

Decide = Callable[[Object, Related], Decision]


@dataclass(frozen=True)
class Awaiter:
    """How to wait for a kind.

    Args:
        decide: the pure decision.
        related: which members of `Related` it looks at.
        seconds: how long at most, unless the resource says otherwise.
        on_read: whether `refresh` reports an object of the kind that is not ready.
    """

    decide: Decide
    related: tuple[str, ...] = ()
    seconds: float = DEFAULT_SECONDS
    on_read: bool = True


_AWAITERS: Final[dict[tuple[str, str], Awaiter]] = {
    ("apps", "Deployment"): Awaiter(workloads.decide_deployment, ("replica_sets", "pods", "claims")),
    ("apps", "StatefulSet"): Awaiter(workloads.decide_stateful_set, ("pods",)),
    ("apps", "DaemonSet"): Awaiter(workloads.decide_daemon_set, ("pods",)),
    ("batch", "Job"): Awaiter(workloads.decide_job, ("pods",)),
    ("", "Pod"): Awaiter(pods.decide_pod),
    ("", "ReplicationController"): Awaiter(workloads.decide_replication_controller, on_read=False),
    ("", "Service"): Awaiter(others.decide_service, ("endpoint_slices",)),
    ("networking.k8s.io", "Ingress"): Awaiter(others.decide_ingress),
    ("", "PersistentVolume"): Awaiter(others.decide_volume, seconds=300, on_read=False),
    ("", "PersistentVolumeClaim"): Awaiter(others.decide_claim, ("storage_class",), seconds=300, on_read=False),
    ("", "ResourceQuota"): Awaiter(others.decide_quota, seconds=60, on_read=False),
    ("", "Secret"): Awaiter(others.decide_secret, seconds=5, on_read=False),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Awaiter(others.decide_definition, seconds=60, on_read=False),
}
_SKIPS_DELETE_WAIT: Final = frozenset(
    {"DaemonSet", "Deployment", "Job", "Namespace", "Pod", "ReplicationController", "StatefulSet"}
)
"""Kinds whose `skipAwait` means deletion too, as it always did in pulumi-kubernetes (#1232)."""


class NotReady(Exception):
    """The object did not become ready, or (`gone_wanted`) did not go; the last live object and why."""

    def __init__(self, live: Object, reasons: tuple[str, ...], *, gone_wanted: bool = False) -> None:
        super().__init__("; ".join(reasons))
        self.live = live
        self.gone_wanted = gone_wanted
        self.reasons = reasons


def awaiter_for(obj: Object, inputs: Object) -> Awaiter | None:
    """How to wait for an object; None when there is nothing to wait for, or its annotation says not to."""
    if annotated_true(inputs, SKIP_AWAIT):
        return None
    expression = annotation(inputs, WAIT_FOR)
    if expression:
        return Awaiter(decider(expression), on_read=False)
    return _AWAITERS.get((group_of(str(obj.get("apiVersion"))), str(obj.get("kind"))))


def skips_delete_wait(inputs: Object) -> bool:
    """Whether the object's deletion is not waited for."""
    return annotated_true(inputs, SKIP_AWAIT) and inputs.get("kind") in _SKIPS_DELETE_WAIT


@dataclass(frozen=True)
class Waiter:
    """Waits on one cluster.

    Args:
        cluster: the client.
        cancelled: set when the user gave up.
        progress: takes (is a warning, message).
    """

    cluster: Cluster
    cancelled: threading.Event
    progress: Callable[[bool, str], None]

    def until_ready(self, live: Object, awaiter: Awaiter, deadline: float) -> Object:
        """The live object once it is ready.

        Args:
            live: the object as the API server last gave it.
            deadline: on the monotonic clock.

        Raises:
            NotReady: it failed, the deadline passed, the user gave up, or the object was deleted meanwhile.
        """
        said: set[str] = set()
        while True:
            try:
                live = self.cluster.get(live)
                decision = awaiter.decide(live, self.related(live, awaiter.related))
            except ApiError as error:
                if error.not_found:
                    raise NotReady(live, ("the object was deleted while waiting for it",)) from error
                decision = Waiting(f"the API server answers: {error}", (str(error),))
            except Unreachable as error:
                decision = Waiting(str(error), (str(error),))
            if isinstance(decision, Ready):
                return live
            if isinstance(decision, Failed):
                raise NotReady(live, decision.problems)
            self._say(decision, said)
            if self.cancelled.is_set():
                raise NotReady(live, ("Resource operation was cancelled for " + _label(live), *decision.problems))
            left = deadline - time.monotonic()
            if left <= 0:
                raise NotReady(live, (f"timed out waiting to be Ready: {_label(live)}", *decision.problems))
            self._sleep(live, min(left, TURN_SECONDS), awaiter)

    def check(self, live: Object, awaiter: Awaiter) -> tuple[str, ...]:
        """Why a live object isn't ready at this moment; empty when it is."""
        decision = awaiter.decide(live, self.related(live, awaiter.related))
        if isinstance(decision, Ready):
            return ()
        return decision.problems or ("the resource is not ready",)

    def until_gone(self, obj: Object, deadline: float) -> None:
        """Waits until the object, or the one of the same name that was meant, is gone.

        Raises:
            NotReady: it is still there at the deadline; the reason names what holds it.
        """
        uid = obj.get("metadata", {}).get("uid")
        while True:
            try:
                live = self.cluster.get(obj)
            except ApiError as error:
                if error.not_found:
                    return
                raise
            if uid and live["metadata"].get("uid") != uid:
                return
            finalizers = live["metadata"].get("finalizers") or live.get("spec", {}).get("finalizers") or []
            reason = f"{_label(live)} still exists" + (f" (finalizers: {', '.join(finalizers)})" if finalizers else "")
            self.progress(False, reason)
            left = deadline - time.monotonic()
            if left <= 0 or self.cancelled.is_set():
                raise NotReady(live, (f"timed out waiting for deletion: {reason}",), gone_wanted=True)
            self._sleep(live, min(left, TURN_SECONDS), None)

    def related(self, live: Object, wanted: tuple[str, ...]) -> Related:
        """The objects that a decision looks at."""
        where = namespace(live)
        listed = {
            "pods": lambda: self.cluster.list_objects("v1", "Pod", where),
            "replica_sets": lambda: self.cluster.list_objects("apps/v1", "ReplicaSet", where),
            "claims": lambda: self.cluster.list_objects("v1", "PersistentVolumeClaim", where),
            "endpoint_slices": lambda: self.cluster.list_objects(
                "discovery.k8s.io/v1", "EndpointSlice", where, labels=f"kubernetes.io/service-name={name(live)}"
            ),
        }
        found = {key: tuple(listed[key]()) for key in wanted if key in listed}
        storage_class = self._storage_class(live) if "storage_class" in wanted else None
        return Related(**found, storage_class=storage_class)

    def _storage_class(self, claim: Object) -> Object | None:
        wanted = claim.get("spec", {}).get("storageClassName")
        if not wanted:
            return None
        try:
            return self.cluster.get(
                {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": wanted}}
            )
        except ApiError:
            return None

    def _say(self, decision: Waiting, said: set[str]) -> None:
        for warning, message in [(False, decision.message), *((True, text) for text in decision.warnings)]:
            if message not in said:
                said.add(message)
                self.progress(warning, message)

    def _sleep(self, live: Object, seconds: float, awaiter: Awaiter | None) -> None:
        """Until the object changes, the seconds are over, or the user gives up."""
        if awaiter is not None and "endpoint_slices" in awaiter.related:
            seconds = min(seconds, _POLL_SECONDS)
        if seconds <= _POLL_SECONDS:
            self.cancelled.wait(seconds)
            return
        query = {
            "fieldSelector": f"metadata.name={name(live)}",
            "resourceVersion": str(live["metadata"]["resourceVersion"]),
        }
        try:
            kind = self.cluster.resource_type(str(live.get("apiVersion")), str(live.get("kind")))
            next(self.cluster.watch(kind.path(namespace(live)), query, int(seconds)), None)
        except ClusterError:
            self.cancelled.wait(_POLL_SECONDS)


def _label(obj: Object) -> str:
    where = namespace(obj)
    return f"{obj.get('kind')} {where + '/' if where else ''}{name(obj)}"
