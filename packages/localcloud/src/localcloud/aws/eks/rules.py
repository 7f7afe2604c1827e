"""Decide what happens next to nodes, in every phase of their lives. Pure functions; `reconcile` does the actions.

decide(group, workers, running, now)    # [Launch("subnet-1"), PowerOff("i-2"), ...]
decide_self_managed(workers, running, stopped, now)

`running` has the running instances, and how often each has booted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from localcloud.aws.eks.model import Json, NodeFailure, Nodegroup, Phase, Worker

# Every few seconds the cloud controller manager checks whether the instance of an unresponsive node still exists.
NODE_OBJECT_SECONDS = 5.0
# A machine boots again this long after its kernel has panicked (kernel.panic, which kubelet sets).
PANIC_SECONDS = 10.0
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
class Restart:
    """End the node's processes, if some are left, and start it again on its instance."""

    instance_id: str
    boots: int


@dataclass(frozen=True)
class Forget:
    """Delete the Node object of an instance that no longer exists."""

    instance_id: str


Step = Drain | PowerOff | Restart | Forget
Action = Launch | Terminate | Step


def decide(
    group: Nodegroup,
    workers: Sequence[Worker],
    running: Mapping[str, int],
    now: float,
    *,
    launch_after: float = 0.0,
    busy: Collection[str] = (),
) -> list[Action]:
    """Return the next actions that bring a node group to its desired size, and its nodes to its release.

    Args:
        running: The instances that run, according to EC2.
        now: Monotonic clock, in seconds.
        launch_after: No launch before this time, on the same clock; set when a launch has failed.
        busy: The ids of the instances that run pods.
    """
    actions: list[Action] = [
        action for worker in workers if (action := _for_worker(worker, running.get(worker.instance_id), now))
    ]
    living = [worker for worker in workers if worker.phase in LIVING and worker.instance_id in running]
    old = [worker for worker in living if outdated(group, worker)] if group.desired else []
    leaving = [worker for worker in workers if worker.phase in (Phase.DRAINING, Phase.DRAINED)]
    first_down = group.update_config.get("updateStrategy") == "MINIMAL"
    at_once = min(len(old), max_unavailable(group))
    replaced = sum(outdated(group, worker) for worker in leaving)
    missing = group.desired - len(living) + (-replaced if first_down else at_once)
    if missing > 0 and now >= launch_after:
        actions += [Launch(subnet) for subnet in launch_subnets(group.subnets, living, missing)]
    if not old:
        return actions + [Drain(worker.instance_id) for worker in victims(living, -missing, busy)]
    if not leaving and all(worker.ready for worker in living if not outdated(group, worker)):
        spare = len(living) - group.desired + (at_once if first_down else 0)
        old.sort(key=lambda worker: worker.ready)  # what doesn't work goes first
        actions += [Drain(worker.instance_id) for worker in old[: min(at_once, max(spare, 0))]]
    return actions


def outdated(group: Nodegroup, worker: Worker) -> bool:
    """Return whether the group's update has yet to replace a node. Images that aren't EKS's have no release.

    Without an update nodes of two releases stay: an update that has failed leaves them.
    """
    return group.status == "UPDATING" and worker.release not in ("", group.release_version)


