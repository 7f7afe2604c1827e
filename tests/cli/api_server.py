"""A real API server for tests of the command line: etcd and kube-apiserver on the loopback, no nodes, no controllers.

with started(folder) as plane:
    plane.kubeconfig("admin")
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.access.kubeconfig import Connection
from cli.access.server import Server
from cli.errors import ClusterError
from localcloud import tools

START_SECONDS = 120.0
TOKENS = {"admin": "token-of-admin", "nobody": "token-of-nobody"}


@dataclass(frozen=True)
class Plane:
    """A running API server."""

    folder: Path
    port: int

    @property
    def authority(self) -> Path:
        """The certificate that the server has made for itself."""
        return self.folder / "certs" / "apiserver.crt"

    def server(self) -> Server:
        """Return access with all rights."""
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.authority)}
        return Server(Connection("test", "default", cluster, {"token": TOKENS["admin"]}))

    def kubeconfig(self, user: str) -> Path:
        """Write a kubeconfig of `user`: admin has all rights, nobody has none."""
        content = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "training"}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{self.port}",
                        "certificate-authority-data": base64.b64encode(self.authority.read_bytes()).decode(),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": TOKENS[user]}}],
        }
        file = self.folder / f"kubeconfig-{user}"
        file.write_text(json.dumps(content))
        return file


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Plane]:
    """Start an API server and wait until it answers; always end it."""
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(
        "".join(
            f'{token},{user},{user},"{"system:masters" if user == "admin" else "none"}"\n'
            for user, token in TOKENS.items()
        )
    )
    etcd, peer, port = (_free_port() for _ in range(3))
    with contextlib.ExitStack() as stack:
        _spawn(stack, folder, "etcd", _etcd_flags(folder, etcd, peer))
        _spawn(stack, folder, "kube-apiserver", _api_flags(folder, etcd, port))
        plane = Plane(folder, port)
        _await_ready(plane)
        yield plane


def _etcd_flags(folder: Path, client: int, peer: int) -> list[str]:
    return [
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]


def _api_flags(folder: Path, etcd: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--cert-dir={folder}/certs",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.99.0.0/16",
        "--authorization-mode=RBAC",
        f"--token-auth-file={folder}/tokens.csv",
        f"--service-account-key-file={folder}/sa.key",
        f"--service-account-signing-key-file={folder}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--disable-admission-plugins=ServiceAccount",  # nothing makes the default service account
    ]


def _spawn(stack: contextlib.ExitStack, folder: Path, name: str, flags: Sequence[str]) -> None:
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    process = subprocess.Popen([str(tools.binary(name)), *flags], stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.kill)


def _await_ready(plane: Plane) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        # The certificate is made by the server, so that there is no client before it.
        with contextlib.suppress(ClusterError):
            if plane.server().read("/readyz") == "ok":
                return
        time.sleep(0.1)
    raise AssertionError((plane.folder / "kube-apiserver.log").read_text()[-2000:])


def _free_port() -> int:
    """Return a free TCP port below those that the kernel gives to connections."""
    while True:
        port = 28_000 + secrets.randbelow(4_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
