"""What a node group does next: pure, total over the phases of its nodes, and done by `reconcile`.

decide(group, workers, running, now)    # [Launch("subnet-1"), PowerOff("i-2"), ...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from localcloud.aws.eks.model import Nodegroup, Phase, Worker

# The cloud controller manager looks whether a silent node's instance still exists every few seconds.
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
    """The instance is gone: cut the node's power; `clean` if it was drained before."""

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
    """The actions that bring a node group nearer to its desired size.

    Args:
        running: The instance ids that EC2 says run.
        now: Monotonic clock, in seconds, as is `launch_after`: no launch before, since the last one failed.
        busy: The instance ids whose nodes run pods.
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
    """Where the next instances go: always the subnet with the fewest, in the group's order."""
    load = Counter(dict.fromkeys(subnets, 0))
    load.update(worker.subnet for worker in living)
    chosen = []
    for _ in range(count):
        subnet = min(subnets, key=lambda name: load[name])
        load[subnet] += 1
        chosen.append(subnet)
    return chosen


def surplus(group: Nodegroup, workers: Sequence[Worker]) -> int:
    """How many nodes are above the desired size; 0 if none is."""
    return max(0, sum(worker.phase in LIVING for worker in workers) - group.desired)


def victims(living: Sequence[Worker], count: int, busy: Collection[str] = ()) -> list[Worker]:
    """Who goes first: from the zones with the most nodes, there a node without pods, and of these the newest.

    AWS balances the zones and then leaves it to chance between instances of the same template and hour
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-termination-policies.html); a chance
    may as well spare the pods.
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
    """Whether the group has exactly the nodes it should have, all of them Ready."""
    return len(workers) == group.desired and all(worker.phase is Phase.UP and worker.ready for worker in workers)
