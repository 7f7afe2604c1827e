"""A real kubelet on a node with GPUs: the device plug-in advertises them, and pods get those that they ask for.

The tests run in their order.

The manifest is the one of NVIDIA's Helm chart for `deviceListStrategy: cdi-cri`, as the stack has it too.
https://github.com/NVIDIA/k8s-device-plugin (deployments/helm/nvidia-device-plugin)
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from localcloud import kube, tools
from localcloud.instance import Instance
from localcloud.supervise import Supervisor

from packages.localcloud.tests.kube.harness import DRIVER_KEY, READY_SECONDS, Cluster, node_spec, traces, wait_for

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
VCPUS = 48
TAINT = {"key": GPU, "value": "true", "effect": "NO_SCHEDULE"}
SHOW = ["sh", "-c", "ls /dev; sleep 600"]
ADDONS = ("vpc-cni",)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one node of a type with 4 GPUs, and more CPUs than this machine."""
    instance = Instance.create(tmp_path_factory.mktemp("cloud"))
    supervisor = Supervisor(instance)
    network = kube.Network(instance)
    plane = kube.ControlPlane(instance, supervisor, kube.ControlPlaneSpec("demo", tools.KUBERNETES, 0))
    made = Cluster(instance, supervisor, plane, kube.Addons(plane), [])
    network.create()
    try:
        plane.start(time.monotonic() + READY_SECONDS)
        for name in ADDONS:
            made.addons.install(name, made.addons.VERSIONS[name][0], {})
        spec = replace(node_spec(0), instance_type="g5.12xlarge", vcpus=VCPUS, gpus=4, taints=[TAINT])
        made.nodes.append(kube.Node(instance, supervisor, plane, spec, DRIVER_KEY))
        made.nodes[0].start()
        wait_for("a Ready node", made.nodes[0].ready)
        yield made
    finally:
        for node in made.nodes:
            node.stop()
        plane.stop()
        network.destroy()
        assert not traces(instance)


def plugin(strategy: str = "cdi-cri", *, privileged: bool = True) -> dict[str, Any]:
    """The device plug-in's DaemonSet."""
    paths = {"plugins": "/var/lib/kubelet/device-plugins", "cdi": "/var/run/cdi", "driver-root": "/"}
    mounts = {**paths, "driver-root": "/driver-root"}
    container = {
        "name": "device-plugin",
        "image": "localcloud/k8s-device-plugin:0.20.0",
        "command": ["nvidia-device-plugin"],
        "env": [
            {"name": "DEVICE_LIST_STRATEGY", "value": strategy},
            {"name": "FAIL_ON_INIT_ERROR", "value": "true"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "securityContext": {"privileged": privileged},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in paths.items()]
    pod = {"tolerations": [{"operator": "Exists"}], "containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "plugin"}},
            "template": {
                "metadata": {"labels": {"app": "plugin"}},
                "spec": {**pod, "terminationGracePeriodSeconds": 1},
            },
        },
    }


def worker(name: str, gpus: int, *, tolerates: bool = True, cpu: str = "100m") -> dict[str, Any]:
    """A pod without privileges that shows its devices, with a limit of GPUs."""
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "localcloud/debian:12",
        "command": SHOW,
        "resources": {"requests": {"cpu": cpu}, "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsUser": 1000},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "tolerations": [{"key": GPU, "operator": "Exists"}] if tolerates else [],
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def advertised(cluster: Cluster) -> str:
    node = json.loads(cluster.kubectl("get", "node", cluster.nodes[0].spec.name, "-ojson"))
    return str(node["status"]["allocatable"].get(GPU, "nothing"))


def devices(cluster: Cluster, pod: str) -> list[str]:
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={READY_SECONDS}s")
    return sorted(name for name in cluster.kubectl("logs", pod).split() if name.startswith("nvidia"))


def unschedulable(cluster: Cluster, pod: str) -> str:
    """The scheduler's reason, or nothing."""
    found = json.loads(cluster.kubectl("get", "pod", pod, "-ojson"))["status"].get("conditions", [])
    return next((each["message"] for each in found if each.get("reason") == "Unschedulable"), "")


def test_a_node_has_the_cpus_of_its_type_though_the_host_has_fewer(cluster: Cluster) -> None:
    node = json.loads(cluster.kubectl("get", "node", cluster.nodes[0].spec.name, "-ojson"))
    assert node["status"]["capacity"]["cpu"] == str(VCPUS)


def test_without_privileges_the_plugin_finds_no_gpu_and_ends(cluster: Cluster) -> None:
    wait_for("a service account", lambda: "default" in cluster.kubectl("get", "serviceaccounts", "-oname"))
    cluster.apply(plugin(privileged=False))

    def says() -> bool:
        logs = cluster.kubectl("logs", "-l", "app=plugin", "--ignore-errors", "--tail=5")
        return "no NVIDIA device found: the node has no GPU, or this container lacks privileges" in logs

    wait_for("a plug-in that has ended", says)
    assert advertised(cluster) == "nothing"


def test_with_privileges_the_node_shows_its_gpus(cluster: Cluster) -> None:
    cluster.apply(plugin())
    wait_for("4 GPUs", lambda: advertised(cluster) == "4")


def test_pods_without_privileges_get_the_gpus_of_their_limit_and_no_others(cluster: Cluster) -> None:
    cluster.apply(worker("three", 3, cpu="40"), worker("one", 1), worker("none", 0))
    three, one = devices(cluster, "three"), devices(cluster, "one")
    assert sorted([*three, *one]) == ["nvidia0", "nvidia1", "nvidia2", "nvidia3"]
    assert len(three) == 3
    assert devices(cluster, "none") == []


def test_a_pod_that_does_not_tolerate_the_taint_or_finds_no_free_gpu_waits(cluster: Cluster) -> None:
    cluster.apply(worker("stranger", 0, tolerates=False), worker("late", 1))
    wait_for("a reason", lambda: "untolerated taint" in unschedulable(cluster, "stranger"))
    wait_for("a reason", lambda: f"Insufficient {GPU}" in unschedulable(cluster, "late"))
    cluster.kubectl("delete", "pod", "one", "--wait")
    assert len(devices(cluster, "late")) == 1


def test_with_the_strategy_envvar_a_pod_gets_no_device(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", "three", "late", "none", "stranger", "--wait")
    lax = copy.deepcopy(plugin("envvar"))
    cluster.apply(lax)
    cluster.kubectl("rollout", "status", "daemonset/plugin", f"--timeout={READY_SECONDS}s")
    wait_for("4 GPUs", lambda: advertised(cluster) == "4")
    cluster.apply(worker("blind", 1))
    assert devices(cluster, "blind") == []
