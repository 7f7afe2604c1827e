"""A real API server with an etcd, and nothing else, for tests of what it accepts."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import toolchain
from tests.trainer.workers import PATIENCE_SECONDS, free_port, run_etcd
from trainer.launch.lifeline import bound_to

HOST = "127.0.0.1"
TOKEN = "only-for-tests"


@dataclass(frozen=True)
class ApiServer:
    """A running API server, in which the holder of the token has every right."""

    folder: Path
    port: int
    certificate: str

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request; return the HTTP status and the object in the answer, or {} if it has none.

        A path that the API server does not have yet is answered with plain text.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        trust = ssl.create_default_context(cadata=self.certificate)
        connection = http.client.HTTPSConnection(HOST, self.port, context=trust, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            is_object = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(content) if is_object else {}

    def kubectl(self, *arguments: str, stdin: str | None = None, expect: int = 0) -> str:
        """Run kubectl; return what it prints."""
        own = [f"--server=https://{HOST}:{self.port}", f"--token={TOKEN}", "--insecure-skip-tls-verify"]
        own.append(f"--cache-dir={self.folder / 'kubectl'}")
        done = subprocess.run(
            [toolchain.binary("kubectl"), *own, *arguments],
            input=stdin,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NO_PROXY": "*", "no_proxy": "*", "KUBECONFIG": os.devnull},
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == expect, done.stdout
        return done.stdout


def eventually(ask: Callable[[], bool]) -> None:
    """Return once the answer is true, for what the API server does some time after a request."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ask():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """Run etcd and kube-apiserver while the context lasts."""
    for etcd in run_etcd(toolchain.binary("etcd"), folder, free_port()):
        port = free_port()
        with (folder / "kube-apiserver.log").open("w") as log:
            process = subprocess.Popen(
                [toolchain.binary("kube-apiserver"), *_flags(folder, etcd, port)],
                stdout=log,
                stderr=log,
                preexec_fn=bound_to(os.getpid()),
            )
        try:
            yield _when_ready(folder, port)
        finally:
            process.kill()
            process.wait()


def _flags(folder: Path, etcd: str, port: int) -> list[str]:
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
    flags = {
        "etcd-servers": etcd,
        "cert-dir": folder / "certificates",
        "bind-address": HOST,
        "advertise-address": HOST,
        "endpoint-reconciler-type": "none",  # it would refuse an address on the loopback
        "secure-port": port,
        "service-cluster-ip-range": "10.99.0.0/16",
        "authorization-mode": "RBAC",
        "token-auth-file": tokens,
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-account-issuer": "https://kubernetes.default.svc",
    }
    return [f"--{name}={value}" for name, value in flags.items()]


def _when_ready(folder: Path, port: int) -> ApiServer:
    """Return the server once it has made its certificate and its default namespace."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
            server = ApiServer(folder, port, (folder / "certificates" / "apiserver.crt").read_text())
            if server.request("GET", "/api/v1/namespaces/default")[0] == http.HTTPStatus.OK:
                return server
        assert time.monotonic() < deadline, (folder / "kube-apiserver.log").read_text()[-2000:]
        time.sleep(0.1)
