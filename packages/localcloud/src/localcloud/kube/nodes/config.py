"""The configuration of a node's programs, as pure functions: kubelet, containerd, CNI, kube-proxy and init's plan.

A node has a root file system of its own (see rootfs.py) with the usual paths (/var/lib/kubelet, /etc/cni/net.d,
/run/containerd …).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localcloud import tools
from localcloud.kube.control_plane_config import CLUSTER_DOMAIN, DNS_ADDRESS

MIB = 1 << 20
KIB_PER_MIB = 1 << 10
BROUGHT = "/run/localcloud"
EFS_DIR = f"{BROUGHT}/efs"
LUSTRE_DIR = f"{BROUGHT}/lustre"
TOOLS = "/opt/localcloud"
TRAINER_DIR = f"{TOOLS}/trainer"
CONTAINERD_ROOT = "/var/lib/containerd"
SERVICES = ("containerd", "kubelet", "kube-proxy", "aws-efs-csi-driver", "aws-fsx-csi-driver", "eks-pod-identity-agent")
KUBERNETES_DIR = "/etc/kubernetes"
CNI_CONFIG_DIR = "/etc/cni/net.d"
CNI_PLUGIN_DIR = "/usr/lib/cni"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "docker.io/localcloud/pause:1"
SITE_PACKAGES = "/opt/site-packages"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
MAX_PODS = 110
MOST_PODS = 250  # a node's range has 254 addresses
KUBE_RESERVED = {"cpu": "70m", "memory": "255Mi"}

# The fields of KubeletConfiguration that an instance's owner can set. The others describe the simulated host.
KUBELET_OPTIONS = frozenset(
    """
    allowedUnsafeSysctls clusterDNS clusterDomain containerLogMaxFiles containerLogMaxSize cpuCFSQuota
    cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions eventBurst eventRecordQPS evictionMaxPodGracePeriod
    featureGates kubeAPIBurst kubeAPIQPS kubeReserved logging maxParallelImagePulls maxPods memoryManagerPolicy
    podPidsLimit podsPerCore registryBurst registryPullQPS seccompDefault serializeImagePulls
    topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope
    """.split()
)

MEMINFO = "/proc/meminfo"

# kubelet sets these for the whole kernel. In a node, files with the wanted values are mounted over them.
KERNEL_OVERRIDES = {
    "/proc/sys/vm/overcommit_memory": "1",
    "/proc/sys/vm/panic_on_oom": "0",
    "/proc/sys/kernel/panic": "10",
    "/proc/sys/kernel/panic_on_oops": "1",
    "/proc/sys/kernel/keys/root_maxkeys": "1000000",
    "/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}


@dataclass(frozen=True)
class NodeSpec:
    """The specification of a node.

    Args:
        name: `ip-10-0-1-23.us-west-2.compute.internal`.
        private_ip: The address of its EC2 instance.
        vcpus: Of the instance type; what pods may request.
        memory_mib: Of the instance type, in MiB; what pods may request, if the host has that much.
        gpus: That the node shows to privileged containers; there is no hardware behind them.
        zone: Availability zone.
        labels: In addition to those that every node has.
        taints: Of Kubernetes or of the EKS API (`NO_SCHEDULE`).
        version: Kubernetes' minor version, of kubelet and kube-proxy.
        kubelet: Fields of KubeletConfiguration; only those of `KUBELET_OPTIONS` have an effect.
    """

    name: str
    private_ip: str
    instance_id: str
    instance_type: str
    vcpus: int
    memory_mib: int
    zone: str
    region: str
    cluster: str
    version: str = tools.KUBERNETES
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, Any]] = ()
    gpus: int = 0
    kubelet: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DriverKey:
    """The AWS access key of the EFS driver, which may describe what it mounts and nothing else."""

    access_key: str
    secret: str

    @property
    def environment(self) -> dict[str, str]:
        """The key as the environment variables of AWS SDKs."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret}


@dataclass(frozen=True)
class Machine:
    """CPUs and memory of the host."""

    cpus: int
    memory_mib: int


def provider_id(spec: NodeSpec) -> str:
    """Return the cloud's name of the node."""
    return f"aws:///{spec.zone}/{spec.instance_id}"


def node_object(spec: NodeSpec, pod_cidr: str, architecture: str, machine: Machine) -> dict[str, Any]:
    """The Node that kubelet will find when it registers: labels that it may not set itself are there already.

    So is the capacity, as in a Node that kubelet has created. Karpenter reads a type's memory from the first Node of
    that type that it sees, and starts no other one if that has none (UpdateInstanceTypeCapacityFromNode in
    https://github.com/aws/karpenter-provider-aws, pkg/providers/instancetype/instancetype.go).
    """
    labels = {
        "kubernetes.io/hostname": spec.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        "node.kubernetes.io/instance-type": spec.instance_type,
        "beta.kubernetes.io/instance-type": spec.instance_type,
        "topology.kubernetes.io/region": spec.region,
        "topology.kubernetes.io/zone": spec.zone,
        "failure-domain.beta.kubernetes.io/region": spec.region,
        "failure-domain.beta.kubernetes.io/zone": spec.zone,
        **spec.labels,
    }
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {"providerID": provider_id(spec), "podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {"capacity": {"cpu": str(spec.vcpus), "memory": f"{shown_memory_kib(spec, machine)}Ki"}},
    }
    if spec.taints:
        node["spec"]["taints"] = [taint(each) for each in spec.taints]
    return node


def taint(given: Mapping[str, Any]) -> dict[str, Any]:
    """A taint as Kubernetes has it, also from the EKS API's form."""
    effect = str(given["effect"])
    made = {"key": given["key"], "effect": EFFECTS.get(effect, effect)}
    if given.get("value"):
        made["value"] = given["value"]
    return made


