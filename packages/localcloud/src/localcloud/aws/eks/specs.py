"""Build the specifications for `localcloud.kube` and the tags for EC2 from clusters, node groups and instances."""

from __future__ import annotations

from typing import Any

from localcloud.aws.ec2 import Ec2Instance
from localcloud.aws.eks.model import Cluster, Nodegroup
from localcloud.aws.eks.nodes import config
from localcloud.aws.eks.nodes.config import NodeConfig
from localcloud.aws.eks.state import Eks
from localcloud.aws.eks_images import find


def control_plane_spec(eks: Eks, cluster: Cluster) -> dict[str, Any]:
    """Return the fields of `ControlPlaneSpec`."""
    return {
        "cluster": cluster.name,
        "version": cluster.version,
        "index": cluster.index,
        "authentication": eks.settings.webhooks("authenticate", cluster.name),
        "pod_identity": eks.settings.webhooks("pod-identity", cluster.name),
    }


def node_spec(eks: Eks, cluster: Cluster, name: str, instance: Ec2Instance, told: NodeConfig) -> dict[str, Any]:
    """Return the fields of `NodeSpec`. EC2 has checked the instance type.

    The image decides which kubelet runs; one that isn't EKS's has the cluster's. GPUs need a driver in the image.
    """
    image = find(instance.image)
    size = eks.ec2.instance_type(instance.instance_type)
    return {
        "name": name,
        "private_ip": instance.private_ip,
        "instance_id": instance.id,
        "instance_type": instance.instance_type,
        "vcpus": size.vcpus if size else 1,
        "memory_mib": size.memory_mib if size else 1024,
        "gpus": size.gpus if size and image and image.variant == "nvidia" else 0,
        "zone": instance.zone,
        "region": eks.settings.region,
        "labels": config.labels(told),
        "taints": config.taints(told),
        "kubelet": config.kubelet_options(told),
        "cluster": cluster.name,
        "version": image.version if image else cluster.version,
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
