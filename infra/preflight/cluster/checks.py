"""Whether an existing cluster is as the stack needs it: it changes nothing there. Pure.

The stack's nodes get into the cluster by access entries, its pods get their roles by EKS Pod Identity, and mount the
file system by the EFS CSI driver. Whether the names of what it makes there are free is for `taken`.
https://docs.aws.amazon.com/eks/latest/userguide/grant-k8s-access.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import settings
from infra.preflight.cluster.taken import Inside
from infra.preflight.vpc import Vpc
from settings import versions

ADDONS: Mapping[str, str] = {
    "eks-pod-identity-agent": "pods would get no role",
    "aws-efs-csi-driver": "pods could not mount the file system",
}
"""The addons without which nothing trains, and why. Those of the network and of DNS are not here: a cluster may have
them without EKS, and one that has none runs no pod at all."""

LUSTRE: Mapping[str, str] = {"aws-fsx-csi-driver": "pods could not mount the Lustre file system"}
"""The same, with a file system of FSx for Lustre."""

NETWORK, MONITORING = "vpc-cni", "eks-node-monitoring-agent"
USEFUL_ADDONS = (NETWORK, MONITORING)

CONFIG_MAP = "CONFIG_MAP"
USABLE = ("ACTIVE", "UPDATING")
ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class Cluster:
    """What AWS says of the cluster.

    Attributes:
        found: whether the region has it.
        existing: its name, and how it is reached.
        mode: who may enter: CONFIG_MAP, API_AND_CONFIG_MAP or API.
        private: whether its API is reached inside the VPC.
        public: the addresses from which its API is reached over the internet; empty if from none.
        addons: the configuration of each of `needed` and `USEFUL_ADDONS` that it has, as JSON; empty for the default.
        role: ARN of the role of the stack's nodes on it; None before the stack was made.
        inside: what is on it, and who is let in.
    """

    found: bool
    existing: settings.ExistingCluster = field(default_factory=lambda: settings.ExistingCluster(""))
    status: str = ""
    version: str = ""
    vpc: str = ""
    mode: str = ""
    private: bool = True
    public: tuple[str, ...] = ()
    addons: Mapping[str, str] = field(default_factory=dict)
    role: str | None = None
    inside: Inside = field(default_factory=Inside)


def needed(stack: settings.Settings) -> Mapping[str, str]:
    """Return the addons without which the stack doesn't train, and why."""
    return {**ADDONS, **(LUSTRE if stack.lustre else {})}


def known(stack: settings.Settings, cluster: Cluster | None) -> settings.Settings:
    """Return the settings with how the cluster is reached."""
    return stack.with_cluster(cluster.existing) if cluster and cluster.found else stack


def mistakes(stack: settings.Settings, cluster: Cluster | None, vpc: Vpc | None) -> list[str]:
    """Return why the stack can't be on the cluster."""
    if cluster is None:
        return []
    name = stack.cluster_name
    if not cluster.found:
        return [f"clusterName = {name}: {stack.region} has no such cluster; correct it, or the region"]
    if cluster.status not in USABLE:
        return [f"clusterName = {name}: is {cluster.status}, so nothing can be made on it; name one that is ACTIVE"]
    return [
        *_version(stack, cluster),
        *_place(stack, cluster),
        *_access(stack, cluster, vpc),
        *_addons(name, cluster, needed(stack)),
    ]


def _version(stack: settings.Settings, cluster: Cluster) -> list[str]:
    name, wanted, there = stack.cluster_name, stack.cluster.version, cluster.version
    if there not in versions.KUBERNETES:
        supported = ", ".join(versions.KUBERNETES)
        return [f"clusterName = {name}: has Kubernetes {there}, and the stack's nodes can have {supported}; change it"]
    if there == wanted:
        return []
    return [
        f"kubernetesVersion = {wanted}: the cluster {name} has {there}, and nodes have its version; set it to {there}"
    ]


def _place(stack: settings.Settings, cluster: Cluster) -> list[str]:
    wanted = stack.network.existing.id if stack.network.existing else "(empty)"
    if wanted == cluster.vpc:
        return []
    return [f"vpcId = {wanted}: the cluster {stack.cluster_name} is in {cluster.vpc}; set it to that, with its subnets"]


def _access(stack: settings.Settings, cluster: Cluster, vpc: Vpc | None) -> list[str]:
    """Return why nodes, the collector of metrics or the one who deploys would not get in."""
    name, found = stack.cluster_name, []
    change = f"aws eks update-cluster-config --name {name}"
    if cluster.mode == CONFIG_MAP:
        found.append(
            f"clusterName = {name}: lets in only whom its ConfigMap aws-auth names, and the stack's nodes need access "
            f"entries; allow both: {change} --access-config authenticationMode=API_AND_CONFIG_MAP"
        )
    private = f"turn it on: {change} --resources-vpc-config endpointPrivateAccess=true"
    isolated = [each.id for each in vpc.subnets if each.isolated] if vpc else []
    if isolated and not cluster.private:
        found.append(
            f"clusterName = {name}: has no private endpoint, and {', '.join(isolated)} have no route to the internet; "
            f"{private}"
        )
    if stack.monitoring and stack.monitoring.managed and not cluster.private:
        found.append(f"monitoring = managed: its collector needs the private endpoint of the cluster {name}; {private}")
    if cluster.inside.unread:
        found.append(
            f"clusterName = {name}: its Kubernetes API doesn't let in the one who deploys: {cluster.inside.unread} "
            "Make this identity an administrator of the cluster by an access entry, or run pulumi where the API is "
            "reached"
        )
    return found


def _addons(name: str, cluster: Cluster, wanted: Mapping[str, str]) -> list[str]:
    return [
        f"clusterName = {name}: lacks the addon {addon}, and {why}; install it with a role of its own, or ask its "
        f"owner: aws eks create-addon --cluster-name {name} --addon-name {addon}"
        for addon, why in wanted.items()
        if addon not in cluster.addons
    ]


def warnings(stack: settings.Settings, cluster: Cluster | None) -> list[str]:
    """Return what works less well than on a cluster of the stack's, and what could not be seen from here."""
    if cluster is None or not cluster.found:
        return []
    name, found = stack.cluster_name, []
    if not cluster.public:
        found.append(f"clusterName = {name}: its API is private, so pulumi and kubectl must run in its VPC or near it")
    if not cluster.private and ANYWHERE not in cluster.public:
        found.append(
            f"clusterName = {name}: has no private endpoint, so the addresses with which nodes leave the VPC must be "
            f"in its public ones ({', '.join(cluster.public)}), or no node joins"
        )
    if not _enforces_policies(cluster):
        found.append(
            f"clusterName = {name}: its addon {NETWORK} doesn't enforce network policies (enableNetworkPolicy), so the "
            "stack's isolate no pod unless something else enforces them"
        )
    if MONITORING not in cluster.addons:
        found.append(
            f"clusterName = {name}: lacks the addon {MONITORING}, so EKS repairs no node with a faulty GPU, only nodes "
            "that kubelet reports"
        )
    return found


def _enforces_policies(cluster: Cluster) -> bool:
    """Return whether the VPC CNI does: its value is a text or a truth value."""
    try:
        values = json.loads(cluster.addons.get(NETWORK) or "{}")
    except ValueError:  # in YAML, which EKS takes too
        return "enableNetworkPolicy: " in cluster.addons[NETWORK]
    return str(values.get("enableNetworkPolicy", "")).lower() == "true"
