"""All roles of a stack have its path and its boundary, that of pulumi-eks among them."""

from __future__ import annotations

import pulumi

import settings
from infra import cluster
from tests import graph

ROLE = "aws:iam/role:Role"
BOUNDARY = f"arn:aws:iam::{graph.ACCOUNT}:policy/teams/boundary"
ALL_ROLES = {
    "vpcFlowLogs": 14,
    "imageCache": True,
    "dataset": "s3://bucket/images/",
    "datasetStorage": "s3",
    "surgeNodes": "karpenter",
}
"""With them the stack makes every role that it can make."""


def test_every_role_has_the_path_and_the_boundary() -> None:
    made = graph.production(**ALL_ROLES, permissionsBoundary=BOUNDARY, rolePath="/teams/ml/").all(ROLE)
    labels = {"node", "efs-csi", "trainer", "s3-csi", "surge-node", "karpenter", "flow-logs"}
    assert {each.name for each in made} == {f"tidewater-production-{label}" for label in labels}
    assert {(each.inputs["path"], each.inputs["permissionsBoundary"]) for each in made} == {("/teams/ml/", BOUNDARY)}


def test_without_the_settings_roles_have_neither() -> None:
    made = graph.production(**ALL_ROLES).all(ROLE)
    assert {(each.inputs["path"], each.inputs.get("permissionsBoundary")) for each in made} == {("/", None)}


def transformed(roles: settings.Roles, type_: str = ROLE) -> pulumi.ResourceTransformResult | None:
    args = pulumi.ResourceTransformArgs(
        custom=True, type_=type_, name="x", props={"description": "d"}, opts=pulumi.ResourceOptions()
    )
    result = cluster.role_as_others(roles)(args)
    assert result is None or isinstance(result, pulumi.ResourceTransformResult)
    return result


def test_the_role_of_pulumi_eks_gets_the_same() -> None:
    result = transformed(settings.Roles("/teams/", BOUNDARY))
    assert result is not None
    assert result.props == {"description": "d", "path": "/teams/", "permissionsBoundary": BOUNDARY}
    result = transformed(settings.Roles("/", ""))
    assert result is not None
    assert result.props == {"description": "d", "path": "/"}
    assert transformed(settings.Roles("/teams/", BOUNDARY), "aws:eks/cluster:Cluster") is None


def test_karpenter_passes_the_nodes_role_by_its_arn_and_names_it_without_its_path() -> None:
    made = graph.production(rolePath="/teams/")
    (policy,) = (each for each in made.all("aws:iam/rolePolicy:RolePolicy") if each.name.endswith("-karpenter"))
    (node,) = (each for each in made.all(ROLE) if each.name.endswith("-surge-node"))
    assert f'"Resource": "{node.outputs["arn"]}", "Sid": "AllowPassingInstanceRole"' in policy.inputs["policy"]
    (node_class,) = made.all("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass")
    assert node_class.inputs["spec"]["role"] == node.name


def test_the_provider_gets_the_accounts_in_which_it_may_be() -> None:
    provider = graph.production(allowedAccountIds=[graph.ACCOUNT]).one("pulumi:providers:aws")
    assert graph.ACCOUNT in provider.inputs["allowedAccountIds"]
    assert "allowedAccountIds" not in graph.production().one("pulumi:providers:aws").inputs
