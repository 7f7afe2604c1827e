"""The configuration of a node's programs."""

from __future__ import annotations

import dataclasses

import pytest
from localcloud.kube.nodes import config
from localcloud.kube.nodes.config import Machine, NodeSpec


def test_labels_of_the_kubernetes_namespace_are_on_the_node_before_kubelet_registers(spec: NodeSpec) -> None:
    node = config.node_object(spec, "100.64.3.0/24", "amd64", Machine(2, 8192))
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-west-2a"
    assert node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "workers"
    assert node["spec"]["podCIDR"] == "100.64.3.0/24"


def test_a_node_has_its_capacity_before_kubelet_registers(spec: NodeSpec) -> None:
    """Karpenter takes the memory of the first Node of a type that it sees for that of the type, also if it is 0."""
    node = config.node_object(spec, "100.64.3.0/24", "amd64", Machine(16, 65536))
    assert node["status"]["capacity"] == {"cpu": "2", "memory": f"{8192 * 1024}Ki"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        pytest.param({"key": "k", "effect": "NO_SCHEDULE"}, {"key": "k", "effect": "NoSchedule"}, id="of EKS"),
        pytest.param(
            {"key": "k", "value": "v", "effect": "NoExecute"},
            {"key": "k", "value": "v", "effect": "NoExecute"},
            id="of Kubernetes",
        ),
    ],
)
def test_taints_of_eks_and_of_kubernetes_are_accepted(given: dict[str, str], made: dict[str, str]) -> None:
    assert config.taint(given) == made


@pytest.mark.parametrize(("host", "shown"), [(1, 2), (2, 0), (16, 0)])
def test_a_smaller_host_shows_the_cpus_of_the_instance_type(spec: NodeSpec, host: int, shown: int) -> None:
    assert config.shown_cpus(spec, host) == shown


@pytest.mark.parametrize(
    ("machine", "cpu", "memory_mib"),
    [
        pytest.param(Machine(16, 65536), "14000m", 8192, id="a bigger host holds back the rest"),
        pytest.param(Machine(1, 4096), "0m", 4096, id="a smaller host holds nothing back"),
    ],
)
def test_pods_may_request_what_the_instance_type_has(
    spec: NodeSpec, machine: Machine, cpu: str, memory_mib: int
) -> None:
    kubelet = config.kubelet_config(spec, machine)
    assert kubelet["systemReserved"] == {"cpu": cpu}
    assert kubelet["kubeReserved"] == {"cpu": "70m", "memory": "255Mi"}
    assert config.shown_memory_kib(spec, machine) == memory_mib * 1024


def test_a_node_shows_its_memory_in_the_kernels_format() -> None:
    host = "MemTotal:       24684096 kB\nMemFree:         5903776 kB\nBuffers:          231164 kB\n"
    total, free, *rest = config.meminfo(host, 8388608).splitlines()
    assert (total, free, rest[-1]) == (
        "MemTotal:        8388608 kB",
        "MemFree:         8388608 kB",
        "Buffers:          231164 kB",
    )


def test_the_owner_of_an_instance_sets_kubelets_options_but_not_the_simulated_host(spec: NodeSpec) -> None:
    options = {
        "maxPods": 29,
        "clusterDNS": ["172.20.0.11"],
        "kubeReserved": {"cpu": "100m", "ephemeral-storage": "1Gi"},
        "cgroupRoot": "/elsewhere",
        "evictionHard": {"nodefs.available": "10%"},
    }
    plain = config.kubelet_config(spec, Machine(2, 8192))
    kubelet = config.kubelet_config(dataclasses.replace(spec, kubelet=options), Machine(2, 8192))
    assert kubelet == {
        **plain,
        "maxPods": 29,
        "clusterDNS": ["172.20.0.11"],
        "kubeReserved": {"cpu": "100m", "memory": "255Mi", "ephemeral-storage": "1Gi"},
    }


def test_a_node_has_no_more_pods_than_addresses(spec: NodeSpec) -> None:
    kubelet = config.kubelet_config(dataclasses.replace(spec, kubelet={"maxPods": 737}), Machine(2, 8192))
    assert kubelet["maxPods"] == 250


def test_kubelet_runs_on_cgroup_v1_in_the_nodes_cgroup_namespace(spec: NodeSpec) -> None:
    kubelet = config.kubelet_config(spec, Machine(2, 8192))
    assert kubelet["failCgroupV1"] is False
    assert kubelet["cgroupRoot"] == "/"
    assert kubelet["providerID"] == "aws:///us-west-2a/i-0123456789abcdef0"


def test_kube_proxy_does_not_change_the_kernels_conntrack_limits(spec: NodeSpec) -> None:
    proxy = config.kube_proxy_config(spec, "100.64.0.0/16")
    assert proxy["mode"] == "nftables"
    assert proxy["conntrack"]["maxPerCore"] == 0


def test_site_packages_are_mounted_read_only_and_the_given_default_is_not_changed() -> None:
    default = {"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}]}, "mounts": []}
    spec = config.base_runtime_spec(default, "/cache/trainer")
    assert spec["mounts"][0]["source"] == "/cache/trainer"
    assert "ro" in spec["mounts"][0]["options"]
    assert "rlimits" not in spec["process"]
    assert default["mounts"] == []


def test_unix_socket_paths_are_short_for_any_state_directory(spec: NodeSpec) -> None:
    assert len(config.CONTAINERD_SOCKET) < 108
    assert "--root-dir=/var/lib/kubelet" in config.kubelet_flags(spec)


def test_a_specification_is_immutable(spec: NodeSpec) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]
