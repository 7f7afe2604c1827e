"""One cluster's control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler in the cloud namespace.

plane = ControlPlane(instance, supervisor, ControlPlaneSpec("demo", "1.35", 0))
plane.start(deadline=time.monotonic() + 60)
plane.client.get("/api/v1/nodes")
plane.stop()
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from localcloud import tools
from localcloud.errors import CloudError
from localcloud.instance import Instance
from localcloud.kube import control_plane_config as config
from localcloud.kube.client import Client
from localcloud.kube.draining import delete_node, drain
from localcloud.kube.errors import ApiError, KubeError
from localcloud.kube.kubeconfig import client_kubeconfig, webhook_kubeconfig
from localcloud.kube.network import Network
from localcloud.kube.pki import Authority, Pair, signing_key, write_private
from localcloud.supervise import Supervisor

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
STOP_SECONDS = 2.0
RETURN_SECONDS = 120.0
"""How long an API server may take to be ready again: that of the old version after the new one didn't start, or one
that has ended by itself."""
UNAVAILABLE = (0, 503)
NODE_PREFIX = 24
COMPONENTS = {"kube-controller-manager": "system:kube-controller-manager", "kube-scheduler": "system:kube-scheduler"}
FLAGS = {
    "etcd": config.etcd_flags,
    "kube-apiserver": config.apiserver_flags,
    "kube-controller-manager": config.controller_manager_flags,
    "kube-scheduler": config.scheduler_flags,
}
"""Program of a control plane → what returns its arguments; in the order in which they start."""


class Member(Protocol):
    """A node of the cluster, as addons need it."""

    pod_cidr: str

    def alive(self) -> bool:
        """Whether the node runs."""

    def enable(self, addon: str) -> None:
        """Start what the addon runs on nodes."""

    def disable(self, addon: str) -> None:
        """Stop it."""


@dataclass(frozen=True)
class Webhook:
    """An HTTPS endpoint of the daemon that the API server calls."""

    url: str
    ca_pem: str


@dataclass(frozen=True)
class ControlPlaneSpec:
    """The specification of a control plane.

    Args:
        cluster: The cluster's name.
        version: Kubernetes' minor version, as EKS has it.
        index: k, unique among the instance's clusters, 0..63: sets ports and the pods' range.
        authentication: Answers TokenReviews for tokens that are no service account's.
        pod_identity: Changes a pod if its service account has an association.
    """

    cluster: str
    version: str
    index: int
    authentication: Webhook | None = None
    pod_identity: Webhook | None = None


class ControlPlane:
    """A cluster's control plane; its nodes register here, so that addons find them."""

    def __init__(self, instance: Instance, supervisor: Supervisor, spec: ControlPlaneSpec) -> None:
        if not 0 <= spec.index < config.MAX_CLUSTERS:
            raise KubeError(f"cluster index {spec.index} is outside 0..{config.MAX_CLUSTERS - 1}: delete a cluster")
        self.spec = spec
        self.nodes: dict[str, Member] = {}
        self.node_addons: set[str] = set()
        self.lock = threading.RLock()
        self._instance = instance
        self._supervisor = supervisor
        self._directory = instance.state / "clusters" / spec.cluster
        self._plan = config.Plan(
            index=spec.index,
            address=instance.cloud_address,
            directory=self._directory,
            issuer=config.issuer_url(instance.region, f"{instance.id}/{spec.cluster}"),
            webhook=self._directory / "authentication.kubeconfig" if spec.authentication else None,
        )
        self._authority: Authority | None = None
        self._client: Client | None = None
        self._next_range = 0
        self._upgrading = threading.Lock()

    @property
    def endpoint(self) -> str:
        """URL of the API server, reachable from the host, nodes and pods."""
        return self._plan.endpoint

    @property
    def issuer(self) -> str:
        """OIDC issuer of the cluster's service-account tokens."""
        return self._plan.issuer

    @property
    def pod_cidr(self) -> str:
        """The range of all pods of the cluster."""
        return self._plan.pod_cidr

    @property
    def ca_pem(self) -> str:
        """Certificate of the cluster's authority."""
        return self.authority.pair.certificate

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig with a client certificate of group system:masters."""
        return self._directory / "admin.kubeconfig"

    @property
    def authority(self) -> Authority:
        """Signs certificates of nodes.

        Raises:
            KubeError: Not started.
        """
        if self._authority is None:
            raise KubeError(f"control plane of cluster {self.spec.cluster} isn't started")
        return self._authority

    @property
    def client(self) -> Client:
        """A client with full rights.

        Raises:
            KubeError: Not started.
        """
        if self._client is None:
            raise KubeError(f"control plane of cluster {self.spec.cluster} isn't started")
        return self._client

    def start(self, deadline: float) -> None:
        """Start everything anew; return once the API server is ready and pods can be created.

        Args:
            deadline: In seconds of time.monotonic().

        Raises:
            KubeError: A process died or wasn't ready in time; names it and has its last log lines.
        """
        Network(self._instance).create()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._prepare()
        self._spawn("etcd")
        self._spawn("kube-apiserver")
        # Earlier they would be refused, and try again only after seconds.
        self._wait_until("/readyz", deadline)
        self._start_controllers()
        # Pods need their namespace's service account, which appears once the controllers run.
        self._wait_until("/api/v1/namespaces/default/serviceaccounts/default", deadline)
        if self.spec.pod_identity:
            bundle = base64.b64encode(self.spec.pod_identity.ca_pem.encode()).decode()
            self.client.apply(config.pod_identity_webhook(self.spec.pod_identity.url, bundle))

    def upgrade(self, version: str, deadline: float) -> None:
        """Restart everything but etcd in another version of Kubernetes; return once the API server is ready.

        EKS replaces the API servers one by one. Here there is one, and it doesn't answer for some seconds. As on EKS
        the cluster goes on in the old version if the new one doesn't start.
        https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html

        Raises:
            ToolMissing: A program of that version is missing; nothing is restarted.
            CloudError: A process couldn't be started, died or wasn't ready in time.
        """
        for name in tools.KUBERNETES_PROGRAMS:
            tools.kubernetes(version, name)
        before = self.spec.version
        with self._upgrading:
            try:
                self._restart(version, deadline)
            except CloudError:
                if self._client is not None:  # else it was stopped meanwhile
                    self._bring_back(before)
                raise

    def revive(self) -> None:
        """Start again what has ended by itself. EKS does that too, and Kubernetes counts on it.

        kube-scheduler, for one, ends when an API server that restarts has shown it events in the wrong order.

        With the API server its watchers start anew. Their watches would be back only after half a minute. Until then
        they would see no heartbeats, and nodes would count as lost. On EKS they end too: they can't renew their leases.

        Raises:
            ProcessFailed: A program can't be executed.
            KubeError: The API server isn't ready in time.
        """
        if not self._upgrading.acquire(blocking=False):
            return
        try:
            for component in FLAGS:
                name = self._process(component)
                if self._supervisor.find(name) and not self._supervisor.alive(name):
                    log.warning("cluster %s: %s has ended and starts again", self.spec.cluster, component)
                    if component == "kube-apiserver":
                        self._bring_back(self.spec.version)
                    else:
                        self._spawn(component)
        finally:
            self._upgrading.release()

    def stop(self) -> None:
        """Stop the processes and remove the data; the caller stops the nodes first."""
        for name in ("kube-scheduler", "kube-controller-manager"):
            self._supervisor.stop(self._process(name), grace_seconds=0)
        # A graceful end of the API server would wait for watches, and its data is deleted anyway.
        for name in ("kube-apiserver", "etcd"):
            self._supervisor.stop(self._process(name), grace_seconds=0)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._client = None

    def delete_node(self, name: str) -> None:
        """Delete a Node object, and finish the pods that were bound to it."""
        self._patiently(lambda client: delete_node(client, name), time.monotonic() + RETURN_SECONDS)

    def drain(self, name: str, deadline: float) -> None:
        """Cordon a node and evict its pods; return when they are gone or at the deadline."""
        self._patiently(lambda client: drain(client, name, deadline), deadline)

    def allocate_pod_cidr(self) -> str:
        """Return a /24 for a new node: the next one that no node has."""
        with self.lock:
            taken = {node["spec"].get("podCIDR") for node in self.client.get("/api/v1/nodes")["items"]}
            taken |= {node.pod_cidr for node in self.nodes.values()}
            ranges = list(ipaddress.ip_network(self._plan.pod_cidr).subnets(new_prefix=NODE_PREFIX))
            for step in range(len(ranges)):
                candidate = str(ranges[(self._next_range + step) % len(ranges)])
                if candidate not in taken:
                    self._next_range = (self._next_range + step + 1) % len(ranges)
                    return candidate
        raise KubeError(f"cluster {self.spec.cluster} has no pod range left in {self._plan.pod_cidr}: remove nodes")

    def _restart(self, version: str, deadline: float) -> None:
        for component in ("kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            self._supervisor.stop(self._process(component), grace_seconds=STOP_SECONDS)
        self.spec = replace(self.spec, version=version)
        self._spawn("kube-apiserver")
        self._wait_until("/readyz", deadline)
        self._start_controllers()

    def _bring_back(self, version: str) -> None:
        """Restart in the version that ran until now; if the API server isn't ready in time, nothing stays stopped."""
        try:
            self._restart(version, time.monotonic() + RETURN_SECONDS)
        except CloudError:
            if self._client is not None:  # else it was stopped meanwhile
                self._start_controllers()  # without an API server they end, and are revived until there is one
            raise

    def _start_controllers(self) -> None:
        self._spawn("kube-controller-manager")
        self._spawn("kube-scheduler")

    def _prepare(self) -> None:
        pki = self._directory / "pki"
        authority = Authority.create(self.spec.cluster)
        authority.pair.write(pki, "ca")
        names = config.server_names(self._plan, self._instance.region)
        authority.issue("kube-apiserver", hosts=names).write(pki, "apiserver")
        authority.issue("kube-apiserver-kubelet-client", organization="system:masters").write(
            pki, "apiserver-kubelet-client"
        )
        private, public = signing_key()
        write_private(pki / "sa.key", private)
        (pki / "sa.pub").write_text(public)
        for component, user in COMPONENTS.items():
            self._write_kubeconfig(self._directory / f"{component}.kubeconfig", authority.issue(user), authority)
        admin = authority.issue("localcloud-admin", organization="system:masters")
        self._write_kubeconfig(self.admin_kubeconfig, admin, authority)
        if self.spec.authentication and self._plan.webhook:
            webhook = self.spec.authentication
            self._plan.webhook.write_text(webhook_kubeconfig(webhook.url, webhook.ca_pem))
        self._authority = authority
        self._client = Client(self.endpoint, authority.pair.certificate, admin)

    def _write_kubeconfig(self, path: Path, pair: Pair, authority: Authority) -> None:
        text = client_kubeconfig(self.endpoint, authority.pair.certificate, pair, "admin")
        write_private(path, text)

    def _process(self, component: str) -> str:
        return f"{self.spec.cluster}-{component}"

    def _spawn(self, component: str) -> None:
        version = self.spec.version
        program = tools.binary(component) if component == "etcd" else tools.kubernetes(version, component)
        self._supervisor.spawn(self._process(component), [str(program), *FLAGS[component](self._plan)], netns=True)

    def _patiently(self, act: Callable[[Client], None], deadline: float) -> None:
        """Do something that may be done again, and do it again while the API server doesn't answer: an upgrade ends."""
        while True:
            try:
                return act(self.client)
            except ApiError as error:
                if error.status not in UNAVAILABLE or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_SECONDS)

    def _wait_until(self, path: str, deadline: float) -> None:
        """Poll a path of the API server until it answers with success."""
        while True:
            self._check_processes()
            try:
                self.client.text(path)
                return
            except ApiError as error:
                if time.monotonic() > deadline:
                    name = self._process("kube-apiserver")
                    last = self._supervisor.last_lines(name)
                    raise KubeError(f"{name} isn't ready in time ({error}); its last lines:\n{last}") from error
            time.sleep(POLL_SECONDS)

    def _check_processes(self) -> None:
        for component in FLAGS:
            name = self._process(component)
            if self._supervisor.find(name) and not self._supervisor.alive(name):
                raise KubeError(f"{name} died while starting; its last lines:\n{self._supervisor.last_lines(name)}")
