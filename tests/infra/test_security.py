"""What keeps the stack closed in addition to the rules of tests/security: how the parts fit together."""

from __future__ import annotations

import pytest

from tests import graph

CLUSTER = "eks:index:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"
SUBNET = "aws:ec2/subnet:Subnet"
TARGET = "aws:efs/mountTarget:MountTarget"
NFS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
INLINE = "aws:iam/rolePolicy:RolePolicy"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


@pytest.fixture(scope="module", params=["Pulumi.local.yaml", "Pulumi.aws-dev.yaml.example", "Pulumi.aws.yaml.example"])
def deployed(request: pytest.FixtureRequest) -> graph.Graph:
    """Return the graphs of the stacks that come with the project."""
    return graph.deploy(graph.stack_config(request.param), stack="dev")


def private_subnets(deployed: graph.Graph) -> set[str]:
    """Return the ids of the private subnets."""
    return {each.id for each in deployed.all(SUBNET) if "-private-" in each.name}


def test_the_default_groups_of_pulumi_eks_open_nothing(deployed: graph.Graph) -> None:
    cluster = deployed.one(CLUSTER).inputs
    assert cluster["skipDefaultSecurityGroups"] is True
    assert cluster["skipDefaultNodeGroup"] is True


def test_nodes_are_in_the_private_subnets_and_have_no_fixed_name(deployed: graph.Graph) -> None:
    for group in deployed.all(GROUP):
        assert set(group.inputs["subnetIds"]) <= private_subnets(deployed)
        assert "nodeGroupName" not in group.inputs


def test_each_private_subnet_has_a_mount_target(deployed: graph.Graph) -> None:
    assert {each.inputs["subnetId"] for each in deployed.all(TARGET)} == private_subnets(deployed)


def test_nfs_comes_from_the_nodes_only(deployed: graph.Graph) -> None:
    rule = deployed.one(NFS).inputs
    assert rule["referencedSecurityGroupId"] == graph.NODES_SECURITY_GROUP
    assert (rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("tcp", 2049, 2049)
    assert "cidrIpv4" not in rule


def test_old_versions_in_the_bucket_go_and_those_of_checkpoints_after_a_day(deployed: graph.Graph) -> None:
    rules = deployed.one(LIFECYCLE).inputs["rules"]
    days = {each["filter"]["prefix"]: each["noncurrentVersionExpiration"]["noncurrentDays"] for each in rules}
    assert days == {"": 30, "checkpoints/": 1}


def test_inline_policies_have_fixed_names_so_that_one_made_without_an_answer_is_written_again() -> None:
    # A second one of an automatic name would keep its role from being deleted, and Pulumi would not know of it.
    everything = {"imageCache": True, "dataset": "s3://pictures/animals/", "datasetStorage": "s3", "vpcFlowLogs": 365}
    made = graph.deploy({**graph.stack_config("Pulumi.aws.yaml.example"), **everything}, stack="dev").all(INLINE)
    assert {each.inputs.get("name") for each in made} == {"trainer", "s3-csi", "images", "karpenter", "flow-logs"}