def max_unavailable(group: Nodegroup) -> int:
    """Return how many nodes an update replaces at once.

    With the strategy DEFAULT as many are launched before the old ones are drained; with MINIMAL the old ones go first.
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html
    """
    percentage = group.update_config.get("maxUnavailablePercentage")
    if percentage:
        return max(1, group.desired * int(percentage) // 100)
    return int(group.update_config.get("maxUnavailable") or 1)


def decide_self_managed(
    workers: Sequence[Worker], running: Mapping[str, int], stopped: Collection[str], now: float
) -> list[Step]:
    """Return the next actions for nodes that EKS didn't launch, and so doesn't terminate or replace.

    Args:
        stopped: The ids of the instances that are stopped; those that are neither here nor in `running` are gone.
        now: Monotonic clock, in seconds.
    """
    actions = []
    for worker in workers:
        identity = worker.instance_id
        action = _self_managed(worker, running.get(identity), identity in stopped, now)
        if action is not None:
            actions.append(action)
    return actions


def _for_worker(worker: Worker, boots: int | None, now: float) -> Step | Terminate | None:
    """Decide for a node of a group. `boots` is None if the instance doesn't run; a group replaces a stopped one."""
    if worker.phase is Phase.DEAD:
        return _for_dead(worker, now)
    if boots is None:
        return PowerOff(worker.instance_id, clean=worker.phase is Phase.DRAINED)
    if worker.phase in (Phase.DRAINED, Phase.FAILED):
        return Terminate(worker.instance_id)
    return _for_rebooted(worker, boots)


def _self_managed(worker: Worker, boots: int | None, stopped: bool, now: float) -> Step | None:
    if worker.phase is Phase.DEAD:
        if boots is not None and worker.died_at is not None:
            return Restart(worker.instance_id, boots)
        # The Node object of a stopped instance stays, NotReady.
        return None if stopped else _for_dead(worker, now)
    if boots is None:
        return PowerOff(worker.instance_id, clean=False)
    if worker.phase is Phase.FAILED and worker.died_at is not None and now - worker.died_at >= PANIC_SECONDS:
        return Restart(worker.instance_id, boots)
    return _for_rebooted(worker, boots)


def _for_dead(worker: Worker, now: float) -> Forget | None:
    if worker.died_at is None or now - worker.died_at < NODE_OBJECT_SECONDS:
        return None
    return Forget(worker.instance_id)


def _for_rebooted(worker: Worker, boots: int) -> Restart | None:
    return Restart(worker.instance_id, boots) if worker.phase is Phase.UP and worker.boots != boots else None


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


def launch_choices(group: Nodegroup, subnet: str) -> list[tuple[str, str]]:
    """Return the instance types and subnets to try for one instance, in this order; `subnet` is the preferred one."""
    types = dict.fromkeys((group.instance_type, *group.instance_types))
    subnets = dict.fromkeys((subnet, *group.subnets))
    return [(kind, place) for place in subnets for kind in types]


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
    """Return whether the group has exactly its desired number of nodes, all of them Ready and of its release."""
    up = [worker for worker in workers if worker.phase is Phase.UP and worker.ready and not outdated(group, worker)]
    return len(workers) == len(up) == group.desired


def health(
    group: Nodegroup,
    workers: Sequence[Worker],
    *,
    launch_failure: str | None,
    node_failure: NodeFailure | None,
    late: bool,
) -> tuple[str, tuple[Json, ...]]:
    """Return the status and the health issues of a node group that is not being deleted.

    A group that can't launch its instances, or has a node that fails, is CREATE_FAILED if it never had them all.
    Otherwise it is DEGRADED until it can launch one again: scaling it down doesn't help (aws/containers-roadmap#2326).
    https://docs.aws.amazon.com/eks/latest/APIReference/API_Issue.html

    Args:
        launch_failure: Why the last launch failed, if it did.
        node_failure: Why the last node failed that was not Ready before, if one did.
        late: Whether the time is over in which a new group must have its nodes.
    """
    if settled(group, workers) and launch_failure is None:
        healthy = group.status in ("CREATING", "ACTIVE", "DEGRADED", "UPDATING")
        return ("ACTIVE", ()) if healthy else (group.status, group.issues)
    issue = _issue(group, launch_failure, node_failure)
    if issue is not None and group.status in ("CREATING", "ACTIVE", "DEGRADED"):
        creating = "CREATE_FAILED" if late else "CREATING"
        return creating if group.status == "CREATING" else "DEGRADED", (issue,)
    if group.status == "CREATING" and late:
        names = [worker.instance_id for worker in workers if not worker.ready]
        message = "Unhealthy nodes in the kubernetes cluster: they didn't join, or have no network (vpc-cni)"
        return "CREATE_FAILED", ({"code": "NodeCreationFailure", "message": message, "resourceIds": names},)
    return group.status, group.issues


def _issue(group: Nodegroup, launch_failure: str | None, node_failure: NodeFailure | None) -> Json | None:
    if launch_failure is not None:
        market = "Spot" if group.capacity_type == "SPOT" else "On-Demand"
        message = f"Could not launch {market} Instances. {launch_failure} Launching EC2 instance failed."
        return {"code": "AsgInstanceLaunchFailures", "message": message, "resourceIds": [group.auto_scaling_group]}
    if node_failure is not None:
        message = f"Instances failed to join the kubernetes cluster: {node_failure.reason}"
        return {"code": "NodeCreationFailure", "message": message, "resourceIds": [node_failure.instance_id]}
    return None
