"""Which pods leave although the job keeps its size, because of their node or for want of room.

    crew = vacated(crew, nodes)                    # pods on nodes that end are ending
    pod = mover(worker, size, nodes, endpoint)     # the worker that leaves a cordoned node, or None
    pods = giving_way(crew, shortage, nodes, endpoint)     # surge pods that leave for core pods

A node **ends** when its Node object is being deleted, which Karpenter does after a Spot interruption notice and when it
has a successor for it, or when the notice is a taint. Its pods leave at once, also below the job's minimum, so that
each has its whole grace period. The program that ends the node evicts them as well, mostly in the same second, and a
pod that is being deleted is not deleted twice. But eviction alone isn't enough: Karpenter doesn't evict pods with the
annotation `karpenter.sh/do-not-disrupt`, and a PodDisruptionBudget may hold an eviction up for longer than the two
minutes of a Spot notice.

A **cordoned** node may stay for long, and there may be no room elsewhere. So one worker at a time leaves, and only of a
job that has the size that it aims for, and its minimum without that worker. If its successor finds no room, the others
stay where they are until their nodes are drained.

A node with nothing but Karpenter's taint `karpenter.sh/disrupted` keeps its pods: Karpenter starts another node first.
Until that is ready the pods would only wait, and if it can't be had, Karpenter takes the taint away.

Pods that tolerate the taints of such nodes stay too: their successors might be placed on the same node.

**For want of room** surge pods give way to core pods of the same job: worker 0, which others may have to find, comes
before worker 7. The job keeps its minimum of pods that run.

- One gives way for each core pod that has found no room for `ROOMLESS` although Karpenter has said why it brings no
  node, or for `NODE_ARRIVES`. The surge pods without a node leave together with it, and while a core pod finds no room
  no surge pod is made: they might take what was given up. A core pod with `preemptionPolicy: Never`, or with a node on
  its way (`NodeStarting`, or `nominatedNodeName` in its status), waits.
- One at a time gives way to core pods that a quota of the namespace has refused for a while. If that doesn't help, as
  under a quota of the core pods' priority class, no further one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidewater.controller.decide.actions import DeletePod
from tidewater.controller.decide.exits import Verdict
from tidewater.controller.decide.observed import ENDED, NodeView, PodView, expects_node
from tidewater.controller.decide.queue import ROOMLESS
from tidewater.controller.decide.replica_groups import Crew
from tidewater.controller.decide.replicas import deletions
from tidewater.controller.decide.shrink import departure, endpoint_host
from tidewater.elasticjob.names import Reason
from tidewater.elasticjob.status import Status

QUOTA = "exceeded quota"
"""In what the API server says when a ResourceQuota allows no further pod.

https://kubernetes.io/docs/concepts/policy/resource-quotas/"""

NODE_ARRIVES = timedelta(minutes=3)
"""A core pod may be without room for so long before a surge pod gives way to it, if it isn't known whether a node is on
its way: the Cluster Autoscaler and node groups say nothing of it, and take one to three minutes."""

LASTING = timedelta(seconds=10)
"""A quota that has refused a pod for so long has counted the pods that are gone: Kubernetes does it a little later."""


def vacated(crew: Crew, nodes: Mapping[str, NodeView]) -> Crew:
    """Return the pods of a type as if those on nodes that end had left."""
    # Of a replica that has failed and is counted, the other pods leave without that.
    disrupted = (pod for pod, how in crew.ended if how is Verdict.REPLACE and not pod.signals)
    return crew.departed({pod.uid for pod in (*crew.live, *disrupted) if _ending(pod, nodes)})


def mover(worker: Crew, size: int, nodes: Mapping[str, NodeView], endpoint: str) -> PodView | None:
    """Return the worker that leaves a cordoned node; None if none does.

    Args:
        worker: All pods of type Worker, of a job that may have as many as it aims for.
        size: The number that it aims for.
        nodes: By name.
        endpoint: The rendezvous endpoint. The pod that it names doesn't move: the others would fail.
    """
    if worker.ending or not len(worker.active) == worker.size == size > worker.low:
        return None
    host = endpoint_host(endpoint)
    there = (pod for pod in worker.active if _cordoned(pod, nodes))
    return min((pod for pod in there if pod.name != host), key=departure(worker, nodes, endpoint), default=None)


