"""The node groups follow the settings."""

from __future__ import annotations

import pytest

from contract import labels
from infra import node_images
from tests import graph

GROUP = "aws:eks/nodeGroup:NodeGroup"


@pytest.fixture(scope="module")
def production() -> graph.Graph:
    """The production example."""
    return graph.deploy(graph.stack_config("Pulumi.aws.yaml.example"), stack="production")


def test_with_karpenter_the_worker_group_is_the_core(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 1, "minSize": 1, "maxSize": 1}
    assert group["capacityType"] == "ON_DEMAND"


def test_without_karpenter_the_worker_group_follows_workers() -> None:
    own = graph.stack_config("Pulumi.aws.yaml.example")
    config = {**own, "surgeNodes": "nodegroup", "maintenanceWindow": ""}
    group = graph.deploy(config, stack="production").one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 4, "minSize": 1, "maxSize": 16}
    assert group["capacityType"] == "SPOT"


def test_only_a_core_is_labelled_as_one_so_that_the_group_of_an_earlier_release_stays_as_it_is() -> None:
    own = graph.stack_config("Pulumi.local.yaml")
    role = {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
    for surge_nodes, core in (("karpenter", {labels.NODES: labels.NODES_CORE}), ("nodegroup", {})):
        group = graph.deploy({**own, "surgeNodes": surge_nodes}).one(GROUP, "workers").inputs
        assert group["labels"] == {**role, **core}


def test_a_core_without_nodes_has_a_size_that_eks_accepts() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "minWorkers": 0, "workers": 0}
    group = graph.deploy(config).one(GROUP, "workers").inputs
    assert group["scalingConfig"] == {"desiredSize": 0, "minSize": 0, "maxSize": 1}


def test_worker_nodes_are_replaced_one_at_a_time_and_repaired(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group["updateConfig"] == {"maxUnavailable": 1}
    assert group["nodeRepairConfig"] == {"enabled": True}


def test_only_pods_that_tolerate_the_taint_run_on_worker_nodes(production: graph.Graph) -> None:
    group = production.one(GROUP, "workers").inputs
    assert group["taints"] == [{"key": labels.TAINT_WORKER, "value": "true", "effect": "NO_SCHEDULE"}]
    assert group["labels"][labels.NODE_ROLE] == labels.NODE_ROLE_WORKER
    assert "taints" not in production.one(GROUP, "system").inputs


def test_nodes_without_gpus_get_the_standard_image() -> None:
    group = graph.deploy(graph.stack_config("Pulumi.local.yaml")).one(GROUP, "workers").inputs
    assert group["amiType"] == "AL2023_x86_64_STANDARD"


def test_instances_and_volumes_carry_the_tags(production: graph.Graph) -> None:
    for template in production.all("aws:ec2/launchTemplate:LaunchTemplate"):
        for specification in template.inputs["tagSpecifications"]:
            assert specification["tags"]["Stack"] == "production"
            assert specification["tags"]["CostCentre"] == "research"


@pytest.mark.parametrize("file", ["Pulumi.local.yaml", "Pulumi.aws.yaml.example"])
def test_all_node_groups_have_the_image_of_the_release_that_is_set(file: str) -> None:
    made = graph.deploy({**graph.stack_config(file), "nodeImageVersion": "v20260107"})
    assert {each.inputs["releaseVersion"] for each in made.all(GROUP)} == {"1.34.4-20260107"}


def test_the_release_is_looked_up_for_the_variant_and_the_version_of_kubernetes() -> None:
    assert node_images.parameter("1.35", "nvidia", "v20260930") == (
        "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/"
        "amazon-eks-node-al2023-x86_64-nvidia-1.35-v20260930/release_version"
    )
