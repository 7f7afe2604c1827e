"""Kubeflow's training-operator, installed as its own manifests do, and run as a process.

    operator = TrainingOperator()
    operator.install(plane)                     # CRDs, webhooks, Secret; once
    process = operator.start(plane, folder, ["--controller-threads=8"])
    operator.end()

In a cluster it runs in a pod, which makes two differences to arrange for. The API server reaches its webhooks by a
Service: here the Service is an alias of this machine. And the certificate that it writes to a Secret comes back to it
as files: here the benchmark copies them, as a kubelet does, to the folder that the operator reads.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.command import TurnFailed
from scripts import toolchain
from tests.control_plane import NO_PROXY, Plane, await_definitions
from tests.elastic.workers import free_port
from tests.processes import HOST, Process

NAME = "training-operator"
USER = "bench-training-operator"
NAMESPACE = "kubeflow"
SECRET = "training-operator-webhook-cert"
WEBHOOKS = "validator.training-operator.kubeflow.org"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""Written in the operator's sources; no flag changes it."""
CERTIFICATE_SECONDS = 60.0
POLL_SECONDS = 0.2
_WEBHOOKS_PATH = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{WEBHOOKS}"
_NAMESPACE_PATH = f"/api/v1/namespaces/{NAMESPACE}"


class TrainingOperator:
    """The operator. One at a time runs on a machine, because of its folder of certificates."""

    user = USER

    def __init__(self, certificates: Path = CERTIFICATES) -> None:
        self._certificates = certificates
        self._webhook_port = free_port()
        self._made = False

    def install(self, plane: Plane) -> None:
        """Create what its standalone overlay contains. Nothing runs the Deployment that is part of it.

        Raises:
            TurnFailed: Its folder of certificates exists already.
        """
        try:
            self._certificates.mkdir(parents=True, mode=0o700)
        except FileExistsError as error:
            raise TurnFailed(
                f"{self._certificates} exists: another training-operator uses it, or a benchmark that was killed has "
                "left it; delete it if none runs"
            ) from error
        self._made = True
        overlay = toolchain.bench_module(NAME) / "manifests" / "overlays" / "standalone"
        plane.kubectl("apply", "--server-side", "-k", str(overlay))
        await_definitions(plane.kubectl)
        plane.client.delete(f"{_NAMESPACE_PATH}/services/{NAME}")
        plane.client.create(f"{_NAMESPACE_PATH}/services", alias())
        hooks = plane.client.get(_WEBHOOKS_PATH)
        plane.client.request("PUT", _WEBHOOKS_PATH, at_port(hooks, self._webhook_port))

    def start(self, plane: Plane, folder: Path, flags: Sequence[str]) -> Process:
        """Start the operator, and give it its certificate as soon as it has made one.

        Raises:
            TurnFailed: It ended, or made no certificate in time.
        """
        command = [
            str(toolchain.bench_binary(NAME)),
            f"--metrics-bind-address={HOST}:{free_port()}",
            f"--health-probe-bind-address={HOST}:{free_port()}",
            f"--webhook-server-port={self._webhook_port}",
            *flags,
        ]
        environment = {**NO_PROXY, "KUBECONFIG": str(plane.kubeconfig(USER)), "MY_POD_NAMESPACE": NAMESPACE}
        process = Process(NAME, command, environment, folder)
        try:
            self._copy_certificate(plane, process)
        except BaseException:
            process.end()
            raise
        return process

    def end(self) -> None:
        """Delete the folder of certificates. Safe to call again."""
        if self._made:
            shutil.rmtree(self._certificates, ignore_errors=True)
            self._made = False

    def _copy_certificate(self, plane: Plane, process: Process) -> None:
        deadline = time.monotonic() + CERTIFICATE_SECONDS
        while True:
            found = files(plane.client.get(f"{_NAMESPACE_PATH}/secrets/{SECRET}"))
            if "tls.crt" in found:
                break
            if process.exit_code is not None:
                raise TurnFailed(f"{NAME} ended with {process.exit_code}:\n{process.last_lines()}")
            if time.monotonic() > deadline:
                raise TurnFailed(f"{NAME} made no certificate in {CERTIFICATE_SECONDS:.0f} s:\n{process.last_lines()}")
            time.sleep(POLL_SECONDS)
        # The operator waits for tls.crt, so that is the last.
        for name in sorted(found, key=lambda name: name == "tls.crt"):
            (self._certificates / name).write_bytes(found[name])


def alias() -> dict[str, Any]:
    """Return a Service that is an alias of this machine; the API server reaches the webhooks through it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }


def at_port(configuration: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return the webhook configuration with another port of the Service. An alias can't translate ports."""
    hooks = []
    for hook in configuration["webhooks"]:
        client = hook["clientConfig"]
        hooks.append({**hook, "clientConfig": {**client, "service": {**client["service"], "port": port}}})
    return {**configuration, "webhooks": hooks}


def files(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files that a Secret has as a volume."""
    return {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