def shown_cpus(spec: NodeSpec, host: int) -> int:
    """Return the number of CPUs to show to the kubelet if the host has too few; else 0, and a part is held back.

    CPUs can be shared by more pods than there are; memory can't.
    """
    return spec.vcpus if spec.vcpus > host else 0


def shown_memory_kib(spec: NodeSpec, machine: Machine) -> int:
    """Return the memory to show to the kubelet, in KiB: the instance type's, if the host has that much."""
    return min(spec.memory_mib, machine.memory_mib) * KIB_PER_MIB


def meminfo(host: str, total_kib: int) -> str:
    """Return /proc/meminfo of a host without swap that has so much memory, from that of this machine."""
    shown = {"MemTotal": total_kib, "MemFree": total_kib, "MemAvailable": total_kib, "SwapTotal": 0, "SwapFree": 0}
    rest = [line for line in host.splitlines() if line.partition(":")[0] not in shown]
    return "".join(f"{line}\n" for line in [*(f"{name + ':':16}{kib:8} kB" for name, kib in shown.items()), *rest])


def held_back(spec: NodeSpec, machine: Machine) -> dict[str, str]:
    """Return by how many CPUs the host is larger than the instance type; pods can't request these."""
    return {"cpu": f"{max(0, machine.cpus - spec.vcpus) * 1000}m"}


def kubelet_config(spec: NodeSpec, machine: Machine) -> dict[str, Any]:
    """KubeletConfiguration; the node's cgroup namespace makes its own cgroup the root."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": spec.private_ip,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{KUBERNETES_DIR}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{KUBERNETES_DIR}/kubelet.crt",
        "tlsPrivateKeyFile": f"{KUBERNETES_DIR}/kubelet.key",
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "providerID": provider_id(spec),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": f"{KUBERNETES_DIR}/resolv.conf",
        "systemReserved": held_back(spec, machine),
        "kubeReserved": KUBE_RESERVED,
        "enforceNodeAllocatable": ["pods"],
        "maxPods": MAX_PODS,
        "nodeStatusUpdateFrequency": "4s",
        "nodeStatusReportFrequency": "1m",
        "nodeLeaseDurationSeconds": 20,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "serializeImagePulls": False,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/run/kubelet-plugins",
        "registerNode": True,
        "logging": {"verbosity": 1},
    }
    return _with_options(config, spec.kubelet)


def _with_options(config: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the owner's fields as kubelet merges a drop-in file: mappings are merged, lists are replaced.

    https://kubernetes.io/docs/reference/node/kubelet-config-directory-merging/
    """
    made = dict(config)
    for key in KUBELET_OPTIONS & options.keys():
        value = options[key]
        made[key] = {**made[key], **value} if isinstance(value, dict) and isinstance(made.get(key), dict) else value
    if isinstance(made["maxPods"], int):
        made["maxPods"] = min(made["maxPods"], MOST_PODS)
    return made


def kubelet_flags(spec: NodeSpec) -> list[str]:
    """Arguments of kubelet."""
    return [
        f"--config={KUBERNETES_DIR}/kubelet.json",
        f"--kubeconfig={KUBERNETES_DIR}/kubelet.kubeconfig",
        f"--hostname-override={spec.name}",
        f"--node-ip={spec.private_ip}",
        "--root-dir=/var/lib/kubelet",
    ]


def kube_proxy_config(spec: NodeSpec, cluster_pod_cidr: str) -> dict[str, Any]:
    """KubeProxyConfiguration. Conntrack's limits belong to the whole kernel, so they are left as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{KUBERNETES_DIR}/kube-proxy.kubeconfig"},
        "hostnameOverride": spec.name,
        "clusterCIDR": cluster_pod_cidr,
        "nftables": {"minSyncPeriod": "200ms"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def cni_config(pod_cidr: str) -> dict[str, Any]:
    """How pods get their addresses: a point-to-point link each, as Amazon's plug-in makes them too."""
    network = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": pod_cidr}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "aws-cni", "plugins": [network]}


def containerd_config() -> str:
    """containerd's configuration."""
    return f"""version = 2
root = "{CONTAINERD_ROOT}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "/run/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
enable_unprivileged_ports = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGIN_DIR}"
conf_dir = "{CNI_CONFIG_DIR}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "/etc/containerd/base.json"
"""


def base_runtime_spec(default: Mapping[str, Any], site_packages: str | None) -> dict[str, Any]:
    """The OCI spec that every container starts from.

    Args:
        default: What `ctr oci spec` prints.
        site_packages: A folder in the node mounted read-only at /opt/site-packages, so that gigabytes of Python
            packages are in no image.
    """
    spec = copy.deepcopy(dict(default))
    spec["process"].pop("rlimits", None)  # its 1024 open files would be less than what containers have on EKS
    if site_packages is not None:
        options = ["rbind", "ro", "nosuid", "nodev"]
        spec["mounts"].append(
            {"destination": SITE_PACKAGES, "type": "bind", "source": site_packages, "options": options}
        )
    return spec


def service(
    name: str,
    argv: Sequence[str],
    *,
    log_prefix: str,
    after: str | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A service for init.

    Args:
        log_prefix: Its log is `<prefix>-<name>.log` among the instance's.
        after: A path that has to exist first.
    """
    log = f"{BROUGHT}/logs/{log_prefix}-{name}.log"
    return {"argv": list(argv), "env": dict(env or {}), "log": log, "after": after}


def document(value: Mapping[str, Any]) -> str:
    """A configuration file's text; JSON is YAML."""
    return json.dumps(value, indent=1) + "\n"
