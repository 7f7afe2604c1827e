"""A real control plane without nodes, and the real Pulumi engine, for the tests of this folder."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from localcloud import tools
from localcloud.standins.kubernetes.client import Cluster
from localcloud.standins.kubernetes.errors import ClusterError
from localcloud.standins.kubernetes.kubeconfig import Kubeconfig

CHECKOUT = Path(__file__).parents[4]
TOKEN = "only-for-tests"
START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class ControlPlane:
    kubeconfig: str
    cluster: Cluster


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver and kube-controller-manager; no node: the tests play kubelet by patching status."""
    folder = tmp_path_factory.mktemp("control-plane")
    with contextlib.ExitStack() as stack:
        yield _start(folder, stack)


def _start(folder: Path, stack: contextlib.ExitStack) -> ControlPlane:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "sa.key").write_bytes(key)
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    etcd, peer, port = free_port(), free_port(), free_port()
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
    cluster = _when_ready(folder, port)
    kubeconfig = _kubeconfig(folder, port)
    (folder / "kubeconfig").write_text(kubeconfig)
    _spawn(stack, folder, "kube-controller-manager", [
        f"--kubeconfig={folder}/kubeconfig", f"--service-account-private-key-file={folder}/sa.key",
        "--leader-elect=false", f"--secure-port={free_port()}", f"--cert-dir={folder}/certs-kcm",
    ])  # fmt: skip
    return ControlPlane(kubeconfig, cluster)


def _spawn(stack: contextlib.ExitStack, folder: Path, name: str, arguments: list[str]) -> None:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([str(tools.binary(name)), *arguments], stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _kubeconfig(folder: Path, port: int) -> str:
    authority = base64.b64encode((folder / "certs" / "apiserver.crt").read_bytes()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )


def _when_ready(folder: Path, port: int) -> Cluster:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(ClusterError, FileNotFoundError, ValueError):
            cluster = Cluster(Kubeconfig.load(_kubeconfig(folder, port)).connection(None, None))
            cluster._send("GET", "/readyz", {}, None, "text/plain")
            return cluster
        time.sleep(0.2)
    raise AssertionError((folder / "kube-apiserver.log").read_text()[-2000:])


@dataclass(frozen=True)
class Result:
    returncode: int
    output: str


@dataclass
class Stack:
    """A Pulumi project whose program is one function body, run by the real engine."""

    folder: Path
    kubeconfig: str
    environment: dict[str, str] = field(default_factory=dict)

    def program(self, body: str, **provider: object) -> None:
        options = "".join(f", {key}={value!r}" for key, value in provider.items())
        (self.folder / "__main__.py").write_text(
            "import os\nimport pulumi\nimport pulumi_kubernetes as k8s\n"
            f"provider = k8s.Provider('cluster', kubeconfig=os.environ['TEST_KUBECONFIG']{options})\n"
            "on = pulumi.ResourceOptions(provider=provider)\n" + body
        )

    def pulumi(self, *arguments: str, ok: bool = True) -> Result:
        done = subprocess.run(
            [str(tools.binary("pulumi")), *arguments, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env={**os.environ, **self.environment, "TEST_KUBECONFIG": self.kubeconfig},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert not ok or done.returncode == 0, done.stdout
        return Result(done.returncode, done.stdout)

    def up(self, *, ok: bool = True, preview: bool = False) -> Result:
        return self.pulumi("up", "--yes", *([] if preview else ["--skip-preview"]), ok=ok)

    def state(self) -> list[dict[str, Any]]:
        exported = json.loads(self.pulumi("stack", "export").output)
        resources: list[dict[str, Any]] = exported["deployment"].get("resources") or []
        return resources

    def resource(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.state() if each["type"].endswith(f":{kind}"))


@pytest.fixture
def stack(control_plane: ControlPlane, tmp_path: Path) -> Stack:
    """A stack of the test's own; what it makes ends with the namespace, or with the control plane."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: standin\nruntime:\n  name: python\n")
    state = tmp_path / "state"
    state.mkdir()
    environment = {
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "LOCALCLOUD_PYTHON": sys.executable,
        "PATH": f"{CHECKOUT / 'localcloud/standins/bin'}{os.pathsep}{os.environ['PATH']}",
    }
    made = Stack(project, control_plane.kubeconfig, environment)
    made.pulumi("stack", "init", "test")
    return made


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
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
