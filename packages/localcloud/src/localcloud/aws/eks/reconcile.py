"""Bring each cluster into the state that the API's calls asked for: one thread per cluster, and a pool for long work.

`rules.decide` chooses a node group's actions. Each action here is done once; `nodes.life` moves the worker into its
next phase.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import replace

from localcloud.aws.ec2 import LaunchRefused, LaunchSpec
from localcloud.aws.eks import rules
from localcloud.aws.eks.model import Json, Phase, Worker
from localcloud.aws.eks.nodes import life, self_managed
from localcloud.aws.eks.operations import access_entries, addons, nodegroups
from localcloud.aws.eks.specs import control_plane_spec, instance_tags
from localcloud.aws.eks.state import ClusterState, Eks, GroupState
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

START_SECONDS = 120.0
JOIN_SECONDS = 300.0
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
            if state.plane is not None and state.cluster.status != "FAILED":
                state.plane.revive()
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


def upgrade(state: ClusterState, version: str, update_id: str) -> None:
    """Bring the control plane to another version of Kubernetes, and record how that ended."""
    status = "Successful"
    errors: tuple[Json, ...] = ()
    try:
        if state.plane is not None:
            state.plane.upgrade(version, time.monotonic() + START_SECONDS)
    except Exception as error:
        log.exception("cluster %s was not brought to Kubernetes %s", state.cluster.name, version)
        status = "Failed"
        errors = ({"errorCode": "Unknown", "errorMessage": str(error), "resourceIds": [state.cluster.name]},)
    with state.lock:
        state.change(status="ACTIVE", **({"version": version} if status == "Successful" else {}))
        state.updates[update_id] = replace(state.updates[update_id], status=status, errors=errors)
    state.wake.set()


def step(eks: Eks, state: ClusterState, now: float) -> bool:
    """Reconcile the node groups and addons once.

    Returns:
        Whether a change is in progress, so that the next round should start soon.
    """
    moving = addons.refresh(state)
    running = {each.id: each.boots for each in eks.ec2.instances().values() if each.running}
    for found in list(state.groups.values()):
        life.observe(state, found, running)
        relabel_ready(state, found, running)
        workers = list(found.workers.values())
        busy = occupied(state, workers) if rules.surplus(found.group, workers) else set()
        actions = rules.decide(found.group, workers, running, now, launch_after=found.launch_after, busy=busy)
        for action in actions:
            act(eks, state, found, action)
        if found.update is not None and any(isinstance(action, rules.Drain) for action in actions):
            found.started_at = now
        conclude(state, found, now)
        moving = moving or bool(actions) or not rules.settled(found.group, list(found.workers.values()))
    return self_managed.step(eks, state, now) or moving


def occupied(state: ClusterState, workers: list[Worker]) -> set[str]:
    """Return the ids of the instances that run pods; pods that are being deleted don't count."""
    if state.plane is None:
        return set()
    pods = state.plane.client.get("/api/v1/pods?fieldSelector=status.phase=Running")["items"]
    nodes = {pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return {worker.instance_id for worker in workers if worker.node_name in nodes}


def conclude(state: ClusterState, found: GroupState, now: float) -> None:
    """Set the node group's status and health from its nodes and its launches, and end its update."""
    workers = list(found.workers.values())
    with state.lock:
        group = found.group
        if group.status == "DELETING":
            if not workers:
                end_update(state, found, "Cancelled")
                state.groups.pop(group.name, None)
            return
        late = now - found.started_at > JOIN_SECONDS
        if rules.settled(group, workers):
            found.node_failure = None
        health = rules.health(
            group, workers, launch_failure=found.launch_failure, node_failure=found.node_failure, late=late
        )
        if health != (group.status, group.issues):
            found.group = replace(group, status=health[0], issues=health[1], modified_at=time.time())
        if health[0] != "UPDATING":
            end_update(state, found, "Successful")
        elif late:
            fail_update(state, found)


def fail_update(state: ClusterState, found: GroupState) -> None:
    """End an update because its new nodes don't join: the group gets its old version back, and keeps its nodes.

    The code and the message are EKS's own: https://github.com/aws-ia/terraform-aws-eks-blueprints/issues/1873
    """
    group, before = found.group, found.before or found.group
    failure = found.launch_failure or (found.node_failure and found.node_failure.reason)
    reason = f": {failure}" if failure else ""
    message = f"Couldn't proceed with upgrade process as new nodes are not joining node group {group.name}{reason}"
    log.warning("node group %s: %s", group.name, message)
    error = {"errorCode": "NodeCreationFailure", "errorMessage": message, "resourceIds": [group.name]}
    found.group = replace(
        group,
        version=before.version,
        release_version=before.release_version,
        launch_template=before.launch_template,
        status="ACTIVE",
        modified_at=time.time(),
    )
    found.launch_failure = found.node_failure = None  # of a node that the group no longer needs
    end_update(state, found, "Failed", error)


def end_update(state: ClusterState, found: GroupState, status: str, *errors: Json) -> None:
    """Record how the update that replaces a group's nodes has ended, if there is one."""
    if found.update is not None:
        state.updates[found.update] = replace(state.updates[found.update], status=status, errors=errors)
        found.update, found.before = None, None


def act(eks: Eks, state: ClusterState, found: GroupState, action: rules.Action) -> None:
    """Do one action of a node group."""
    match action:
        case rules.Launch(subnet):
            launch(eks, state, found, subnet)
        case rules.Terminate(identity):
            eks.ec2.terminate(identity)
        case _:
            if isinstance(action, rules.PowerOff):
                # An Auto Scaling group terminates a stopped instance and replaces it.
                eks.ec2.terminate(action.instance_id)
            life.act(eks, state, found, action)


def launch(eks: Eks, state: ClusterState, found: GroupState, subnet: str) -> None:
    """Run an instance that becomes a node of the group.

    If EC2 has none in this subnet, the group's other instance types and subnets are tried, as Auto Scaling does. If no
    instance can be had, the next launch waits.
    """
    group, failure = found.group, ""
    for instance_type, place in rules.launch_choices(group, subnet):
        spec = LaunchSpec(
            subnet=place,
            instance_type=instance_type,
            image=nodegroups.image(group),
            security_groups=(str(state.cluster.vpc_config["clusterSecurityGroupId"]),),
            launch_template=group.launch_template,
            spot=group.capacity_type == "SPOT",
            tags=instance_tags(group),
        )
        try:
            with eks.launching:
                instance = eks.ec2.run(spec)
                told = nodegroups.node_config(state.cluster, group, instance.user_data)
                life.join(eks, state, found, instance, told)
        except LaunchRefused as error:
            failure = failure or str(error)
            continue
        found.launch_failure = None
        log.info("node group %s: instance %s runs as %s", group.name, instance.id, instance.private_dns_name)
        return
    log.warning("node group %s: no instance could be launched: %s", group.name, failure)
    found.launch_failure, found.launch_after = failure, time.monotonic() + life.RETRY_SECONDS


def interrupted(eks: Eks, identity: str) -> None:
    """Drain a node when its Spot Instance gets its notice, as EKS does; its node group launches another one.

    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html#managed-node-group-capacity-types
    """
    for state in list(eks.clusters.values()):
        for found in list(state.groups.values()):
            worker = found.workers.get(identity)
            if worker is not None and worker.phase is Phase.UP:
                life.act(eks, state, found, rules.Drain(identity))
                state.wake.set()


def relabel_ready(state: ClusterState, found: GroupState, running: Collection[str]) -> None:
    """Apply changed labels and taints to the nodes that are Ready."""
    for identity in list(found.relabel):
        worker = found.workers.get(identity)
        if worker is not None and worker.phase is Phase.UP and worker.ready and identity in running:
            relabel(state, found, worker)


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
    """Stop the control plane and delete the cluster's network interfaces and security group.

    Self-managed instances go on, as on EKS, but without a cluster their nodes have nothing to do.
    """
    name = state.cluster.name
    state.self_managed.workers.clear()  # a node that is starting ends when it sees this
    for node in list(state.self_managed.nodes.values()):
        life.guarded(node.power_off)
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
    nodes = [node for state in states for found in state.node_sets() for node in list(found.nodes.values())]
    ended = [eks.pool.submit(life.guarded, node.power_off) for node in nodes]
    for future in ended:
        future.result()
    planes = [eks.pool.submit(life.guarded, state.plane.stop) for state in states if state.plane is not None]
    for future in planes:
        future.result()
    eks.pool.shutdown(wait=False, cancel_futures=True)


def _install_self_managed(eks: Eks, state: ClusterState, name: str) -> None:
    if state.software is not None and name not in state.addons:
        known = addons.fitting(name, eks.machine.addon_versions()[name], state.cluster.version)
        life.guarded(state.software.install, name, known[0], {})


def _issue(code: str, message: str, resource: str) -> Json:
    return {"code": code, "message": message, "resourceIds": [resource]}
