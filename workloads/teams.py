"""The namespace of a team: what its people may do there, how much of the nodes it may use, and what its jobs need.

    TeamSpace("vision", TeamSpaceArgs(stack, team, role_arn, volume_handle, namespace.priorities), platform.options())

A team shares the nodes, the controller and the file system's throughput with the others, and nothing else: it has its
own etcd, since who reads the keys there can act as a worker, and a volume that is a folder of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pulumi

import settings
from tidewater.contract import devices, labels
from workloads import objects, people
from workloads.access import TrainerAccess, TrainerAccessArgs
from workloads.etcd.component import Etcd, EtcdArgs
from workloads.exports import StackFacts, StackFactsArgs
from workloads.logs.component import KeptLogsArgs, kept_logs
from workloads.manifests import Manifest, Text, metadata
from workloads.namespace import PriorityClasses, namespace_manifest, pull_secret
from workloads.network_policies import NetworkPolicies, NetworkPoliciesArgs
from workloads.storage import claim_of, mounts_of, volume_manifest
from workloads.training import cpu_millis, memory_mib

OTHER_PODS = 20
OTHER_CPU_MILLIS = 4_000
OTHER_MEMORY_MIB = 8_192
"""In addition to a team's workers: for its etcd, and for what people run to look at data."""

OWN = {labels.NAME: labels.APPLICATION}
ANY: Manifest = {"operator": "Exists", "scopeName": "PriorityClass"}
"""Pods with a priority class. https://kubernetes.io/docs/concepts/policy/resource-quotas/#resource-quota-per-priorityclass"""


def people_manifest(team: settings.Team) -> Manifest:
    """Return the binding that lets a team's people see and run jobs in its namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata("people", OWN, namespace=team.name),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": people.ROLE},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": team.group}],
    }


def quota_manifests(
    team: settings.Team, workers: settings.Workers, members: int, priorities: PriorityClasses, default: str
) -> list[Manifest]:
    """Return the quotas: as much as the team's workers need, and pods of a high priority as far as they are its own.

    A load balancer, an Ingress or a port of every node would be open to who reaches the network, so there is none.

    Args:
        members: how many members etcd has.
        default: the priority class that the cluster gives to pods that name none; empty if there is none.
    """
    count = team.maximum
    whole = {
        "pods": str(count + OTHER_PODS),
        "requests.cpu": f"{count * cpu_millis(workers) + OTHER_CPU_MILLIS}m",
        "requests.memory": f"{count * (memory_mib(workers) // 2) + OTHER_MEMORY_MIB}Mi",
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        "count/ingresses.networking.k8s.io": "0",
    }
    if workers.gpus:
        whole[f"requests.{devices.GPU}"] = str(count * workers.gpus)
    own = (priorities.core, priorities.surge, priorities.etcd, default)
    return [
        _quota(team.name, "team", whole),
        _quota(team.name, "core-workers", {"pods": str(team.minimum)}, _of(priorities.core)),
        _quota(team.name, "etcd", {"pods": str(members)}, _of(priorities.etcd)),
        _quota(team.name, "other-classes", {"pods": "0"}, ANY, _of(*(each for each in own if each), but=True)),
    ]


def _of(*classes: str, but: bool = False) -> Manifest:
    """Return a scope: pods of these priority classes, or `but` these, where pods without a class count too."""
    return {"operator": "NotIn" if but else "In", "scopeName": "PriorityClass", "values": list(classes)}


def _quota(namespace: str, name: str, hard: Manifest, *scopes: Manifest) -> Manifest:
    """Return a quota for the pods that all scopes select."""
    scoped = {"scopeSelector": {"matchExpressions": list(scopes)}} if scopes else {}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata(name, OWN, namespace=namespace),
        "spec": {"hard": hard, **scoped},
    }


def worker_size(workers: settings.Workers) -> dict[str, str]:
    """Return a worker's whole share of its node, by resource: what counts as one worker when teams lend each other."""
    gpus = {devices.GPU: str(workers.gpus)} if workers.gpus else {}
    return {"cpu": f"{cpu_millis(workers)}m", "memory": f"{memory_mib(workers)}Mi", **gpus}


def limits_manifest(team: str, workers: settings.Workers) -> Manifest:
    """Return what a container requests that says nothing: a worker's share. The quota refuses one without a request."""
    share = {"cpu": f"{cpu_millis(workers)}m", "memory": f"{memory_mib(workers) // 2}Mi"}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata("workers", OWN, namespace=team),
        "spec": {"limits": [{"type": "Container", "defaultRequest": share}]},
    }


@dataclass(frozen=True)
class TeamSpaceArgs:
    """The stack's settings, the team, what it has in AWS, and the stack's priority classes.

    Attributes:
        volume_handle: the team's access point, as the EFS CSI driver names it.
        mounts: options of what pods mount.
    """

    stack: settings.Settings
    team: settings.Team
    role_arn: pulumi.Input[str]
    volume_handle: Text
    priorities: PriorityClasses
    mounts: pulumi.ResourceOptions


class TeamSpace(pulumi.ComponentResource):
    """The namespace that the component is named after, with all that is in it.

    Its type names the team too, so that the objects of two teams are different resources with the same names.
    """

    def __init__(self, name: str, args: TeamSpaceArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(f"tidewater:teams:{name}", name, None, opts)
        stack, team = args.stack, args.team
        training = replace(stack.training, namespace=name)
        volume_name = f"{stack.name}-{name}"
        volume = objects.register(
            volume_manifest(volume_name, name, args.volume_handle, iam=True),
            opts=pulumi.ResourceOptions(parent=self, deleted_with=args.mounts.deleted_with),
        )
        # Jobs of the team's people mount the claim, and only the namespace takes them with it: then the volume is free.
        space = objects.register(
            namespace_manifest(name), opts=pulumi.ResourceOptions(parent=self, depends_on=[volume])
        )

        def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, depends_on=[space, *resources])

        # What limits pods stays as long as there are some.
        within = pulumi.ResourceOptions.merge(after(), pulumi.ResourceOptions(deleted_with=space))
        objects.register(people_manifest(team), opts=after())
        quotas = quota_manifests(
            team, stack.workers, training.etcd_members, args.priorities, stack.cluster.default_priority
        )
        limits = [objects.register(each, opts=within) for each in (*quotas, limits_manifest(name, stack.workers))]
        pull_secret(name, training.pull_secret, after())
        TrainerAccess(name, TrainerAccessArgs(stack.cluster_name, args.role_arn, training.pull_secret), after())
        claim = claim_of(volume, name, volume_name, within)
        isolation = NetworkPolicies(name, NetworkPoliciesArgs(stack.network.cidrs, training.proxy), within)
        StackFacts(name, StackFactsArgs(training, ""), after())
        mounts, pods_need = mounts_of(volume, claim), after(claim, isolation, *limits)
        Etcd("etcd", EtcdArgs(training, args.priorities.etcd, mounts), pods_need)
        kept_logs(KeptLogsArgs(training, mounts), pods_need)
        self.register_outputs({})