@dataclass(frozen=True, slots=True)
class Shortage:
    """What keeps core pods of a type from running.

    Attributes:
        roomless: number of them that have found no room for long.
        refused: whether a quota refuses one, and a pod that gives way may help.
        again: when another one will have found no room for that long.
    """

    roomless: int = 0
    refused: bool = False
    again: datetime | None = None


def lasting(status: Status, crews: Iterable[Crew], now: datetime) -> bool:
    """Return whether the API server has refused pods for `LASTING`, and no pod has come or gone meanwhile.

    The status says since when, because it changes with the numbers of pods.
    """
    since, counts = status.last_reconcile_time, status.replica_statuses
    if status.waiting != Reason.FAILED_CREATE_POD or since is None or now - since < LASTING:
        return False
    return all((old := counts.get(crew.type)) and old.active + old.pending == len(crew.live) for crew in crews)


def shortage(crew: Crew, refusal: str, now: datetime) -> Shortage:
    """Return what core pods lack; `refusal` is what the API server has said of a pod for a while.

    After a pod that gave way to a refused one, no other one does before that has helped and a pod was created.
    """
    core = crew.cores()
    waiting = (pod for pod in crew.unplaced if core(pod) and not pod.patient and not expects_node(pod))
    times = [since + _waits(pod) for pod in waiting if (since := pod.unschedulable_since) is not None]
    helped = crew.yielded_at is None or crew.size > crew.yielded_at
    refused = QUOTA in refusal and helped and crew.lacking > 0
    later = min((time for time in times if time > now), default=None)
    return Shortage(sum(time <= now for time in times), refused, later)


def giving_way(crew: Crew, size: int, short: Shortage, nodes: Mapping[str, NodeView], endpoint: str) -> list[PodView]:
    """Return the surge pods that leave so that core pods get their room.

    Args:
        crew: All pods of the type.
        size: The number aimed for. A job with fewer has given pods up already, or is to get them first.
        short: What the core pods lack.
        nodes: By name.
        endpoint: The rendezvous endpoint.
    """
    if not (short.roomless or short.refused) or crew.ending:
        return []
    core = crew.cores()
    surge = sorted((pod for pod in crew.live if not core(pod)), key=departure(crew, nodes, endpoint))
    spare = max(0, len(crew.active) - crew.low)
    if short.refused:
        return [pod for pod in surge[:1] if pod.phase != "Running" or spare]
    placed = [pod for pod in surge if pod.node is not None][: min(short.roomless, spare)]
    if not placed or crew.size < size:
        return []
    return [*placed, *(pod for pod in surge if pod.node is None)]


def departures(crews: Iterable[Crew], nodes: Mapping[str, NodeView]) -> tuple[DeletePod, ...]:
    """Return the deletion of the pods that leave because of their node, or with another one of their replica, and are
    not being deleted yet.
    """
    return tuple(delete for crew in crews for pod in crew.ending for delete in _departure(pod, nodes))


def _waits(pod: PodView) -> timedelta:
    """Return how long a core pod may be without room before a surge pod gives way to it."""
    return ROOMLESS if pod.unschedulable_reason else NODE_ARRIVES


def _node(pod: PodView, nodes: Mapping[str, NodeView]) -> NodeView | None:
    """Return the node that the pod may have to leave."""
    stays = pod.node is None or pod.tolerant or pod.phase in ENDED
    return None if stays else nodes.get(pod.node or "")


def _ending(pod: PodView, nodes: Mapping[str, NodeView]) -> list[PodView]:
    """Return the pods of a replica that have not ended and are on nodes that end."""
    return [each for each in pod.parts if (node := _node(each, nodes)) is not None and node.ends]


def _cordoned(pod: PodView, nodes: Mapping[str, NodeView]) -> list[PodView]:
    """Return the pods of a replica that have not ended and are on cordoned nodes."""
    return [each for each in pod.parts if (node := _node(each, nodes)) is not None and node.cordoned]


def _departure(pod: PodView, nodes: Mapping[str, NodeView]) -> tuple[DeletePod, ...]:
    """Return the deletion of a replica that is ending."""
    if pod.terminating:
        return deletions(pod, "it is being deleted")
    ending = _ending(pod, nodes)
    cause = next(iter(ending or _cordoned(pod, nodes)), pod)
    return deletions(pod, _reason(cause, "is being shut down" if ending else "is cordoned"), cause)


def _reason(pod: PodView, how: str) -> str:
    return f"its node {pod.node} {how}, and it is replaced on another one"
