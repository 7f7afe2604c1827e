"""Which pods leave when there are too many.

The order: pods that have failed; pods that have succeeded; Pending pods, first those without a node; pods on doomed
nodes; then all others. Of pods in the same state, surge pods leave before core pods (those of the minimum: see
`Crew.cores`), and then the highest index. A core pod therefore leaves only if every surge pod that is left is in a
better state. A surge pod that runs is not removed to keep a core pod that doesn't: the job would have one worker less,
and might fall below its minimum. Because the number of pods aimed for is never below the minimum, a core pod that runs
on a sound node never leaves by shrinking.

Where Karpenter brings nodes, it also takes those away that are empty, so pods on its nodes leave before those on others
in the same state, and as many of its nodes as possible become empty: of nodes with several pods of the job, those with
the fewest are emptied first, and those that a core pod keeps last. Only then the highest index decides; with one
worker on each node, it decides alone. Other nodes don't go because they are empty, as far as this can tell.

One pod leaves after all others: the rendezvous endpoint's host, as launcher torchrun often has it.
Without it no worker finds the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from tidewater.controller.decide.observed import NodeView, PodView, doomed
from tidewater.controller.decide.replica_groups import Crew

FAILED, SUCCEEDED, UNPLACED, STARTING, DOOMED, SOUND = range(6)

Place = tuple[bool, bool, int, int]
"""When the pods of a node leave: not brought by Karpenter; kept by a core pod; number of pods; minus the highest index.

Pods of the same node have the same place, so that they leave together."""

ANYWHERE: Place = (True, False, 0, 0)
"""The place of all pods if their node doesn't matter."""

Order = tuple[bool, int, bool, Place, int]


def leaving(crew: Crew, excess: int, nodes: Mapping[str, NodeView], endpoint: str) -> list[PodView]:
    """Return the `excess` pods that leave, the first to leave first; `endpoint` is the rendezvous endpoint."""
    return sorted(crew.staying(), key=departure(crew, nodes, endpoint))[:excess]


def departure(crew: Crew, nodes: Mapping[str, NodeView], endpoint: str) -> Callable[[PodView], Order]:
    """Return the key that sorts the type's pods so that the first to leave comes first."""
    host, mates, core = endpoint_host(endpoint), _mates(crew, nodes), crew.cores()

    def order(pod: PodView) -> Order:
        rank = standing(pod, nodes)
        # When it is the turn of this state, the pods in a worse one have left.
        rest = [mate for mate in mates.get(pod.node or "", ()) if standing(mate, nodes) >= rank > UNPLACED]
        highest = max((mate.index for mate in rest), default=0)
        place = (False, any(map(core, rest)), len(rest), -highest) if rest else ANYWHERE
        return pod.name == host, rank, core(pod), place, -pod.index

    return order


def endpoint_host(endpoint: str) -> str:
    """Return the name of the pod that a rendezvous endpoint names, if it names one."""
    return endpoint.partition(":")[0].partition(".")[0]


def shrunk(crew: Crew, size: int, nodes: Mapping[str, NodeView], endpoint: str) -> Crew:
    """Return the pods that stay when the type shrinks to `size` pods."""
    excess = crew.size - size
    if excess <= 0:
        return crew
    return crew.without({pod.uid for pod in leaving(crew, excess, nodes, endpoint)})


def standing(pod: PodView, nodes: Mapping[str, NodeView]) -> int:
    """Return how much the job has of the pod, from FAILED (nothing) to SOUND."""
    if pod.phase == "Failed":
        return FAILED
    if pod.phase == "Succeeded":
        return SUCCEEDED
    if pod.phase == "Pending":
        return UNPLACED if pod.node is None else STARTING
    return DOOMED if doomed(pod, nodes) else SOUND


def _mates(crew: Crew, nodes: Mapping[str, NodeView]) -> Mapping[str, list[PodView]]:
    """Return the live pods of the type on each of Karpenter's nodes."""
    found: defaultdict[str, list[PodView]] = defaultdict(list)
    for pod in crew.live:
        if pod.node is not None and (node := nodes.get(pod.node)) is not None and node.elastic:
            found[pod.node].append(pod)
    return found
