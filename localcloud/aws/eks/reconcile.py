"""Bring each cluster into the state that the API's calls asked for: one thread per cluster, and a pool for long work.

`rules.decide` chooses the actions. Each action here is done once and moves the worker into its next phase.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from localcloud.aws.ec2 import LaunchSpec
from localcloud.aws.eks import rules
from localcloud.aws.eks.model import Json, Phase, Worker
from localcloud.aws.eks.operations import access_entries, addons, nodegroups
from localcloud.aws.eks.specs import control_plane_spec, instance_tags, node_spec
from localcloud.aws.eks.state import ClusterState, Eks, GroupState
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

START_SECONDS = 120.0
DRAIN_SECONDS = 60.0
JOIN_SECONDS = 300.0
RETRY_SECONDS = 10.0
BUSY_POLL_SECONDS = 0.25
IDLE_POLL_SECONDS = 2.0
SELF_MANAGED = ("vpc-cni", "kube-proxy", "coredns")


def run(eks: Eks, state: ClusterState) -> None:
    """Start a cluster, reconcile it until it is DELETING, then take it down."""
    try:
        start(eks, state)
    except Exception as error:
        log.exception("cluster %s failed to start", state.cluster.name)
        state.change(status="FAILED", issues=(_issue("InternalFailure", str(error), state.cluster.name),))
    while not state.stopping and state.cluster.status != "DELETING":
        try:
            moving = step(eks, state, time.monotonic())
        except Exception:
            # After a failed round the loop goes on; the next round sees the same state again.
            log.exception("cluster %s: a round failed", state.cluster.name)
            moving = False
        state.wake.wait(BUSY_POLL_SECONDS if moving else IDLE_POLL_SECONDS)
        state.wake.clear()
    if not state.stopping:
        take_down(eks, state)


def start(eks: Eks, state: ClusterState) -> None:
    """Start the control plane and what EKS installs in a new cluster."""
    began = time.monotonic()
    plane = eks.machine.control_plane(control_plane_spec(eks, state.cluster))
    state.plane = plane
    plane.start(began + START_SECONDS)
    state.software = eks.machine.addons(plane)
    with state.lock:
        if state.cluster.status != "DELETING":
            state.change(endpoint=plane.endpoint, ca_pem=plane.ca_pem, oidc_issuer=plane.issuer)
            eks.settings.changed(eks)
            state.change(status="ACTIVE")
    for entry in list(state.entries.values()):
        access_entries.sync_bindings(state, entry)
    if state.cluster.self_managed_addons:
        for name in SELF_MANAGED:
            eks.pool.submit(_install_self_managed, eks, state, name)
    log.info("cluster %s is active after %.1f s", state.cluster.name, time.monotonic() - began)


def step(eks: Eks, state: ClusterState, now: float) -> bool:
    """Reconcile the node groups and addons once.

    Returns:
        Whether a change is in progress, so that the next round should start soon.
    """
    moving = addons.refresh(state)
    running = eks.ec2.running()
    for found in list(state.groups.values()):
        observe(state, found, running)
        workers = list(found.workers.values())
        busy = occupied(state, workers) if rules.surplus(found.group, workers) else set()
        actions = rules.decide(found.group, workers, running, now, launch_after=found.launch_after, busy=busy)
        for action in actions:
            act(eks, state, found, action)
        conclude(state, found, now)
        moving = moving or bool(actions) or not rules.settled(found.group, list(found.workers.values()))
    return moving


def observe(state: ClusterState, found: GroupState, running: set[str]) -> None:
    """Record which nodes have become Ready, and which have died while their instance still runs."""
    for identity, worker in list(found.workers.items()):
        node = found.nodes.get(identity)
        if node is None or worker.phase is not Phase.UP or identity not in running:
            continue
        if not node.alive():
            _set(state, found, replace(worker, phase=Phase.FAILED, ready=False))
        elif not worker.ready and node.ready():
            _set(state, found, replace(worker, ready=True))
        elif identity in found.relabel and worker.ready:
            relabel(state, found, worker)


def occupied(state: ClusterState, workers: list[Worker]) -> set[str]:
    """Return the instances whose nodes run pods that are not being deleted."""
    if state.plane is None:
        return set()
    pods = state.plane.client.get("/api/v1/pods?fieldSelector=status.phase=Running")["items"]
    nodes = {pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return {worker.instance_id for worker in workers if worker.node_name in nodes}


def conclude(state: ClusterState, found: GroupState, now: float) -> None:
    """Set the node group's status from its nodes."""
    workers = list(found.workers.values())
    with state.lock:
        group = found.group
        if group.status == "DELETING":
            if not workers:
                state.groups.pop(group.name, None)
        elif group.status == "CREATING" and rules.settled(group, workers):
            found.group = replace(group, status="ACTIVE", modified_at=time.time())
        elif group.status == "CREATING" and now - found.started_at > JOIN_SECONDS:
            names = [worker.instance_id for worker in workers if not worker.ready]
            message = "Unhealthy nodes in the kubernetes cluster: they didn't join, or have no network (vpc-cni)"
            issue = {"code": "NodeCreationFailure", "message": message, "resourceIds": names}
            found.group = replace(group, status="CREATE_FAILED", issues=(issue,))


