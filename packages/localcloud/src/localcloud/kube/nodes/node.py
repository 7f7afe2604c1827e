"""A node: a simulated host with its own network, file system and processes, that joins a cluster as a worker.

    node = Node(instance, supervisor, control_plane, spec, driver_key)
    node.start()            # returns at once; ready() says when Kubernetes may use it
    node.power_off()        # kills everything on it at once

See init.py for what runs inside, config.py for its configuration.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from localcloud import tools
from localcloud.host import cgroups, devices, environment
from localcloud.instance import Instance
from localcloud.kube.addon_manifests import CSI_DRIVERS
from localcloud.kube.commands import run
from localcloud.kube.control_plane import ControlPlane
from localcloud.kube.errors import ApiError, KubeError
from localcloud.kube.kubeconfig import client_kubeconfig
from localcloud.kube.network import POD_IDENTITY_ADDRESS, Network, NodeLink
from localcloud.kube.nodes import config, rootfs
from localcloud.kube.nodes.config import DriverKey, Machine, NodeSpec
from localcloud.kube.pki import write_private
from localcloud.namespace import NETNS_DIR
from localcloud.supervise import Supervisor

HERE = Path(__file__).resolve().parent
FAILURE_LINES = 5
ENDINGS = 3  # a service may end before what it needs is there
ENDED = re.compile(r"(?P<name>[\w-]+) has ended (?P<times>\d+) times, .*")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CNI_FILE = "10-aws.conflist"


class Node:
    """One node; `start` makes everything, `stop` and `power_off` leave nothing.

    Args:
        driver_key: What the EFS driver signs its calls with.
    """

    def __init__(
        self,
        instance: Instance,
        supervisor: Supervisor,
        control_plane: ControlPlane,
        spec: NodeSpec,
        driver_key: DriverKey,
    ) -> None:
        self.spec = spec
        self._driver_key = driver_key
        self.pod_cidr = ""
        self._instance = instance
        self._supervisor = supervisor
        self._plane = control_plane
        self._process = f"node-{spec.instance_id}"
        self._directory = instance.state / "nodes" / spec.instance_id
        self._root = self._directory / "root"
        self._cgroup = f"{instance.cgroup}/{spec.instance_id}"

    def start(self) -> None:
        """Boot the node; return when its init runs, some seconds before it is ready.

        Raises:
            KubeError: The host or the API server refused a request; what was made so far is removed.
        """
        plane = self._plane
        with plane.lock:
            known = self._registered()
            self.pod_cidr = known or plane.allocate_pod_cidr()
            plane.nodes[self.spec.name] = self
        try:
            if not known:
                self._register()
            Network(self._instance).attach_node(self._link())
            self._write_files()
            with plane.lock:  # an addon that is installed meanwhile is started by one of the two threads
                for addon in plane.node_addons:
                    self._write_addon(addon)
            self._spawn()
        except BaseException:
            self._clean_up()
            raise

    def stop(self) -> None:
        """Shut down; drain the node first if its pods matter."""
        self._supervisor.stop(self._process, grace_seconds=1)
        self._clean_up()

    def power_off(self) -> None:
        """Kill everything on the node at once, like a power cut. The Node object stays."""
        self._supervisor.kill(self._process)
        self._clean_up()

    def alive(self) -> bool:
        """Whether the node's init runs."""
        return self._supervisor.alive(self._process)

    def failure(self) -> str:
        """Return why the node doesn't get Ready: the end of its log, if it or a service of it ends again and again."""
        lines = self._supervisor.last_lines(self._process, FAILURE_LINES)
        if not self.alive():
            return lines or "its log is empty"
        ended = ENDED.match(lines.rpartition("\n")[2])
        return ended[0] if ended and int(ended["times"]) >= ENDINGS else ""

    def ready(self) -> bool:
        """Whether Kubernetes calls the node Ready."""
        try:
            node = self._plane.client.find(f"/api/v1/nodes/{self.spec.name}")
        except ApiError:
            return False
        conditions = (node or {}).get("status", {}).get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def enable(self, addon: str) -> None:
        """Start what an addon runs on nodes."""
        self._write_addon(addon)
        self._poke()

    def disable(self, addon: str) -> None:
        """Stop what an addon runs on nodes; its mounts and rules stay until the node is deleted, as on EKS."""
        (self._directory / "services" / f"{addon}.json").unlink(missing_ok=True)
        if addon == "vpc-cni":
            (self._directory / "cni" / CNI_FILE).unlink(missing_ok=True)
        self._poke()

    def _link(self) -> NodeLink:
        return NodeLink.of(self._instance, self.spec.instance_id, self.spec.private_ip, self.pod_cidr)

    def _registered(self) -> str | None:
        """Return the pods' range in the Node object that an earlier boot of this instance has left, or None."""
        found = self._plane.client.find(f"/api/v1/nodes/{self.spec.name}") or {}
        spec: dict[str, str] = found.get("spec", {})
        return spec.get("podCIDR") if spec.get("providerID") == config.provider_id(self.spec) else None

    def _register(self) -> None:
        """Create the Node object ahead of kubelet, so that labels, taints and pod range are there from the start."""
        architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        body = config.node_object(self.spec, self.pod_cidr, architecture, _machine())
        client = self._plane.client
        try:
            client.create("/api/v1/nodes", body)
        except ApiError as error:
            if error.status != 409:
                raise
            self._plane.delete_node(self.spec.name)  # of an earlier instance with the same address
            client.create("/api/v1/nodes", body)

    def _write_files(self) -> None:
        _remove(self._directory)
        for name in ("cni", "services", "content/upper", "content/work", "root"):
            (self._directory / name).mkdir(parents=True)
        self._directory.chmod(0o700)
        machine_id = hashlib.sha256(self.spec.instance_id.encode()).hexdigest()[:32]
        rootfs.prepare(self._root, self.spec.name, self.spec.private_ip, machine_id)
        rootfs.copy_image_databases(tools.node_image(), self._root / config.CONTAINERD_ROOT.lstrip("/"))
        self._write_credentials()
        folder = self._root / config.KUBERNETES_DIR.lstrip("/")
        (folder / "kubelet.json").write_text(config.document(config.kubelet_config(self.spec, _machine())))
        proxy = config.kube_proxy_config(self.spec, self._plane.pod_cidr)
        (folder / "kube-proxy.json").write_text(config.document(proxy))
        (folder / "resolv.conf").write_text("")
        containerd = self._root / "etc" / "containerd"
        (containerd / "config.toml").write_text(config.containerd_config())
        spec = config.base_runtime_spec(_default_runtime_spec(), config.TRAINER_DIR)
        (containerd / "base.json").write_text(config.document(spec))
        self._write_service("containerd", [_host_binary("containerd"), "--config=/etc/containerd/config.toml"])
        kubelet_argv = [rootfs.program("kubelet"), *config.kubelet_flags(self.spec)]
        self._write_service("kubelet", kubelet_argv, after=config.CONTAINERD_SOCKET)
        os.mkfifo(self._directory / "control")

    def _write_credentials(self) -> None:
        folder, authority = self._root / config.KUBERNETES_DIR.lstrip("/"), self._plane.authority
        ca_pem = authority.pair.certificate
        (folder / "ca.crt").write_text(ca_pem)
        authority.issue(self.spec.name, hosts=[self.spec.name, self.spec.private_ip]).write(folder, "kubelet")
        users = {
            "kubelet": authority.issue(f"system:node:{self.spec.name}", organization="system:nodes"),
            "kube-proxy": authority.issue("system:kube-proxy"),
        }
        for name, pair in users.items():
            write_private(folder / f"{name}.kubeconfig", client_kubeconfig(self._plane.endpoint, ca_pem, pair, name))

    def _write_addon(self, addon: str) -> None:
        python = rootfs.Python.current()
        if addon == "vpc-cni":
            self._publish(config.document(config.cni_config(self.pod_cidr)), f"cni/{CNI_FILE}")
        elif addon == "kube-proxy":
            argv = [rootfs.program("kube-proxy"), f"--config={config.KUBERNETES_DIR}/kube-proxy.json"]
            self._write_service(addon, argv)
        elif driver := CSI_DRIVERS.get(addon):
            argv = [python.executable, "-m", "localcloud.kube.csi", driver, self.spec.name, self.spec.zone]
            env = {**python.environment, **self._driver_key.environment}
            env |= {"AWS_ENDPOINT_URL": self._instance.cloud_endpoint, "AWS_REGION": self.spec.region}
            self._write_service(addon, argv, env=env)
        elif addon == "eks-pod-identity-agent":
            script = f"{config.TOOLS}/checkout/localcloud/kube/nodes/pod_identity_agent.py"
            argv = [python.executable, "-I", script]
            argv += [POD_IDENTITY_ADDRESS, self._instance.cloud_endpoint, self.spec.cluster]
            self._write_service(addon, argv, env=python.environment)

    def _write_service(
        self, name: str, argv: list[str], *, after: str | None = None, env: dict[str, str] | None = None
    ) -> None:
        description = config.service(name, argv, log_prefix=self._process, after=after, env=env)
        self._publish(config.document(description), f"services/{name}.json")

    def _publish(self, text: str, path: str) -> None:
        """Put a whole file into a folder that the node sees.

        Nothing is opened there: a pod that can write to the folder could have left a link to a file of the host.
        """
        draft = self._directory / f"draft-{threading.get_ident()}"
        write_private(draft, text)
        draft.rename(self._directory / path)

    def _spawn(self) -> None:
        instance = self._instance
        sources = rootfs.Sources(
            image=tools.node_image(),
            trainer=tools.site_packages(),
            programs={name: tools.kubernetes(self.spec.version, name) for name in ("kubelet", "kube-proxy")},
            efs=instance.state / "efs",
            lustre=instance.state / "lustre",
            logs=instance.state / "logs",
        )
        for folder in (sources.efs, sources.lustre, sources.logs):
            folder.mkdir(exist_ok=True)
        for name in config.SERVICES:
            (sources.logs / f"{self._process}-{name}.log").touch()
        cgroups.create(self._cgroup)
        if (v2 := cgroups.create_v2(self._cgroup)) is not None:
            devices.restrict(v2)
        machine = _machine()
        memory = config.meminfo(Path(config.MEMINFO).read_text(), config.shown_memory_kib(self.spec, machine))
        plan = {
            "hostname": self.spec.name,
            "root": str(self._root),
            "gpus": self.spec.gpus,
            "cpus": config.shown_cpus(self.spec, machine.cpus),
            "overrides": {**config.KERNEL_OVERRIDES, config.MEMINFO: memory},
            **cgroups.for_init(self._cgroup),
            **rootfs.mounts(self._directory, sources, rootfs.Python.current()),
        }
        path = self._directory / "plan.json"
        path.write_text(config.document(plan))
        namespaces = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        init = [sys.executable, "-I", str(HERE / "init.py"), str(path)]
        netns = NETNS_DIR / self._link().netns
        command = ["nsenter", f"--net={netns}", "--", *namespaces, "--", *init]
        self._supervisor.spawn(self._process, command, env=environment.BARE)

    def _poke(self) -> None:
        """Tell init to look at its services again, if it runs."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._directory / "control", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(descriptor, b"\n")
            finally:
                os.close(descriptor)

    def _clean_up(self) -> None:
        """Remove what a dead node leaves; its mounts ended with its mount namespace."""
        self._supervisor.kill(self._process)
        cgroups.destroy(self._cgroup)
        Network(self._instance).detach_node(self._link())
        _remove(self._directory)
        with self._plane.lock:
            if self._plane.nodes.get(self.spec.name) is self:
                del self._plane.nodes[self.spec.name]


def _remove(directory: Path) -> None:
    """Unmount what is mounted below a node's directory, then delete the directory."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        point = line.split()[1]
        if point.startswith(f"{directory}/"):
            run(["umount", "--lazy", point])
    shutil.rmtree(directory, ignore_errors=True)


def _host_binary(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KubeError(f"{name} is not installed: run `make up`, which installs it")
    return path


def _machine() -> Machine:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(os.cpu_count() or 1, memory // config.MIB)


@functools.cache
def _default_runtime_spec() -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(run([_host_binary("ctr"), "oci", "spec"]))
    return spec
