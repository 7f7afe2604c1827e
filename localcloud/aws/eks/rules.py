"""Decide what a node group does next. Pure functions for every phase of a node; `reconcile` does the actions.

decide(group, workers, running, now)    # [Launch("subnet-1"), PowerOff("i-2"), ...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from localcloud.aws.eks.model import Nodegroup, Phase, Worker

# Every few seconds the cloud controller manager checks whether the instance of an unresponsive node still exists.
NODE_OBJECT_SECONDS = 5.0
LIVING = (Phase.STARTING, Phase.UP)


@dataclass(frozen=True)
class Launch:
    """Run an instance in this subnet and start its node."""

    subnet: str


@dataclass(frozen=True)
class Drain:
    """Cordon the node and evict its pods."""

    instance_id: str


@dataclass(frozen=True)
class Terminate:
    """Terminate the instance."""

    instance_id: str


@dataclass(frozen=True)
class PowerOff:
    """End the node of an instance that no longer runs; `clean` if the node was drained before."""

    instance_id: str
    clean: bool


@dataclass(frozen=True)
class Forget:
    """Delete the Node object of an instance that no longer exists."""

    instance_id: str


Action = Launch | Drain | Terminate | PowerOff | Forget


def decide(
    group: Nodegroup,
    workers: Sequence[Worker],
    running: Collection[str],
    now: float,
    *,
    launch_after: float = 0.0,
    busy: Collection[str] = (),
) -> list[Action]:
    """Return the next actions that bring a node group to its desired size.

    Args:
        running: The ids of the instances that run, according to EC2.
        now: Monotonic clock, in seconds.
        launch_after: No launch before this time, on the same clock; set when a launch has failed.
        busy: The ids of the instances whose nodes run pods.
    """
    actions: list[Action] = [
        action for worker in workers if (action := _for_worker(worker, worker.instance_id in running, now))
    ]
    living = [worker for worker in workers if worker.phase in LIVING and worker.instance_id in running]
    missing = group.desired - len(living)
    if missing > 0 and now >= launch_after:
        actions += [Launch(subnet) for subnet in launch_subnets(group.subnets, living, missing)]
    actions += [Drain(worker.instance_id) for worker in victims(living, -missing, busy)]
    return actions


def _for_worker(worker: Worker, running: bool, now: float) -> Action | None:
    if worker.phase is Phase.DEAD:
        if worker.died_at is None or now - worker.died_at < NODE_OBJECT_SECONDS:
            return None
        return Forget(worker.instance_id)
    if not running:
        return PowerOff(worker.instance_id, clean=worker.phase is Phase.DRAINED)
    if worker.phase in (Phase.DRAINED, Phase.FAILED):
        return Terminate(worker.instance_id)
    return None


def launch_subnets(subnets: Sequence[str], living: Sequence[Worker], count: int) -> list[str]:
    """Return the subnets of the next instances: each goes to the subnet with the fewest, in the group's order."""
    load = Counter(dict.fromkeys(subnets, 0))
    load.update(worker.subnet for worker in living)
    chosen = []
    for _ in range(count):
        subnet = min(subnets, key=lambda name: load[name])
        load[subnet] += 1
        chosen.append(subnet)
    return chosen


def surplus(group: Nodegroup, workers: Sequence[Worker]) -> int:
    """Return how many nodes there are above the desired size."""
    return max(0, sum(worker.phase in LIVING for worker in workers) - group.desired)


def victims(living: Sequence[Worker], count: int, busy: Collection[str] = ()) -> list[Worker]:
    """Return the nodes to end: from the zone with the most nodes, first those without pods, and of these the newest.

    AWS balances the zones and then chooses at random between instances of the same template and hour
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-termination-policies.html). Nodes without
    pods first is one of the choices that AWS could make.
    """
    left = list(living)
    chosen = []
    for _ in range(max(count, 0)):
        load = Counter(worker.zone for worker in left)
        victim = max(left, key=lambda worker: (load[worker.zone], worker.instance_id not in busy, worker.launched_at))
        left.remove(victim)
        chosen.append(victim)
    return chosen


def settled(group: Nodegroup, workers: Sequence[Worker]) -> bool:
    """Return whether the group has exactly its desired number of nodes, all of them Ready."""
    return len(workers) == group.desired and all(worker.phase is Phase.UP and worker.ready for worker in workers)