def act(eks: Eks, state: ClusterState, found: GroupState, action: rules.Action) -> None:
    """Do one action; long work is done in the pool."""
    match action:
        case rules.Launch(subnet):
            launch(eks, state, found, subnet)
        case rules.Drain(identity):
            worker = found.workers[identity]
            _set(state, found, replace(worker, phase=Phase.DRAINING))
            eks.pool.submit(_guarded, drain, state, found, worker)
        case rules.Terminate(identity):
            eks.ec2.terminate(identity)
        case rules.PowerOff(identity, clean):
            worker = found.workers[identity]
            _set(state, found, replace(worker, phase=Phase.DEAD, ready=False))
            # An Auto Scaling group terminates a stopped instance and replaces it.
            eks.ec2.terminate(identity)
            eks.pool.submit(_guarded, power_off, state, found, identity, clean)
        case rules.Forget(identity):
            gone = found.workers.pop(identity)
            eks.pool.submit(_guarded, forget, state, found, gone)


def launch(eks: Eks, state: ClusterState, found: GroupState, subnet: str) -> None:
    """Run an instance, then start its node in the background."""
    group = found.group
    spec = LaunchSpec(
        subnet=subnet,
        instance_type=group.instance_type,
        security_groups=(str(state.cluster.vpc_config["clusterSecurityGroupId"]),),
        launch_template=group.launch_template,
        spot=group.capacity_type == "SPOT",
        tags=instance_tags(group),
    )
    place = eks.ec2.subnet(subnet)
    launched = eks.ec2.run(spec)
    zone = place.zone if place else ""
    worker = Worker(launched.id, launched.private_dns_name, subnet, zone, time.monotonic())
    node = eks.machine.node(state.plane, node_spec(eks, group, worker, launched))  # type: ignore[arg-type]
    found.nodes[launched.id] = node
    _set(state, found, worker)
    eks.pool.submit(boot, state, found, worker)
    log.info("node group %s: instance %s runs as %s", group.name, launched.id, launched.private_dns_name)


def boot(state: ClusterState, found: GroupState, worker: Worker) -> None:
    """Start a node. If it fails, its instance is terminated and the next launch waits RETRY_SECONDS."""
    try:
        found.nodes[worker.instance_id].start()
        phase = Phase.UP
    except Exception as error:
        log.error("node %s failed to start: %s", worker.node_name, error, exc_info=not isinstance(error, CloudError))
        found.launch_after = time.monotonic() + RETRY_SECONDS
        phase = Phase.FAILED
    with state.lock:
        current = found.workers.get(worker.instance_id)
        if current is not None and current.phase is Phase.STARTING:
            found.workers[worker.instance_id] = replace(current, phase=phase)
    state.wake.set()


def drain(state: ClusterState, found: GroupState, worker: Worker) -> None:
    """Evict a node's pods. After the deadline the node is ended anyway, as in a forced update."""
    try:
        if state.plane is not None:
            state.plane.drain(worker.node_name, time.monotonic() + DRAIN_SECONDS)
    except CloudError as error:
        log.warning("node %s was not drained: %s", worker.node_name, error)
    with state.lock:
        current = found.workers.get(worker.instance_id)
        if current is not None and current.phase is Phase.DRAINING:
            found.workers[worker.instance_id] = replace(current, phase=Phase.DRAINED)
    state.wake.set()


