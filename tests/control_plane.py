"""A control plane for tests and benchmarks: one etcd and one API server on the loopback, and nothing that runs pods.

    plane = Plane(folder, ["bench-tidewater"])
    plane.start()
    plane.client.get("/api/v1/namespaces")
    plane.kubeconfig("bench-tidewater")      # of a user with all rights; plane.site.audit has its calls
    plane.end()

There is no scheduler, and a controller manager only after `start_controllers`. So pods stay Pending, nothing is deleted
in the background, and only a controller that the caller starts reacts to a job. For tests:

    with running(folder) as plane:           # with an empty namespace, NAMESPACE
        plane.define_jobs()
        plane.server().list(JOBS)            # with all rights; plane.kubeconfig("guest", with_rights=False) has none
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from localcloud.kube.client import Client
from localcloud.kube.errors import ApiError
from localcloud.kube.kubeconfig import client_kubeconfig
from localcloud.kube.pki import Authority, signing_key, write_private

from scripts import toolchain
from tests import processes
from tests.elastic.workers import free_port
from tests.processes import HOST, Process, cpu_seconds
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import crd, names
from tidewater.kube.cluster import Object
from tidewater.kube.errors import ClusterError
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Kind
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import Server, connect

T = TypeVar("T")

ADMIN = "bench-admin"
GROUP = "system:serviceaccounts"
"""Of the controllers' users: the API server serves them with the priority of service accounts, as in a cluster."""
READY_SECONDS = 90.0
POLL_SECONDS = 0.1
KUBECTL_SECONDS = 120.0
NAMESPACE = "training"
"""The namespace of tests, like a stack's."""
OPEN = "default"
"""A namespace without a stack, which accepts any pod."""
NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}
"""For every process: all connections stay on the loopback, whatever proxy the environment names."""


@dataclass(frozen=True)
class Site:
    """Where the processes keep their files and listen."""

    folder: Path
    api_port: int
    etcd_port: int
    peer_port: int

    @property
    def endpoint(self) -> str:
        """URL of the API server."""
        return f"https://{HOST}:{self.api_port}"

    @property
    def audit(self) -> Path:
        """The API server's log of the measured users' calls."""
        return self.folder / "audit.log"


