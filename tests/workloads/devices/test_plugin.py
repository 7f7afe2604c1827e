"""The device plug-in as EKS' AL2023 NVIDIA images need it, and only where workers have GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests import graph
from workloads.devices import plugin
from workloads.manifests import WORKER_NODES

IMAGE = "hub.example/k8s-device-plugin:v1"


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = plugin.plugin_manifest(IMAGE, {"nodeSelector": WORKER_NODES})["spec"]["template"]["spec"]
    return spec


def environment() -> dict[str, str]:
    (container,) = pod()["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_pods_get_gpus_through_cdi() -> None:
    # awslabs/amazon-eks-ami#2706: by NVIDIA_VISIBLE_DEVICES only privileged containers get any.
    assert environment()["DEVICE_LIST_STRATEGY"] == "cdi-cri"
    (container,) = pod()["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    paths = {each["name"]: each["hostPath"]["path"] for each in pod()["volumes"]}
    assert paths == {"plugins": "/var/lib/kubelet/device-plugins", "cdi": "/var/run/cdi", "driver-root": "/"}
    assert mounts == {**paths, "driver-root": "/driver-root"}


def test_the_plugin_itself_sees_the_gpus_and_ends_if_there_are_none() -> None:
    (container,) = pod()["containers"]
    assert container["securityContext"] == {"privileged": True}
    assert environment()["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment()["FAIL_ON_INIT_ERROR"] == "true"


def test_it_runs_on_worker_nodes_whatever_their_taints() -> None:
    assert pod()["nodeSelector"] == {"tidewater.dev/node-role": "worker"}
    assert pod()["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("gpus", [0, 1])
def test_it_exists_only_if_workers_have_gpus(gpus: int) -> None:
    made = graph.deploy({**graph.defaults(), "gpusPerWorker": gpus, "devicePluginImage": IMAGE})
    found = made.all("kubernetes:apps/v1:DaemonSet")
    images = [each.inputs["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]
    assert images == [IMAGE] * gpus
    assert bool([each for each in made.resources if "tidewater-devices" in each.name]) == bool(gpus)