def power_off(state: ClusterState, found: GroupState, identity: str, clean: bool) -> None:
    """End the node's processes. The Node object of a drained node can be deleted at once."""
    node = found.nodes[identity]
    try:
        if clean:
            node.stop()
        else:
            node.power_off()
    finally:
        ended = time.monotonic() - (rules.NODE_OBJECT_SECONDS if clean else 0.0)
        _set(state, found, replace(found.workers[identity], died_at=ended))
        state.wake.set()


def forget(state: ClusterState, found: GroupState, worker: Worker) -> None:
    """Delete the Node object, as the cloud controller manager does for instances that no longer exist."""
    found.nodes.pop(worker.instance_id, None)
    heirs = {other.node_name for group in state.groups.values() for other in group.workers.values()}
    # An address, and with it the node's name, may have been given to another instance meanwhile.
    if state.plane is not None and worker.node_name not in heirs:
        state.plane.delete_node(worker.node_name)


def relabel(state: ClusterState, found: GroupState, worker: Worker) -> None:
    """Apply changed labels and taints to an existing node."""
    if state.plane is None:
        return
    wanted = nodegroups.node_labels(found.group)
    client, path = state.plane.client, f"/api/v1/nodes/{worker.node_name}"
    labels: Json = dict.fromkeys(found.removed_labels - set(wanted)) | wanted
    client.patch(path, {"metadata": {"labels": labels}})
    taints = nodegroups.kubernetes_taints(found.group)
    ours = found.removed_taints | {(taint["key"], taint["effect"]) for taint in taints}
    present = client.get(path)["spec"].get("taints") or []
    others = [taint for taint in present if (taint["key"], taint["effect"]) not in ours]
    client.request("PATCH", path, {"spec": {"taints": [*others, *taints]}}, "application/merge-patch+json")
    found.relabel.discard(worker.instance_id)


def take_down(eks: Eks, state: ClusterState) -> None:
    """Stop the control plane and delete the cluster's network interfaces and security group."""
    name = state.cluster.name
    try:
        if state.plane is not None:
            state.plane.stop()
    except CloudError as error:
        log.error("cluster %s: control plane did not stop cleanly: %s", name, error)
    for interface in state.cluster.interfaces:
        eks.ec2.delete_interface(interface)
    eks.ec2.delete_security_group(str(state.cluster.vpc_config["clusterSecurityGroupId"]))
    with eks.lock:
        eks.clusters.pop(name, None)
    eks.settings.changed(eks)
    log.info("cluster %s is deleted", name)


def shut_down(eks: Eks) -> None:
    """End all nodes and control planes when the daemon ends; the account is not changed."""
    states = list(eks.clusters.values())
    for state in states:
        state.stopping = True
        state.wake.set()
    nodes = [node for state in states for found in state.groups.values() for node in list(found.nodes.values())]
    ended = [eks.pool.submit(_guarded, node.power_off) for node in nodes]
    for future in ended:
        future.result()
    planes = [eks.pool.submit(_guarded, state.plane.stop) for state in states if state.plane is not None]
    for future in planes:
        future.result()
    eks.pool.shutdown(wait=False, cancel_futures=True)


def _install_self_managed(eks: Eks, state: ClusterState, name: str) -> None:
    if state.software is not None and name not in state.addons:
        _guarded(state.software.install, name, eks.machine.addon_versions()[name][0], {})


def _guarded(work: Callable[..., Any], *args: Any) -> None:
    """Run work in the pool and log its exception, which the pool would drop."""
    try:
        work(*args)
    except CloudError as error:
        log.error("%s", error)
    except Exception:
        log.exception("%s failed", getattr(work, "__name__", work))


def _set(state: ClusterState, found: GroupState, worker: Worker) -> None:
    with state.lock:
        found.workers[worker.instance_id] = worker


def _issue(code: str, message: str, resource: str) -> Json:
    return {"code": code, "message": message, "resourceIds": [resource]}
