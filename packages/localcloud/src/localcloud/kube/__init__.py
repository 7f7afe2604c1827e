"""Kubernetes on one machine: control planes, nodes, the network between them, and EKS addons.

control_plane  etcd and the Kubernetes servers of one cluster; read it first. control_plane_config: their flags
nodes/         simulated hosts that run containerd and kubelet
network        the network namespaces, and the host's firewall rules
addons         EKS addons; addon_manifests: their Kubernetes objects
draining       evicts a node's pods, and ends the pods of a dead node
client         a client of the API server; kubeconfig: kubeconfig documents; pki: certificates
commands       runs `ip`, `nft` and similar programs; errors: the exceptions
csi/           the CSI drivers of a node
gpus/          what the image of NVIDIA's device plug-in runs here
rpc            gRPC between kubelet and both of them
"""

from __future__ import annotations

from localcloud.kube.addons import Addons
from localcloud.kube.control_plane import ControlPlane, ControlPlaneSpec, Webhook
from localcloud.kube.errors import ApiError, KubeError
from localcloud.kube.network import Network
from localcloud.kube.nodes.config import DriverKey, NodeSpec
from localcloud.kube.nodes.node import Node

__all__ = [
    "Addons",
    "ApiError",
    "ControlPlane",
    "ControlPlaneSpec",
    "DriverKey",
    "KubeError",
    "Network",
    "Node",
    "NodeSpec",
    "Webhook",
]
