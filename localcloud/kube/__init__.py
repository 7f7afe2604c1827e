"""Kubernetes on one machine: control planes, nodes, the network between them, and EKS addons.

from localcloud import kube

network = kube.Network(instance)
network.create()
plane = kube.ControlPlane(instance, supervisor, kube.ControlPlaneSpec("demo", "1.34", 0))
plane.start(time.monotonic() + 60)
addons = kube.Addons(plane)
addons.install("vpc-cni", kube.Addons.VERSIONS["vpc-cni"][0], {})
node = kube.Node(instance, supervisor, plane, kube.NodeSpec(...), kube.DriverKey(access_key, secret))
node.start()
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
