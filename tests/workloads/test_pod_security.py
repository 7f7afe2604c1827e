"""Every pod of the stack passes Kubernetes' restricted standard, which the namespace enforces.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import graph

ALLOWED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


@pytest.fixture(scope="module", params=["Pulumi.local.yaml", "Pulumi.aws.yaml.example"])
def deployed(request: pytest.FixtureRequest) -> graph.Graph:
    return graph.deploy(graph.stack_config(request.param))


def pods(deployed: graph.Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods in the stack's namespace, with the name of the object that makes them."""
    for each in deployed.resources:
        template = each.inputs.get("spec", {}).get("template") if each.type.startswith("kubernetes:") else None
        if template and each.inputs["metadata"]["namespace"] == "training":
            yield each.name, template["spec"]


def test_the_checks_see_all_kinds_of_pods(deployed: graph.Graph) -> None:
    assert {name for name, _ in pods(deployed)} == {
        "statefulset-etcd",
        "job-dataset-digits",
        "job-digits",
        "deployment-digits-scaler",
    }


def test_the_namespace_enforces_the_restricted_standard(deployed: graph.Graph) -> None:
    namespace = deployed.one("kubernetes:core/v1:Namespace").inputs
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


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


def test_only_the_scaler_gets_a_token_and_it_may_change_one_job(deployed: graph.Graph) -> None:
    with_token = [name for name, spec in pods(deployed) if spec["automountServiceAccountToken"]]
    assert with_token == ["deployment-digits-scaler"]
    (rule,) = deployed.one("kubernetes:rbac.authorization.k8s.io/v1:Role").inputs["rules"]
    assert rule == {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "resourceNames": ["digits"],
        "verbs": ["get", "patch"],
    }


def test_the_device_plugin_runs_if_workers_have_gpus() -> None:
    local = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    aws = graph.deploy(graph.stack_config("Pulumi.aws.yaml.example"))
    assert not local.all("kubernetes:apps/v1:DaemonSet")
    assert aws.one("kubernetes:apps/v1:DaemonSet", "nvidia-device-plugin")
