"""EKS addons of one cluster: what each one starts on the nodes and puts into the cluster.

    addons = Addons(control_plane)
    addons.install("vpc-cni", "v1.22.4-eksbuild.3", {})
    addons.status("vpc-cni")        # ACTIVE

As on EKS a cluster without vpc-cni has no Ready node, one without kube-proxy no services, and without
aws-efs-csi-driver no volume of `efs.csi.aws.com` is mounted; so it is with aws-fsx-csi-driver and `fsx.csi.aws.com`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from localcloud.kube import addon_manifests as manifests
from localcloud.kube.client import object_path
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.errors import ApiError, KubeError

ON_NODES = frozenset({"vpc-cni", "kube-proxy", "eks-pod-identity-agent", *manifests.CSI_DRIVERS})


class Addons:
    """Installs and removes addons; both may be called again."""

    # Real ones of EKS, newest first, and not all of them. All versions of an addon run the same software here.
    VERSIONS: ClassVar[dict[str, list[str]]] = {
        "vpc-cni": ["v1.22.4-eksbuild.3", "v1.21.2-eksbuild.2"],
        "coredns": ["v1.13.2-eksbuild.31", "v1.12.4-eksbuild.29"],
        "kube-proxy": ["v1.35.3-eksbuild.29", "v1.35.3-eksbuild.2", "v1.34.6-eksbuild.29", "v1.34.6-eksbuild.2"],
        "aws-efs-csi-driver": ["v3.4.1-eksbuild.1", "v3.3.0-eksbuild.1"],
        "aws-fsx-csi-driver": ["v1.9.0-eksbuild.1"],  # a release of the driver; EKS's builds were not looked up
        "eks-pod-identity-agent": ["v1.3.10-eksbuild.3", "v1.3.10-eksbuild.1"],
        # A simulated host has no hardware to watch, so this one runs nothing.
        "eks-node-monitoring-agent": ["v1.7.0-eksbuild.1", "v1.6.6-eksbuild.1", "v1.6.4-eksbuild.1"],
        # It would mount S3 by FUSE, which nodes here don't have, so it runs nothing: no volume of it is mounted.
        "aws-mountpoint-s3-csi-driver": ["v2.8.0-eksbuild.1", "v2.7.0-eksbuild.1"],
    }

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane
        self._installed: dict[str, list[dict[str, Any]]] = {}

    def install(self, name: str, version: str, configuration: Mapping[str, Any]) -> None:
        """Install an addon, or change its configuration.

        Raises:
            KubeError: There is no such addon or version.
        """
        known = self.VERSIONS.get(name)
        if known is None:
            raise KubeError(f"addon {name} does not exist: choose one of {', '.join(sorted(self.VERSIONS))}")
        if version not in known:
            raise KubeError(f"addon {name} has no version {version}: choose one of {', '.join(known)}")
        objects = objects_of(name, configuration)
        for each in objects:
            self._plane.client.apply(each)
        self._installed[name] = objects
        if name in ON_NODES:
            with self._plane.lock:
                self._plane.node_addons.add(name)
                for node in self._plane.nodes.values():
                    if node.alive():
                        node.enable(name)

    def remove(self, name: str) -> None:
        """Remove what the addon put into the cluster and runs on nodes."""
        for each in reversed(self._installed.pop(name, objects_of(name, {}))):
            self._plane.client.delete(object_path(each), {"propagationPolicy": "Background"})
        with self._plane.lock:
            self._plane.node_addons.discard(name)
            for node in self._plane.nodes.values():
                node.disable(name)

    def status(self, name: str) -> str:
        """Return ACTIVE, CREATING (not all of it runs yet) or DEGRADED (not installed, or no answer)."""
        if name not in self._installed:
            return "DEGRADED"
        if name != "coredns":
            return "ACTIVE"
        try:
            found = self._plane.client.find(f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/deployments/coredns")
        except ApiError:
            return "DEGRADED"
        return "DEGRADED" if found is None else deployment_status(found)


def objects_of(name: str, configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of an addon, in order of creation."""
    if name == "coredns":
        return manifests.coredns(configuration)
    if driver := manifests.CSI_DRIVERS.get(name):
        short = driver.partition(".")[0]
        accounts = [manifests.service_account(f"{short}-csi-{part}-sa") for part in ("controller", "node")]
        return [*accounts, manifests.csi_driver(driver)]
    if name == "vpc-cni":
        return [manifests.service_account("aws-node")]
    if name == "kube-proxy":
        return [manifests.service_account("kube-proxy")]
    return []


def deployment_status(deployment: Mapping[str, Any]) -> str:
    """Return ACTIVE if the current generation of a Deployment is available, else CREATING."""
    status = deployment.get("status", {})
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 1):
        return "CREATING"
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return "ACTIVE" if conditions.get("Available") == "True" else "CREATING"
