"""Placement groups exist, are named by launches, and stay while they have instances."""

from __future__ import annotations

from typing import Any

import pytest

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.launches import IMAGE, run


@pytest.fixture(scope="module")
def ec2(operator: Clients) -> Any:
    return operator("ec2")


def launch(ec2: Any, placement: dict[str, str]) -> str:
    data = {"ImageId": IMAGE, "InstanceType": "m5.large", "Placement": placement}
    name = "-".join(("nodes", *placement, *placement.values()))
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)["LaunchTemplate"]
    return run(ec2, LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"]})


def test_a_group_is_made_shown_and_deleted(ec2: Any) -> None:
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "a", "Value": "1"}]}]
    ec2.create_placement_group(GroupName="near", Strategy="cluster", TagSpecifications=tags)
    (group,) = ec2.describe_placement_groups(GroupNames=["near"])["PlacementGroups"]
    assert (group["Strategy"], group["State"], group["Tags"]) == ("cluster", "available", [{"Key": "a", "Value": "1"}])
    assert ec2.describe_placement_groups(GroupIds=[group["GroupId"]])["PlacementGroups"] == [group]
    ec2.delete_placement_group(GroupName="near")
    assert group not in ec2.describe_placement_groups()["PlacementGroups"]


@pytest.mark.parametrize("name", ["GroupName", "GroupId"])
def test_a_group_with_instances_is_not_deleted(ec2: Any, name: str) -> None:
    group = ec2.create_placement_group(GroupName="near", Strategy="cluster")["PlacementGroup"]
    instance = launch(ec2, {name: group[name]})
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidPlacementGroup\.InUse"):
        ec2.delete_placement_group(GroupName="near")
    ec2.terminate_instances(InstanceIds=[instance])
    ec2.delete_placement_group(GroupName="near")


def test_a_group_that_does_not_exist_is_an_error(ec2: Any) -> None:
    for call in (
        lambda: ec2.describe_placement_groups(GroupNames=["far"]),
        lambda: ec2.delete_placement_group(GroupName="far"),
        lambda: launch(ec2, {"GroupName": "far"}),
    ):
        with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidPlacementGroup\.Unknown"):
            call()


def test_a_name_is_used_once(ec2: Any) -> None:
    ec2.create_placement_group(GroupName="twice", Strategy="cluster")
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidPlacementGroup\.Duplicate"):
        ec2.create_placement_group(GroupName="twice", Strategy="cluster")


def test_a_call_can_name_the_group_itself(ec2: Any) -> None:
    ec2.create_placement_group(GroupName="direct", Strategy="cluster")
    instance = run(ec2, Placement={"GroupName": "direct"})
    (seen,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
    assert seen["Placement"]["GroupName"] == "direct"
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidPlacementGroup\.InUse"):
        ec2.delete_placement_group(GroupName="direct")
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidPlacementGroup\.Unknown"):
        run(ec2, Placement={"GroupName": "far"})


@pytest.mark.parametrize(
    "more",
    [
        {"Strategy": "partition", "PartitionCount": 3},
        {"Strategy": "spread"},
        {"Strategy": "cluster", "SpreadLevel": "rack"},
        {"Strategy": "near"},
    ],
    ids=lambda more: more["Strategy"],
)
def test_only_groups_of_the_strategy_cluster_are_made(ec2: Any, more: dict[str, Any]) -> None:
    message = r"UnsupportedOperation.*not covered by the one-machine cloud: use the strategy 'cluster'"
    with pytest.raises(ec2.exceptions.ClientError, match=message):
        ec2.create_placement_group(GroupName="wrong", **more)


def test_groups_are_found_by_filters(ec2: Any) -> None:
    for name in ("one", "two"):
        tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "stack", "Value": name}]}]
        ec2.create_placement_group(GroupName=f"found-{name}", Strategy="cluster", TagSpecifications=tags)

    def found(name: str, *values: str) -> list[str]:
        groups = ec2.describe_placement_groups(Filters=[{"Name": name, "Values": list(values)}])["PlacementGroups"]
        return [group["GroupName"] for group in groups if group["GroupName"].startswith("found-")]

    assert found("group-name", "found-t*") == ["found-two"]
    assert found("tag:stack", "one") == ["found-one"]
    assert found("tag:nothing", "one") == found("strategy", "spread") == []
    assert found("tag-key", "stack") == found("state", "available") == ["found-one", "found-two"]
    with pytest.raises(ec2.exceptions.ClientError):
        found("colour", "red")
