"""Build the specifications for `localcloud.kube` and the tags for EC2 from EKS's clusters and node groups."""

from __future__ import annotations

from typing import Any

from localcloud.aws.ec2 import Launched
from localcloud.aws.eks.model import Cluster, Nodegroup, Worker
from localcloud.aws.eks.operations.nodegroups import kubernetes_taints, node_labels
from localcloud.aws.eks.state import Eks


def control_plane_spec(eks: Eks, cluster: Cluster) -> dict[str, Any]:
    """Return the fields of `ControlPlaneSpec`."""
    return {
        "cluster": cluster.name,
        "version": cluster.version,
        "index": cluster.index,
        "authentication": eks.settings.webhooks("authenticate", cluster.name),
        "pod_identity": eks.settings.webhooks("pod-identity", cluster.name),
    }


def node_spec(eks: Eks, group: Nodegroup, worker: Worker, launched: Launched) -> dict[str, Any]:
    """Return the fields of `NodeSpec`. The instance type was checked when the group was created."""
    size = eks.ec2.instance_type(group.instance_type)
    return {
        "name": worker.node_name,
        "private_ip": launched.private_ip,
        "instance_id": launched.id,
        "instance_type": group.instance_type,
        "vcpus": size.vcpus if size else 1,
        "memory_mib": size.memory_mib if size else 1024,
        "zone": worker.zone,
        "region": eks.settings.region,
        "labels": node_labels(group),
        "taints": kubernetes_taints(group),
        "cluster": group.cluster,
    }


def instance_tags(group: Nodegroup) -> dict[str, str]:
    """Return the tags that EKS and its Auto Scaling group set on a node group's instances."""
    return {
        "eks:cluster-name": group.cluster,
        "eks:nodegroup-name": group.name,
        f"kubernetes.io/cluster/{group.cluster}": "owned",
        f"k8s.io/cluster-autoscaler/{group.cluster}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        "aws:autoscaling:groupName": group.auto_scaling_group,
    }
