"""The life of one node: join, boot, drain, lose power, boot again, be forgotten. EKS or another client launched it.

    join(eks, state, found, instance, node_config)
    act(eks, state, found, action)              # the actions of `rules`

Each step moves the worker into its next phase. Long work is done in the pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from localcloud.aws import eks_images
from localcloud.aws.ec2 import Ec2Instance
from localcloud.aws.eks import rules
from localcloud.aws.eks.model import NodeFailure, Phase, Worker
from localcloud.aws.eks.nodes.config import NodeConfig
from localcloud.aws.eks.specs import node_spec
from localcloud.aws.eks.state import ClusterState, Eks, NodeSet
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0
RETRY_SECONDS = 10.0


def join(eks: Eks, state: ClusterState, found: NodeSet, instance: Ec2Instance, told: NodeConfig) -> None:
    """Make an instance a worker, and start its node in the background."""
    name = instance.id if told.named_by_instance_id else instance.private_dns_name
    image = eks_images.find(instance.image)
    worker = Worker(
        instance.id,
        name,
        instance.subnet,
        instance.zone,
        time.monotonic(),
        boots=instance.boots,
        release=image.release if image else "",
    )
    spec = node_spec(eks, state.cluster, name, instance, told)
    found.nodes[instance.id] = eks.machine.node(state.plane, spec)  # type: ignore[arg-type]
    record(state, found, worker)
    eks.pool.submit(boot, state, found, worker)


def act(eks: Eks, state: ClusterState, found: NodeSet, action: rules.Step) -> None:
    """Do one action; long work is done in the pool."""
    worker = found.workers[action.instance_id]
    match action:
        case rules.Drain():
            record(state, found, replace(worker, phase=Phase.DRAINING))
            eks.pool.submit(guarded, drain, state, found, worker)
        case rules.PowerOff(clean=clean):
            record(state, found, replace(worker, phase=Phase.DEAD, ready=False, died_at=None))
            eks.pool.submit(guarded, power_off, state, found, worker.instance_id, clean)
        case rules.Restart(boots=boots):
            again = replace(worker, phase=Phase.STARTING, ready=False, died_at=None, boots=boots)
            record(state, found, again)
            eks.pool.submit(boot, state, found, again, True)
        case rules.Forget():
            found.workers.pop(worker.instance_id)
            eks.pool.submit(guarded, forget, state, found, worker)


def observe(state: ClusterState, found: NodeSet, running: Collection[str]) -> None:
    """Record which nodes have become Ready, and which have died while their instance still runs."""
    for identity, worker in list(found.workers.items()):
        node = found.nodes.get(identity)
        if node is None or worker.phase is not Phase.UP or identity not in running:
            continue
        if not node.alive():
            reason = node.failure()
            log.warning("node %s: its processes have ended while its instance runs: %s", worker.node_name, reason)
            if not worker.ready:
                failed(found, worker, reason)
            record(state, found, replace(worker, phase=Phase.FAILED, ready=False, died_at=time.monotonic()))
        elif not worker.ready:
            if node.ready():
                record(state, found, replace(worker, ready=True))
            elif reason := node.failure():
                found.node_failure = NodeFailure(identity, reason)


def failed(found: NodeSet, worker: Worker, reason: str) -> float:
    """Remember why a node failed before it was Ready: the next launch waits RETRY_SECONDS. Return the time."""
    now = time.monotonic()
    found.node_failure, found.launch_after = NodeFailure(worker.instance_id, reason), now + RETRY_SECONDS
    return now


def boot(state: ClusterState, found: NodeSet, worker: Worker, again: bool = False) -> None:
    """Start a node; one that boots again is ended first. After a failure, the next launch waits RETRY_SECONDS.

    A node that lost its power meanwhile is ended again, with what the start has made since.
    """
    node, phase = found.nodes[worker.instance_id], Phase.UP
    failed_at: float | None = None
    try:
        if again:
            node.power_off()
        node.start()
    except Exception as error:
        log.error("node %s failed to start: %s", worker.node_name, error, exc_info=not isinstance(error, CloudError))
        phase = Phase.FAILED
        failed_at = failed(found, worker, str(error))
    if not _advance(state, found, worker, Phase.STARTING, phase, failed_at):
        node.power_off()
    state.wake.set()


def drain(state: ClusterState, found: NodeSet, worker: Worker) -> None:
    """Evict a node's pods. After the deadline the node is ended anyway, as in a forced update."""
    try:
        if state.plane is not None:
            state.plane.drain(worker.node_name, time.monotonic() + DRAIN_SECONDS)
    except CloudError as error:
        log.warning("node %s was not drained: %s", worker.node_name, error)
    _advance(state, found, worker, Phase.DRAINING, Phase.DRAINED)
    state.wake.set()


def power_off(state: ClusterState, found: NodeSet, identity: str, clean: bool) -> None:
    """End the node's processes. The Node object of a drained node can be deleted at once."""
    node = found.nodes[identity]
    try:
        if clean:
            node.stop()
        else:
            node.power_off()
    finally:
        ended = time.monotonic() - (rules.NODE_OBJECT_SECONDS if clean else 0.0)
        with state.lock:
            if identity in found.workers:
                found.workers[identity] = replace(found.workers[identity], died_at=ended)
        state.wake.set()


def forget(state: ClusterState, found: NodeSet, worker: Worker) -> None:
    """Delete the Node object, as the cloud controller manager does for instances that no longer exist."""
    found.nodes.pop(worker.instance_id, None)
    heirs = {other.node_name for members in state.node_sets() for other in members.workers.values()}
    # An address, and with it the node's name, may have been given to another instance meanwhile.
    if state.plane is not None and worker.node_name not in heirs:
        state.plane.delete_node(worker.node_name)


def record(state: ClusterState, found: NodeSet, worker: Worker) -> None:
    """Store a worker's new state."""
    with state.lock:
        found.workers[worker.instance_id] = worker


def guarded(work: Callable[..., Any], *args: Any) -> None:
    """Run work in the pool and log its exception, which the pool would drop."""
    try:
        work(*args)
    except CloudError as error:
        log.error("%s", error)
    except Exception:
        log.exception("%s failed", getattr(work, "__name__", work))


def _advance(
    state: ClusterState, found: NodeSet, worker: Worker, before: Phase, after: Phase, died_at: float | None = None
) -> bool:
    """Move a worker from one phase to another; return False if it is no longer in the first one."""
    with state.lock:
        current = found.workers.get(worker.instance_id)
        if current is None or current.phase is not before:
            return False
        found.workers[worker.instance_id] = replace(current, phase=after, died_at=died_at)
    return True
