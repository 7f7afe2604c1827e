"""The objects that addons create in a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.kube.addons import Addons, deployment_status, objects_of
from localcloud.kube.client import object_path


def test_coredns_has_the_address_that_kubelet_gives_to_pods() -> None:
    service = next(each for each in objects_of("coredns", {}) if each["kind"] == "Service")
    assert service["spec"]["clusterIP"] == "172.20.0.10"
    assert service["metadata"]["name"] == "kube-dns"


def test_coredns_takes_its_replica_count_from_the_addons_configuration() -> None:
    deployment = objects_of("coredns", {"replicaCount": 1})[-1]
    assert deployment["spec"]["replicas"] == 1


@pytest.mark.parametrize("service", ["efs", "fsx"])
def test_the_addon_of_a_csi_driver_registers_it_and_has_its_service_accounts(service: str) -> None:
    made = objects_of(f"aws-{service}-csi-driver", {})
    assert f"/apis/storage.k8s.io/v1/csidrivers/{service}.csi.aws.com" in [object_path(each) for each in made]
    assert f"{service}-csi-controller-sa" in [each["metadata"]["name"] for each in made]


def test_every_addon_has_versions_in_eks_form() -> None:
    for versions in Addons.VERSIONS.values():
        assert all(version.startswith("v") and "-eksbuild." in version for version in versions)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, "CREATING", id="not seen by the controller"),
        pytest.param(
            {"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]},
            "CREATING",
            id="available as it was before",
        ),
        pytest.param(
            {"observedGeneration": 2, "conditions": [{"type": "Available", "status": "True"}]}, "ACTIVE", id="available"
        ),
        pytest.param(
            {"observedGeneration": 2, "conditions": [{"type": "Available", "status": "False"}]},
            "CREATING",
            id="pods missing",
        ),
    ],
)
def test_a_deployment_is_active_once_its_current_generation_is_available(status: dict[str, Any], expected: str) -> None:
    assert deployment_status({"metadata": {"generation": 2}, "status": status}) == expected


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}},
            "/api/v1/namespaces/n/services/a",
            id="core",
        ),
        pytest.param(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"}},
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
            id="cluster-scoped",
        ),
    ],
)
def test_an_objects_path_is_derived_from_its_manifest(manifest: dict[str, Any], path: str) -> None:
    assert object_path(manifest) == path
