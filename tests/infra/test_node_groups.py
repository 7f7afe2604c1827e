"""The node groups follow the settings, and come and go in the right order."""

from __future__ import annotations

import pytest

from contract import labels
from tests import graph

GROUP = "aws:eks/nodeGroup:NodeGroup"


@pytest.fixture(scope="module")
def production() -> graph.Graph:
    """The production example."""
    return graph.deploy(graph.stack_config("Pulumi.aws.yaml.example"), stack="production")


def test_the_worker_group_follows_workers(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 4, "minSize": 1, "maxSize": 16}
    assert group["capacityType"] == "SPOT"
    assert group["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group["updateConfig"] == {"maxUnavailable": 1}
    assert group["nodeRepairConfig"] == {"enabled": True}


def test_only_what_tolerates_it_gets_onto_worker_nodes(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["taints"] == [{"key": labels.TAINT_WORKER, "value": "true", "effect": "NO_SCHEDULE"}]
    assert group["labels"] == {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    assert "taints" not in production.one(GROUP, "system").inputs


def test_nodes_without_gpus_get_the_standard_image() -> None:
    group = graph.deploy(graph.stack_config("Pulumi.local.yaml")).one(GROUP, "workers").inputs
    assert group["amiType"] == "AL2023_x86_64_STANDARD"


def test_nodes_come_after_the_pod_identity_agent_and_addons_with_pods_after_them(production: graph.Graph) -> None:
    addons = {each.inputs["addonName"]: each for each in production.all("aws:eks/addon:Addon")}
    system = production.position(production.one(GROUP, "system"))
    assert production.position(addons["eks-pod-identity-agent"]) < system
    assert system < production.position(addons["coredns"])
    assert system < production.position(addons["aws-efs-csi-driver"])


def test_worker_nodes_shrink_after_the_job(production: graph.Graph) -> None:
    scaler = production.one("kubernetes:apps/v1:Deployment", "scaler")
    assert production.position(scaler) < production.position(production.one(GROUP, "workers"))


def test_what_is_launched_carries_the_tags(production: graph.Graph) -> None:
    for template in production.all("aws:ec2/launchTemplate:LaunchTemplate"):
        for specification in template.inputs["tagSpecifications"]:
            assert specification["tags"]["Stack"] == "production"
            assert specification["tags"]["CostCentre"] == "research"
