"""A real control plane without nodes, for all tests of this folder."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from localcloud import tools
from localcloud.standins.kubernetes.cluster.client import Cluster

from packages.localcloud.tests.standins.kubernetes.harness import Engine
from tidewater.kube import kubeconfig as kubeconfigs
from tidewater.kube.errors import ClusterError
from tidewater.kube.kubeconfig import Access

TOKEN = "only-for-tests"
START_SECONDS = 180


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
    folder = tmp_path_factory.mktemp("control-plane")
    with contextlib.ExitStack() as stack:
        yield _start(folder, stack)


def _start(folder: Path, stack: contextlib.ExitStack) -> ControlPlane:
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    etcd, peer, port, manager = _free_ports(4)
    _spawn(stack, folder, "etcd", [
        f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{etcd}", "--unsafe-no-fsync",
        f"--advertise-client-urls=http://127.0.0.1:{etcd}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}", f"--initial-cluster=default=http://127.0.0.1:{peer}",
    ])  # fmt: skip
    _spawn(stack, folder, "kube-apiserver", [
        f"--etcd-servers=http://127.0.0.1:{etcd}", f"--cert-dir={folder}/certs", "--bind-address=127.0.0.1",
        f"--secure-port={port}", "--service-cluster-ip-range=10.99.0.0/16", "--authorization-mode=RBAC",
        f"--token-auth-file={folder}/tokens.csv", f"--service-account-key-file={folder}/sa.key",
        f"--service-account-signing-key-file={folder}/sa.key", "--service-account-issuer=https://kubernetes.default.svc",
    ])  # fmt: skip
    plane = _when_ready(folder, port)
    (folder / "kubeconfig").write_text(plane.kubeconfig)
    _spawn(stack, folder, "kube-controller-manager", [
        f"--kubeconfig={folder}/kubeconfig", f"--service-account-private-key-file={folder}/sa.key",
        "--leader-elect=false", f"--secure-port={manager}", f"--cert-dir={folder}/certs-kcm",
    ])  # fmt: skip
    return plane


def _free_ports(count: int) -> set[int]:
    """Return different TCP ports that are free, below those that the kernel gives to connections.

    One of theirs could be taken before it is used.
    """
    found: set[int] = set()
    while len(found) < count:
        port = 28_000 + secrets.randbelow(4_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.add(port)
    return found


def _spawn(stack: contextlib.ExitStack, folder: Path, name: str, arguments: list[str]) -> None:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([str(tools.binary(name)), *arguments], stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _when_ready(folder: Path, port: int) -> ControlPlane:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ClusterError, FileNotFoundError, ValueError):
            authority = base64.b64encode((folder / "certs/apiserver.crt").read_bytes()).decode()
            kubeconfig = kubeconfig_of(f"https://127.0.0.1:{port}", authority)
            cluster = Cluster(kubeconfigs.load(Access(text=kubeconfig), {}))
            cluster.get({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
            return ControlPlane(kubeconfig, cluster)
        time.sleep(0.2)
    raise AssertionError((folder / "kube-apiserver.log").read_text()[-2000:])


def kubeconfig_of(server: str, authority: str) -> str:
    cluster = {"server": server, "certificate-authority-data": authority}
    return json.dumps(
        {
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )


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

    def wait(ask: Callable[[], Any], seconds: float = 90) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(ClusterError, KeyError, IndexError):
                if answer := ask():
                    return answer
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.1)

    return wait
