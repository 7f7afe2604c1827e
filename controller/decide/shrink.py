"""Which pods leave when there are too many.

The order: pods that have failed; pods that have succeeded; Pending pods, first those without a node; pods on doomed
nodes; then all others. Of pods in the same state, surge pods leave before core pods (whose index is below the minimum),
and then the highest index. A core pod therefore leaves only if every surge pod that is left is in a better state. A
surge pod that runs is not removed to keep a core pod that doesn't: the job would have one worker less, and might fall
below its minimum. Because the number of pods aimed for is never below the minimum, a core pod that runs on a sound node
never leaves by shrinking.

One pod leaves after all others: that whose name is the rendezvous endpoint's host, as launcher torchrun often has it.
Without it no worker finds the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.decide.crews import Crew
from controller.decide.observed import NodeView, PodView, doomed

FAILED, SUCCEEDED, UNPLACED, STARTING, DOOMED, SOUND = range(6)


def leaving(crew: Crew, excess: int, nodes: Mapping[str, NodeView], endpoint: str) -> list[PodView]:
    """Return the `excess` pods that leave, the first to leave first; `endpoint` is the rendezvous endpoint."""
    host = endpoint.partition(":")[0].partition(".")[0]

    def order(pod: PodView) -> tuple[bool, int, bool, int]:
        return pod.name == host, standing(pod, nodes), pod.index < crew.low, -pod.index

    return sorted(crew.staying(), key=order)[:excess]


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
