"""Which pods leave because of their node, although the job keeps its size. Others take their places elsewhere.

    crew = vacated(crew, nodes)                    # pods on nodes that end are ending
    pod = mover(worker, size, nodes, endpoint)     # the worker that leaves a cordoned node, or None

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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewater.controller.decide.actions import DeletePod
from tidewater.controller.decide.observed import NodeView, PodView
from tidewater.controller.decide.replica_groups import Crew
from tidewater.controller.decide.shrink import departure, endpoint_host


def vacated(crew: Crew, nodes: Mapping[str, NodeView]) -> Crew:
    """Return the pods of a type as if those on nodes that end had left."""
    return crew.departed({pod.uid for pod in crew.live if (node := _node(pod, nodes)) is not None and node.ends})


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
    there = (pod for pod in worker.active if (node := _node(pod, nodes)) is not None and node.cordoned)
    return min((pod for pod in there if pod.name != host), key=departure(worker, nodes, endpoint), default=None)


def departures(crews: Iterable[Crew], nodes: Mapping[str, NodeView]) -> tuple[DeletePod, ...]:
    """Return the deletion of the pods that leave because of their node and are not being deleted yet."""
    return tuple(
        DeletePod(pod.name, pod.uid, _reason(pod, nodes))
        for crew in crews
        for pod in crew.ending
        if not pod.terminating
    )


def _node(pod: PodView, nodes: Mapping[str, NodeView]) -> NodeView | None:
    """Return the node that the pod may have to leave."""
    return None if pod.node is None or pod.tolerant else nodes.get(pod.node)


def _reason(pod: PodView, nodes: Mapping[str, NodeView]) -> str:
    node = _node(pod, nodes)
    how = "is being shut down" if node is not None and node.ends else "is cordoned"
    return f"its node {pod.node} {how}, and it is replaced on another one"