def etcd_flags(site: Site) -> list[str]:
    """Return the arguments of etcd. It does not wait for the disk, which is not what is measured."""
    client, peer = f"http://{HOST}:{site.etcd_port}", f"http://{HOST}:{site.peer_port}"
    return [
        "--name=default",
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--quota-backend-bytes={6 << 30}",  # 2 GiB by default; thousands of jobs are created between two compactions
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_flags(site: Site) -> list[str]:
    """Return the arguments of kube-apiserver."""
    pki = site.folder / "pki"
    return [
        f"--etcd-servers=http://{HOST}:{site.etcd_port}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # an endpoint on the loopback would be refused
        f"--secure-port={site.api_port}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        "--service-account-issuer=https://benchmark.invalid",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={site.folder / 'audit-policy.json'}",
        f"--audit-log-path={site.audit}",
        "--audit-log-maxsize=1000000",  # megabytes: the log is read while it grows, so it must not be rotated
        "--delete-collection-workers=4",
        "--profiling=false",
        "--shutdown-delay-duration=0s",
    ]


class PlaneError(Exception):
    """The API server or etcd has ended, isn't ready in time, or refuses what kubectl sends."""


class Plane:
    """An etcd and an API server. They end with the process that started them, however that ends."""

    def __init__(self, folder: Path, users: Sequence[str]) -> None:
        """Args:
        folder: For certificates, logs and etcd's data.
        users: The audit log has the calls of these.
        """
        self.site = Site(folder, free_port(), free_port(), free_port())
        self._users = tuple(users)
        self._authority = Authority.create("benchmark")
        self._processes: list[Process] = []
        self._client: Client | None = None
        self._tls: ssl.SSLContext | None = None

    @property
    def client(self) -> Client:
        """A client with all rights. Every thread has a connection of its own.

        Raises:
            PlaneError: Not started.
        """
        if self._client is None:
            raise PlaneError("the control plane isn't started")
        return self._client

    def start(self) -> None:
        """Start both, and return when the API server is ready.

        Raises:
            PlaneError: One of them has ended, or isn't ready in time.
        """
        folder = self.site.folder
        self._write_keys(folder / "pki")
        (folder / "audit-policy.json").write_text(json.dumps(audit_policy(self._users)))
        for name, flags in (("etcd", etcd_flags(self.site)), ("kube-apiserver", apiserver_flags(self.site))):
            command = [str(toolchain.binary(name)), *flags]
            self._processes.append(Process(name, command, NO_PROXY, folder))
        self._wait_until_ready()

    def start_controllers(self) -> None:
        """Also start Kubernetes' own controllers, which act on Deployments, accounts and what has no owner any more."""
        folder = self.site.folder
        flags = [
            f"--kubeconfig={folder / 'admin.kubeconfig'}",
            f"--service-account-private-key-file={folder / 'pki' / 'sa.key'}",
            "--leader-elect=false",
            "--pvclaimbinder-sync-period=1s",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'controllers'}",
        ]
        name = "kube-controller-manager"
        self._processes.append(Process(name, [str(toolchain.binary(name)), *flags], NO_PROXY, folder))

    def define_jobs(self) -> None:
        """Define ElasticJob, and return when the API server serves jobs, which is a moment later."""
        self.apply(crd.definition())
        eventually(lambda: self.client.text(f"/apis/{names.API_VERSION}/{names.PLURAL}"))

    def furnish(self, facts: Facts, claim: str) -> None:
        """Let NAMESPACE be a stack's that has these parts, and let it and OPEN have a claim."""
        volume = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        restricted = named(NAMESPACE, NAMESPACES)
        restricted["metadata"]["labels"] = dict(RESTRICTED_NAMESPACE)
        self.apply(
            restricted,
            named(CONFIG_MAP, CONFIG_MAPS, data=facts.data),
            named(facts.service_account, SERVICE_ACCOUNTS),
            *(named(claim, CLAIMS, namespace, spec=volume) for namespace in (NAMESPACE, OPEN)),
        )

    def end(self) -> None:
        """End both at once; their data is not used again. Safe to call again."""
        while self._processes:
            self._processes.pop().end()

    def connection(self) -> http.client.HTTPSConnection:
        """Return a connection of its own with all rights, without a time-out, for a watch."""
        if self._tls is None:
            self._tls = ssl.create_default_context(cadata=self._authority.pair.certificate)
            pki = self.site.folder / "pki"
            self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        return http.client.HTTPSConnection(HOST, self.site.api_port, context=self._tls)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request with all rights; return the HTTP status and the object in the answer, or {} if it has none.

        A path that the API server does not have yet is answered with plain text.
        """
        headers = {"Content-Type": "application/json"}
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
            is_object = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(content) if is_object else {}

    def server(self) -> Server:
        """Return access with all rights, as programs of this project have it, in NAMESPACE."""
        return connect(Access(kubeconfig=str(self.kubeconfig("admin", namespace=NAMESPACE))))

    def kubeconfig(self, user: str, *, with_rights: bool = True, namespace: str = "", group: str = GROUP) -> Path:
        """Return a kubeconfig of a user. Every controller has all rights, so that none is checked longer."""
        path = self.site.folder / f"{user}.kubeconfig"
        if not path.exists():
            pair = self._authority.issue(user, organization=group)
            if with_rights:
                self.apply(binding(user))
            write_private(path, client_kubeconfig(self.site.endpoint, self._authority.pair.certificate, pair, user))
        if namespace:
            content = json.loads(path.read_text())
            content["contexts"][0]["context"]["namespace"] = namespace
            path = path.with_name(f"{user}-in-{namespace}.kubeconfig")
            path.write_text(json.dumps(content))
        return path

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create or update objects of any kind."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(items))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl with all rights; return its output.

        Raises:
            PlaneError: It failed; has what it printed.
        """
        folder = self.site.folder
        own = ["--kubeconfig", str(folder / "admin.kubeconfig"), "--cache-dir", str(folder / "kubectl")]
        done = subprocess.run(
            [str(toolchain.binary("kubectl")), *own, *arguments],
            env={**os.environ, **NO_PROXY},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise PlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def cpu_seconds(self) -> float:
        """Return the CPU time that both have used so far."""
        return cpu_seconds([pid for process in self._processes for pid in process.tree()])

    def _write_keys(self, pki: Path) -> None:
        certificate = self._authority.pair.certificate
        self._authority.pair.write(pki, "ca")
        self._authority.issue("kube-apiserver", hosts=[HOST, "localhost"]).write(pki, "apiserver")
        private, public = signing_key()
        write_private(pki / "sa.key", private)
        (pki / "sa.pub").write_text(public)
        admin = self._authority.issue(ADMIN, organization="system:masters")
        admin.write(pki, "admin")
        kubeconfig = client_kubeconfig(self.site.endpoint, certificate, admin, ADMIN)
        write_private(self.site.folder / "admin.kubeconfig", kubeconfig)
        self._client = Client(self.site.endpoint, certificate, admin)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            for process in self._processes:
                if process.exit_code is not None:
                    raise PlaneError(f"{process.name} ended with {process.exit_code}:\n{process.last_lines()}")
            try:
                self.client.text("/readyz")
                return
            except ApiError as error:
                if time.monotonic() > deadline:
                    last = f"{error}\n{self._processes[-1].last_lines()}"
                    raise PlaneError(f"the API server isn't ready in {READY_SECONDS:.0f} s: {last}") from error
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Plane]:
    """Run a control plane with an empty namespace while the context lasts; no proxy is between this process and it."""
    plane = Plane(folder, ["admin"])
    with patch.dict(os.environ, NO_PROXY):
        try:
            plane.start()
            # There is no controller manager to make the accounts, without which no pod is admitted.
            accounts = (named("default", SERVICE_ACCOUNTS, namespace) for namespace in (NAMESPACE, OPEN))
            plane.apply(named(NAMESPACE, NAMESPACES), *accounts)
            yield plane
        finally:
            plane.end()


def eventually(ask: Callable[[], T]) -> T:
    """Return the answer once there is one, for what happens some time after a request; a refusal is none."""
    return processes.eventually(ask, ApiError, ClusterError, KeyError, IndexError)


def await_definitions(kubectl: Callable[..., str]) -> None:
    """Wait until the API server serves every custom resource definition.

    Not by `kubectl wait`, which fails on a definition that has no conditions yet.
    """

    def established(definition: dict[str, Any]) -> bool:
        conditions = definition.get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)

    processes.eventually(lambda: all(map(established, json.loads(kubectl("get", "crd", "-ojson"))["items"])))


def named(name: str, kind: Kind, namespace: str = NAMESPACE, **parts: Any) -> Object:
    """Return an object of a kind; `parts` are its fields."""
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def within(part: Any, whole: Any) -> bool:
    """Return whether everything in `part` is in `whole`, to which the API server may have added defaults."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(within, part, whole))
    return bool(part == whole)


def audit_policy(users: Sequence[str]) -> dict[str, Any]:
    """Return the audit policy: one line for each call of these users, and two for each watch."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(users)}, {"level": "None"}],
    }


def binding(user: str) -> dict[str, Any]:
    """Return the binding that gives a user all rights."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
