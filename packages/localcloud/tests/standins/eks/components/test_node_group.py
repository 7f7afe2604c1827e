"""The children of a managed node group."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.standins.values import UNKNOWN
from pulumi.errors import InputPropertiesError
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from packages.localcloud.tests.standins.eks.fake_monitor import API_CLUSTER, FakeMonitor


@pytest.fixture
def monitor() -> FakeMonitor:
    return FakeMonitor()


def with_cluster(monitor: FakeMonitor) -> PropertyValue:
    made = monitor.construct("Cluster", "c", API_CLUSTER)
    return PropertyValue(ResourceReference(made.urn, None, None), dependencies=[made.urn])


def construct(monitor: FakeMonitor, **inputs: Any) -> dict[str, Any]:
    monitor.construct("ManagedNodeGroup", "g", {"cluster": with_cluster(monitor), "nodeRoleArn": "arn:r", **inputs})
    return monitor.inputs("g")


def test_a_node_group_has_the_clusters_name_version_and_subnets(monitor: FakeMonitor) -> None:
    assert construct(monitor) == {
        "clusterName": "c-eksCluster-1234567",
        "nodeRoleArn": "arn:r",
        "scalingConfig": {"desiredSize": 2, "minSize": 1, "maxSize": 2},
        "subnetIds": ["subnet-3", "subnet-1", "subnet-2"],
        "version": "1.34",
    }
    assert monitor.named("g").type == "aws:eks/nodeGroup:NodeGroup"


def test_a_node_group_is_deleted_before_its_cluster(monitor: FakeMonitor) -> None:
    construct(monitor)
    behind = {urn.rsplit("::", 1)[-1] for urn in monitor.named("g").inputs["clusterName"].all_dependencies()}
    assert behind == {"c", "c-eksCluster"}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("amiType", "AL2023_x86_64_NVIDIA"),
        ("capacityType", "SPOT"),
        ("diskSize", 40),
        ("instanceTypes", ["g5.xlarge", "g5.2xlarge"]),
        ("labels", {"a": "b"}),
        ("nodeGroupName", "mine"),
        ("nodeGroupNamePrefix", "mine-"),
        ("remoteAccess", {"ec2SshKey": "k", "sourceSecurityGroupIds": ["sg"]}),
        ("subnetIds", ["subnet-9"]),
        ("tags", {"a": "b"}),
        ("taints", [{"key": "k", "effect": "NO_SCHEDULE"}]),
        ("version", "1.33"),
        ("launchTemplate", {"id": "lt", "version": "1"}),
        ("clusterName", "other"),
        ("forceUpdateVersion", True),
        ("releaseVersion", "1.34.0-20260101"),
    ],
)
def test_an_argument_reaches_the_node_group(monitor: FakeMonitor, argument: str, value: Any) -> None:
    assert construct(monitor, **{argument: value})[argument] == value


def test_the_role_may_be_a_resource(monitor: FakeMonitor) -> None:
    role = monitor.given("urn:pulumi:s::p::aws:iam/role:Role::mine", arn="arn:mine")
    cluster = with_cluster(monitor)
    monitor.construct("ManagedNodeGroup", "g", {"cluster": cluster, "nodeRole": role})
    assert monitor.inputs("g")["nodeRoleArn"] == "arn:mine"


def test_the_cluster_may_be_its_core(monitor: FakeMonitor) -> None:
    made = monitor.construct("Cluster", "c", API_CLUSTER)
    monitor.construct("ManagedNodeGroup", "g", {"cluster": made.outputs["core"], "nodeRoleArn": "arn:r"})
    assert monitor.inputs("g")["clusterName"] == "c-eksCluster-1234567"


def test_an_operating_system_decides_the_image_with_gpu_and_architecture(monitor: FakeMonitor) -> None:
    inputs = construct(monitor, operatingSystem="AL2023", gpu=True, instanceTypes=["g5.xlarge"])
    assert inputs["amiType"] == "AL2023_x86_64_NVIDIA"


def test_gpu_alone_leaves_the_image_to_eks(monitor: FakeMonitor) -> None:
    assert "amiType" not in construct(monitor, gpu=True)


def test_imds_v2_and_disk_size_move_into_a_launch_template(monitor: FakeMonitor) -> None:
    inputs = construct(monitor, enableIMDSv2=True, diskSize=50)
    assert inputs["launchTemplate"] == {"id": "id-g-launchTemplate", "version": "3"}
    assert "diskSize" not in inputs
    assert monitor.inputs("g-launchTemplate") == {
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2, "httpEndpoint": "enabled"},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 50}}],
    }


def test_scaling_changes_are_ignored_only_on_request(monitor: FakeMonitor) -> None:
    construct(monitor)
    assert monitor.named("g").ignore_changes == ()
    construct(monitor, ignoreScalingChanges=True)
    assert monitor.named("g").ignore_changes == ("scalingConfig.desiredSize",)


def test_a_preview_of_a_cluster_that_is_not_known_yet_leaves_its_parts_unknown() -> None:
    monitor = FakeMonitor(preview=True)
    monitor.construct("ManagedNodeGroup", "g", {"cluster": PropertyValue.computed(), "nodeRoleArn": "arn:r"})
    assert monitor.inputs("g")["clusterName"] is UNKNOWN
    assert monitor.inputs("g")["subnetIds"] is UNKNOWN


@pytest.mark.parametrize(
    ("inputs", "path", "message"),
    [
        ({}, "nodeRole", "An IAM role, or role ARN must be provided"),
        ({"nodeRoleArn": "a", "nodeRole": "b"}, "nodeRole", "cannot specify both nodeRole and nodeRoleArn"),
        (
            {"nodeRoleArn": "a", "launchTemplate": {"id": "lt"}, "enableIMDSv2": True},
            "launchTemplate",
            "If you provide a custom launch template",
        ),
        ({"nodeRoleArn": "a", "wheels": 4}, "wheels", "has no such input"),
    ],
    ids=["no role", "two roles", "two launch templates", "unknown input"],
)
def test_bad_arguments_are_refused_by_name(
    monitor: FakeMonitor, inputs: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(InputPropertiesError) as caught:
        monitor.construct("ManagedNodeGroup", "g", {"cluster": with_cluster(monitor), **inputs})
    assert caught.value.errors is not None
    assert [error["property_path"] for error in caught.value.errors] == [path]
    assert message in caught.value.errors[0]["reason"]
