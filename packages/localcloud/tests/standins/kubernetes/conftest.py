"""A real control plane without nodes, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from localcloud.standins.kubernetes.cluster.client import Cluster

from packages.localcloud.tests.standins.kubernetes.harness import Engine
from tests.control_plane import Plane
from tests.control_plane import eventually as waited_for
from tidewater.kube import kubeconfig as kubeconfigs
from tidewater.kube.kubeconfig import Access


@dataclass(frozen=True)
class ControlPlane:
    kubeconfig: str
    cluster: Cluster

    def live(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
        target = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        return self.cluster.get(target)

    def patch(self, obj: dict[str, Any], body: dict[str, Any], *, suffix: str = "", manager: str = "kubectl") -> None:
        path = self.cluster.path_of(obj) + suffix
        self.cluster.request("PATCH", path, {"fieldManager": manager}, body, "application/merge-patch+json")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager; no node: the tests play kubelet by patching status."""
    plane = Plane(tmp_path_factory.mktemp("control-plane"), ["admin"])
    try:
        plane.start()
        plane.start_controllers()
        kubeconfig = plane.kubeconfig("admin").read_text()
        yield ControlPlane(kubeconfig, Cluster(kubeconfigs.load(Access(text=kubeconfig), {})))
    finally:
        plane.end()


@pytest.fixture
def engine(control_plane: ControlPlane) -> Callable[..., Engine]:
    """Return a function that makes a provider with settings of its own."""
    return lambda **settings: Engine(control_plane.kubeconfig, settings)


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, deleted afterwards."""
    name = f"t-{abs(hash(request.node.name)) % 10**8}"
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    control_plane.cluster.apply(obj, manager="test", force=True, dry_run=False)
    yield name
    control_plane.cluster.delete(obj, "Background")


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Calls until the answer is true, for what another process does."""
    return waited_for
