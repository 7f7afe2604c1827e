"""A resource's place in AWS follows from its inputs, or there is none."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.adopt.kinds import KINDS, UNKNOWN, Place


def place(type: str, **inputs: Any) -> Place | None:
    return KINDS[type].place({"urn": "urn:pulumi:s::p::t::name", "inputs": inputs})


def known(type: str, **inputs: Any) -> Place:
    found = place(type, **inputs)
    assert found is not None
    return found


def test_the_listing_names_the_inputs() -> None:
    listing = known("aws:efs/mountTarget:MountTarget", fileSystemId="fs-1", subnetId="subnet-1").listing
    assert listing[:4] == ("efs", "describe-mount-targets", "--file-system-id", "fs-1")
    assert listing[5] == "MountTargets[?SubnetId=='subnet-1'].MountTargetId"


def test_a_name_with_a_space_stays_one_argument() -> None:
    found = known("aws:ec2/securityGroup:SecurityGroup", vpcId="vpc-1", tags={"Name": "my data"})
    assert "Name=tag:Name,Values=my data" in found.listing


@pytest.mark.parametrize(
    "inputs",
    [
        {"vpcId": "vpc-1"},
        {"vpcId": "vpc-1", "cidrBlock": None},
        {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24"},
    ],
    ids=["missing", "null", "unknown"],
)
def test_without_an_input_there_is_no_place(inputs: dict[str, Any]) -> None:
    assert place("aws:ec2/subnet:Subnet", **inputs) is None


def test_without_the_tag_that_names_it_there_is_no_place() -> None:
    assert place("aws:ec2/routeTable:RouteTable", vpcId="vpc-1") is None
    assert place("aws:ec2/routeTable:RouteTable", vpcId="vpc-1", tags=None) is None


@pytest.mark.parametrize(
    ("type", "inputs", "found", "id"),
    [
        (
            "aws:ec2/route:Route",
            {"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0"},
            "0.0.0.0/0",
            "rtb-1_0.0.0.0/0",
        ),
        (
            "aws:ec2/routeTableAssociation:RouteTableAssociation",
            {"routeTableId": "rtb-1", "subnetId": "subnet-1"},
            "subnet-1",
            "subnet-1/rtb-1",
        ),
        ("aws:eks/addon:Addon", {"clusterName": "c", "addonName": "coredns"}, "coredns", "c:coredns"),
        (
            "aws:eks/podIdentityAssociation:PodIdentityAssociation",
            {"clusterName": "c", "namespace": "n", "serviceAccount": "a"},
            "a-1",
            "c,a-1",
        ),
    ],
    ids=["route", "association", "addon", "pod identity"],
)
def test_the_id_is_that_of_an_import(type: str, inputs: dict[str, Any], found: str, id: str) -> None:
    assert known(type, **inputs).id(found) == id


@pytest.mark.parametrize(
    ("found", "holds"),
    [("name-1234567", True), ("name-large12", False), ("name-12345678", False), ("other-1234567", False)],
)
def test_only_a_node_group_with_a_name_that_pulumi_has_chosen_is_in_its_place(found: str, holds: bool) -> None:
    assert known("aws:eks/nodeGroup:NodeGroup", clusterName="c").holds(found) is holds


def test_only_a_cluster_in_the_subnets_of_the_stack_is_in_its_place() -> None:
    found = known("aws:eks/cluster:Cluster", name="c", vpcConfig={"subnetIds": ["subnet-1", "subnet-2"]})
    assert "contains(resourcesVpcConfig.subnetIds, 'subnet-1')" in found.listing[5]
    assert found.one("c") == ["--name", "c"]
