"""All roles of a stack have its path and its boundary, that of pulumi-eks among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

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


def test_with_given_roles_none_is_made_or_changed_and_each_is_where_it_belongs() -> None:
    teams = {"fileAccess": "iam", "teams": [{"name": "vision", "maxWorkers": 2}]}
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **ALL_ROLES, **teams}
    names = settings.parse(config, stack="production").role_names
    arns = {name: f"arn:aws:iam::{graph.ACCOUNT}:role/given-{name}" for name in names}
    made = graph.production(**ALL_ROLES, **teams, roleArns=arns)
    assert [each.type for each in made.resources if each.type.startswith("aws:iam/")] == []
    assert made.one("eks:index:Cluster").inputs["serviceRole"]["id"] == "given-cluster"
    assert {each.inputs["nodeRoleArn"] for each in made.all("aws:eks/nodeGroup:NodeGroup")} == {arns["node"]}
    of_pods = {
        (each.inputs["namespace"], each.inputs["serviceAccount"]): each.inputs["roleArn"]
        for each in made.all("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    }
    assert of_pods == {
        ("kube-system", "efs-csi-controller-sa"): arns["efs-csi"],
        ("kube-system", "s3-csi-driver-sa"): arns["s3-csi"],
        ("kube-system", "karpenter"): arns["karpenter"],
        ("training", "trainer"): arns["trainer"],
        ("vision", "trainer"): arns["team-vision"],
    }
    assert made.one("aws:ec2/flowLog:FlowLog").inputs["iamRoleArn"] == arns["flow-logs"]
    assert made.one("aws:eks/accessEntry:AccessEntry").inputs["principalArn"] == arns["surge-node"]
    (node_class,) = made.all("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass")
    assert node_class.inputs["spec"]["role"] == "given-surge-node"


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


@pytest.mark.parametrize(
    ("reason", "config", "sentence"),
    [
        (
            "AWS account ID not allowed: 210987654321",
            {"profile": "ml"},
            f"allowedAccountIds = {graph.ACCOUNT}: the credentials of the profile ml are of the account 210987654321; "
            "set profile to a profile of an account that is allowed, or correct allowedAccountIds",
        ),
        (
            "invocation of aws:x returned an error: ExpiredToken: the token has expired.",
            {},
            "profile = (empty): AWS doesn't say who deploys with the default credentials: ExpiredToken: the token has "
            "expired. Log in again, or set profile to a profile with credentials",
        ),
    ],
)
def test_credentials_that_cant_be_used_are_one_sentence_before_anything_else_is_asked(
    reason: str, config: Mapping[str, Any], sentence: str
) -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert token == "aws:index/getCallerIdentity:getCallerIdentity"
        raise graph.Refused(reason)

    given, found = graph.stack_config("Pulumi.aws.yaml.example"), graph.Graph()
    wanted = {**given, "allowedAccountIds": [graph.ACCOUNT], **config}
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(graph.program, wanted, "production", ask=ask, graph=found)
    assert str(refused.value).endswith(sentence)
    assert not [each for each in found.resources if each.type.startswith(("aws:", "eks:", "kubernetes:"))]
