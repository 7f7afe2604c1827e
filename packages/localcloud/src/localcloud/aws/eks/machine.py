"""The interface to what runs clusters: `localcloud.kube` in the daemon, a fake that keeps state in tests."""

from __future__ import annotations

from typing import Any, Protocol

from typing_extensions import override

from localcloud import tools
from localcloud.instance import Instance
from localcloud.supervise import Supervisor


class ControlPlane(Protocol):
    """A cluster's API server, etcd, controller manager and scheduler."""

    @property
    def endpoint(self) -> str:
        """Return the URL of the API server."""

    @property
    def issuer(self) -> str:
        """Return the OIDC issuer of the service accounts' tokens."""

    @property
    def ca_pem(self) -> str:
        """Return the certificate of the cluster's authority."""

    def start(self, deadline: float) -> None:
        """Start everything; return when the API server is ready."""

    def upgrade(self, version: str, deadline: float) -> None:
        """Go on in another version of Kubernetes; return when the API server is ready again."""

    def revive(self) -> None:
        """Start again what has ended by itself."""

    def stop(self) -> None:
        """Stop everything and remove its data."""

    def delete_node(self, name: str) -> None:
        """Delete a Node object."""

    def drain(self, name: str, deadline: float) -> None:
        """Cordon a node and evict its pods."""

    @property
    def client(self) -> Any:
        """Return a `localcloud.kube.client.Client` with full rights."""


class Node(Protocol):
    """A simulated host."""

    def start(self) -> None:
        """Start the node."""

    def stop(self) -> None:
        """Shut the node down."""

    def power_off(self) -> None:
        """End all of the node's processes at once, as in a power cut."""

    def alive(self) -> bool:
        """Return whether the node runs."""

    def failure(self) -> str:
        """Return why the node doesn't get Ready, as its logs say; empty if they don't."""

    def ready(self) -> bool:
        """Return whether the node is Ready in Kubernetes."""


class Addons(Protocol):
    """The addons of one control plane."""

    def install(self, name: str, version: str, configuration: dict[str, Any]) -> None:
        """Install or update an addon."""

    def remove(self, name: str) -> None:
        """Remove an addon."""

    def status(self, name: str) -> str:
        """Return an addon's status: ACTIVE, CREATING or DEGRADED."""


class Machine(Protocol):
    """Creates control planes, nodes and addons."""

    def control_plane(self, spec: dict[str, Any]) -> ControlPlane:
        """Return a new control plane; `spec` has the fields of `localcloud.kube.ControlPlaneSpec`."""

    def node(self, control_plane: ControlPlane, spec: dict[str, Any]) -> Node:
        """Return a new node; `spec` has the fields of `localcloud.kube.NodeSpec`."""

    def addons(self, control_plane: ControlPlane) -> Addons:
        """Return the addons of a control plane."""

    def addon_versions(self) -> dict[str, list[str]]:
        """Return the addons that can be installed: name to versions, newest first."""

    def kubernetes_versions(self) -> list[str]:
        """Return the versions of Kubernetes that are here, oldest first."""


class KubeMachine(Machine):
    """`Machine` implemented with `localcloud.kube`.

    Args:
        driver_key: The access key and secret of the EFS driver.
    """

    def __init__(self, instance: Instance, supervisor: Supervisor, driver_key: tuple[str, str]) -> None:
        self._instance = instance
        self._supervisor = supervisor
        self._driver_key = driver_key

    @override
    def control_plane(self, spec: dict[str, Any]) -> ControlPlane:
        from localcloud import kube

        plane: ControlPlane = kube.ControlPlane(self._instance, self._supervisor, kube.ControlPlaneSpec(**spec))
        return plane

    @override
    def node(self, control_plane: Any, spec: dict[str, Any]) -> Node:
        from localcloud import kube

        key = kube.DriverKey(*self._driver_key)
        node: Node = kube.Node(self._instance, self._supervisor, control_plane, kube.NodeSpec(**spec), key)
        return node

    @override
    def addons(self, control_plane: Any) -> Addons:
        from localcloud import kube

        addons: Addons = kube.Addons(control_plane)
        return addons

    @override
    def addon_versions(self) -> dict[str, list[str]]:
        from localcloud import kube

        return dict(kube.Addons.VERSIONS)

    @override
    def kubernetes_versions(self) -> list[str]:
        return tools.kubernetes_versions()


def webhook(url: str, ca_pem: str) -> Any:
    """Return a `localcloud.kube.Webhook`."""
    from localcloud import kube

    return kube.Webhook(url, ca_pem)
