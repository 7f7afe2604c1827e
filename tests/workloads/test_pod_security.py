"""Every pod of the stack passes Kubernetes' restricted standard, which the namespace enforces.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import graph

RESTRICTED = {"training", "tidewater-system", "tidewater-monitoring"}
NAMESPACES = {*RESTRICTED, "tidewater-devices"}
PRIVILEGED = {"daemonset-nvidia-device-plugin", "daemonset-dcgm-exporter"}
"""What can't be confined. It has a namespace of its own."""

ALLOWED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


@pytest.fixture(scope="module", params=["Pulumi.local.yaml", "Pulumi.aws.yaml.example"])
def deployed(request: pytest.FixtureRequest) -> graph.Graph:
    return graph.deploy({**graph.stack_config(request.param), "monitoring": "prometheus", "jobLogDays": 14})


def pods(deployed: graph.Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods in the stack's namespaces, with the name of the object that makes them."""
    for each in deployed.resources:
        spec = each.inputs.get("spec", {}) if each.type.startswith("kubernetes:") else {}
        replicas = spec.get("replicaSpecs", {}).get("Worker", {})
        template = spec.get("template") or replicas.get("template")
        if template and each.inputs["metadata"].get("namespace") in NAMESPACES and each.name not in PRIVILEGED:
            yield each.name, template["spec"]


def test_the_checks_see_all_kinds_of_pods(deployed: graph.Graph) -> None:
    assert {name for name, _ in pods(deployed)} - {"job-gpu-check"} == {
        "statefulset-etcd",
        "job-dataset-digits",
        "elasticjob",
        "deployment-tidewater-controller",
        "deployment-prometheus",
        "deployment-logs",
    }


def test_the_namespaces_enforce_the_restricted_standard(deployed: graph.Graph) -> None:
    namespaces = {each.inputs["metadata"]["name"]: each for each in deployed.all("kubernetes:core/v1:Namespace")}
    assert namespaces.keys() - {"tidewater-devices"} == RESTRICTED
    for name in RESTRICTED:
        each = namespaces[name]
        assert each.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_are_confined(deployed: graph.Graph) -> None:
    for name, spec in pods(deployed):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name
        for volume in spec["volumes"]:
            assert len(volume.keys() & ALLOWED_VOLUMES) == 1, name


def test_containers_mount_only_volumes_that_the_pod_has(deployed: graph.Graph) -> None:
    for name, spec in pods(deployed):
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, name


def test_only_who_asks_the_api_server_gets_a_token(deployed: graph.Graph) -> None:
    with_token = {name for name, spec in pods(deployed) if spec.get("automountServiceAccountToken", True)}
    asking = {"deployment-tidewater-controller", "deployment-prometheus", "deployment-logs"}
    assert with_token - {"job-gpu-check"} == asking


def test_only_one_namespace_allows_privileges_and_only_what_sees_all_gpus_has_some() -> None:
    aws = graph.deploy({**graph.stack_config("Pulumi.aws.yaml.example"), "monitoring": "prometheus"})
    lax = [
        each.inputs["metadata"]["name"]
        for each in aws.all("kubernetes:core/v1:Namespace")
        if each.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] != "restricted"
    ]
    assert lax == ["tidewater-devices"]
    privileges = {}
    for each in aws.all("kubernetes:apps/v1:DaemonSet"):
        assert each.inputs["metadata"]["namespace"] == lax[0]
        (container,) = each.inputs["spec"]["template"]["spec"]["containers"]
        privileges[each.name] = container["securityContext"]
    assert privileges.keys() == PRIVILEGED
    assert privileges["daemonset-nvidia-device-plugin"] == {"privileged": True}
    assert privileges["daemonset-dcgm-exporter"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
