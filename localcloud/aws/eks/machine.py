"""The seam to what runs clusters: `localcloud.kube` in the daemon, a fake that keeps state in tests."""

from __future__ import annotations

from typing import Any, Protocol

from localcloud.instance import Instance
from localcloud.supervise import Supervisor


class ControlPlane(Protocol):
    """A cluster's API server and what belongs to it."""

    @property
    def endpoint(self) -> str:
        """URL of the API server."""

    @property
    def issuer(self) -> str:
        """OIDC issuer of service accounts' tokens."""

    @property
    def ca_pem(self) -> str:
        """Certificate of the cluster's authority."""

    def start(self, deadline: float) -> None:
        """Start everything; returns when the API server is ready."""

    def stop(self) -> None:
        """Stop everything and remove its data."""

    def delete_node(self, name: str) -> None:
        """Delete a Node object."""

    def drain(self, name: str, deadline: float) -> None:
        """Cordon a node and evict its pods."""

    @property
    def client(self) -> Any:
        """A `localcloud.kube.client.Client` with full rights."""


class Node(Protocol):
    """A simulated host."""

    def start(self) -> None:
        """Boot it."""

    def stop(self) -> None:
        """Shut it down."""

    def power_off(self) -> None:
        """Cut its power."""

    def alive(self) -> bool:
        """Whether it runs."""

    def ready(self) -> bool:
        """Whether Kubernetes calls it Ready."""


class Addons(Protocol):
    """The addons of one control plane."""

    def install(self, name: str, version: str, configuration: dict[str, Any]) -> None:
        """Install or update."""

    def remove(self, name: str) -> None:
        """Remove."""

    def status(self, name: str) -> str:
        """ACTIVE, CREATING or DEGRADED."""


class Machine(Protocol):
    """Makes them."""

    def control_plane(self, spec: dict[str, Any]) -> ControlPlane:
        """A control plane; `spec` has the fields of `localcloud.kube.ControlPlaneSpec`."""

    def node(self, control_plane: ControlPlane, spec: dict[str, Any]) -> Node:
        """A node; `spec` has the fields of `localcloud.kube.NodeSpec`."""

    def addons(self, control_plane: ControlPlane) -> Addons:
        """The addons of a control plane."""

    def addon_versions(self) -> dict[str, list[str]]:
        """What can be installed: name to versions, newest first."""


class KubeMachine:
    """`Machine` by `localcloud.kube`.

    Args:
        driver_key: Access key and secret of the EFS driver.
    """

    def __init__(self, instance: Instance, supervisor: Supervisor, driver_key: tuple[str, str]) -> None:
        self._instance = instance
        self._supervisor = supervisor
        self._driver_key = driver_key

    def control_plane(self, spec: dict[str, Any]) -> ControlPlane:
        """See `Machine.control_plane`."""
        from localcloud import kube

        plane: ControlPlane = kube.ControlPlane(self._instance, self._supervisor, kube.ControlPlaneSpec(**spec))
        return plane

    def node(self, control_plane: Any, spec: dict[str, Any]) -> Node:
        """See `Machine.node`."""
        from localcloud import kube

        key = kube.DriverKey(*self._driver_key)
        node: Node = kube.Node(self._instance, self._supervisor, control_plane, kube.NodeSpec(**spec), key)
        return node

    def addons(self, control_plane: Any) -> Addons:
        """See `Machine.addons`."""
        from localcloud import kube

        addons: Addons = kube.Addons(control_plane)
        return addons

    def addon_versions(self) -> dict[str, list[str]]:
        """See `Machine.addon_versions`."""
        from localcloud import kube

        return dict(kube.Addons.VERSIONS)


def webhook(url: str, ca_pem: str) -> Any:
    """A `localcloud.kube.Webhook`."""
    from localcloud import kube

    return kube.Webhook(url, ca_pem)
