"""Instances that another client launched to be nodes: Karpenter, Terraform, `aws ec2 run-instances`.

    step(eks, state, now)       # in each round of a cluster: its instances join, live and end
    look(eks)                   # after a call that changes instances: log what keeps one from being a node

An instance joins if its user data has a NodeConfig that is right for the cluster, and if its role may join. Otherwise
it stays an instance without a node, and each round tries again, as kubelet does until the cluster admits it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from localcloud.aws.ec2 import Ec2Instance
from localcloud.aws.eks import rules
from localcloud.aws.eks.model import Phase
from localcloud.aws.eks.nodes import config, life, user_data
from localcloud.aws.eks.nodes.config import BadNodeConfig, NodeConfig
from localcloud.aws.eks.state import ClusterState, Eks
from localcloud.kube.nodes.config import KUBELET_OPTIONS

log = logging.getLogger(__name__)

NODE_TYPE = "EC2_LINUX"


class NotAdmitted(Exception):
    """The cluster would not let the node in; the message says why."""


def look(eks: Eks) -> None:
    """Log what keeps new instances from being nodes, and have every cluster look at its instances at once."""
    for _ in candidates(eks):
        pass  # those that may join do so in their cluster's round
    for state in list(eks.clusters.values()):
        state.wake.set()


def step(eks: Eks, state: ClusterState, now: float) -> bool:
    """Reconcile a cluster's self-managed nodes once.

    Returns:
        Whether a change is in progress, so that the next round should start soon.
    """
    found = state.self_managed
    for owner, instance, told in candidates(eks):
        if owner is state:
            life.join(eks, state, found, instance, told)
            eks.reasons.pop(instance.id, None)
            log.info("cluster %s: instance %s joins as a self-managed node", state.cluster.name, instance.id)
            _log_ignored(instance, told)
    instances = eks.ec2.instances()
    running = {each.id: each.boots for each in instances.values() if each.running}
    life.observe(state, found, running)
    actions = rules.decide_self_managed(list(found.workers.values()), running, instances.keys() - running.keys(), now)
    for action in actions:
        life.act(eks, state, found, action)
    restless = [
        worker
        for worker in found.workers.values()
        if not (worker.phase is Phase.UP and worker.ready) and not (worker.phase is Phase.DEAD and worker.died_at)
    ]
    return bool(actions or restless)


def candidates(eks: Eks) -> Iterator[tuple[ClusterState, Ec2Instance, NodeConfig]]:
    """Yield the running instances that are no nodes and may become nodes of an active cluster."""
    with eks.launching:
        instances = eks.ec2.instances()
        known = {
            identity
            for state in list(eks.clusters.values())
            for found in state.node_sets()
            for identity in (list(found.workers))
        }
    for identity in list(eks.reasons.keys() - instances.keys()):
        eks.reasons.pop(identity, None)
    for instance in instances.values():
        if not instance.running or instance.id in known or not instance.user_data:
            continue
        try:
            told = user_data.parse(instance.user_data)
            if told is None:
                raise NotAdmitted("its user data has no NodeConfig")
            config.check(told)
            state = _cluster(eks, told)
            if state.plane is not None and state.cluster.status != "CREATING":
                _admit(eks, state, instance, told)
                yield state, instance, told
        except (BadNodeConfig, NotAdmitted) as error:
            _explain(eks, instance, str(error))


def may_join(state: ClusterState, role_arn: str) -> bool:
    """Return whether instances with this role may join the cluster: by an access entry, or as a node group's."""
    entry = state.entries.get(role_arn)
    if entry is not None:
        return entry.kind == NODE_TYPE
    return any(found.group.node_role == role_arn for found in list(state.groups.values()))


def _cluster(eks: Eks, told: NodeConfig) -> ClusterState:
    state = eks.clusters.get(told.cluster)
    if state is None:
        raise NotAdmitted(f"its NodeConfig names the cluster {told.cluster!r}, which does not exist")
    return state


def _admit(eks: Eks, state: ClusterState, instance: Ec2Instance, told: NodeConfig) -> None:
    cluster = state.cluster
    if told.endpoint.rstrip("/") != cluster.endpoint:
        raise NotAdmitted(
            f"its NodeConfig's apiServerEndpoint {told.endpoint!r} is not cluster {cluster.name}'s: {cluster.endpoint}"
        )
    if told.ca_pem.strip() != (cluster.ca_pem or "").strip():
        raise NotAdmitted(f"its NodeConfig's certificateAuthority is not that of cluster {cluster.name}")
    # https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
    if instance.vpc_id != cluster.vpc_config["vpcId"]:
        raise NotAdmitted(f"it is in {instance.vpc_id}, and cluster {cluster.name} in {cluster.vpc_config['vpcId']}")
    if instance.profile_arn is None:
        raise NotAdmitted("it has no instance profile, and so no role with which kubelet could log in")
    role = eks.principals.role_of_profile(instance.profile_arn)
    if role is None:
        raise NotAdmitted(f"its instance profile {instance.profile_arn} has no role")
    if not may_join(state, role):
        raise NotAdmitted(f"its role {role} has no access entry of type {NODE_TYPE} in cluster {cluster.name}")


def _explain(eks: Eks, instance: Ec2Instance, reason: str) -> None:
    with eks.lock:
        if eks.reasons.get(instance.id) == reason:
            return
        eks.reasons[instance.id] = reason
    log.warning("instance %s (%s) is not a node: %s", instance.id, instance.private_dns_name, reason)


def _log_ignored(instance: Ec2Instance, told: NodeConfig) -> None:
    ignored = [*sorted(config.kubelet_options(told).keys() - KUBELET_OPTIONS), *config.unknown_flags(told)]
    if ignored:
        log.info("instance %s: these kubelet options have no effect on this cloud: %s", instance.id, ", ".join(ignored))
