"""A boundary that denies what a role of the stack does is refused, by the role and the actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import settings
from infra.preflight.roles import boundary
from infra.preflight.roles.boundary import Boundary
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.world import stack

ARN = f"arn:aws:iam::{graph.ACCOUNT}:policy/boundary"
ANYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
WITH_EVERYTHING: dict[str, Any] = {
    "dataset": "s3://bucket/images/",
    "datasetStorage": "s3",
    "imageCache": True,
    "fileAccess": "iam",
    "teams": [{"name": "vision", "maxWorkers": 2}],
}


def denied(*statements: Mapping[str, Any], **changes: Any) -> list[str]:
    """Return the mistakes with a boundary of these statements."""
    wanted = stack(permissionsBoundary=ARN, **changes)
    return boundary.mistakes(wanted, Boundary(found=True, document={"Statement": list(statements)}))


def allow(*actions: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": list(actions), "Resource": "*", **more}


def deny(*actions: str, **more: Any) -> dict[str, Any]:
    return {**allow(*actions, **more), "Effect": "Deny"}


def test_a_boundary_that_allows_all_is_no_mistake() -> None:
    assert denied(ANYTHING, **WITH_EVERYTHING) == []
    services = ("ec2", "ecr", "eks", "eks-auth", "s3", "kms", "sqs", "iam", "ssm", "pricing", "elasticfilesystem")
    assert denied(*(allow(f"{each.upper()}:*") for each in services), **WITH_EVERYTHING) == []


def test_a_boundary_that_allows_nothing_names_every_role() -> None:
    found = denied(**WITH_EVERYTHING)
    roles = [each.partition("which the role of ")[2].partition(" needs;")[0] for each in found]
    assert roles == ["the nodes", "the training pods", "Mountpoint for S3", "the pods of teams", "Karpenter"]
    assert all(each.startswith(f"permissionsBoundary = {ARN}: doesn't allow ") for each in found)
    (nodes,) = (each for each in denied(surgeNodes="nodegroup") if "the nodes" in each)
    assert "doesn't allow ec2:DescribeInstances, ecr:GetAuthorizationToken, ecr:BatchGetImage, " in nodes
    assert " and 6 more, which" in nodes


SURE: dict[str, list[dict[str, Any]]] = {
    "one action denied": [ANYTHING, deny("s3:GetObject")],
    "by a pattern": [ANYTHING, deny("S3:Get*")],
    "by what is not named": [ANYTHING, {"Effect": "Deny", "NotAction": ["s3:L*", "kms:*"], "Resource": ["*"]}],
    "not allowed": [{"Effect": "Allow", "NotAction": ["s3:GetO*"], "Resource": "*"}],
}


@pytest.mark.parametrize("statements", SURE.values(), ids=SURE)
def test_an_action_that_is_surely_denied_is_one_mistake(statements: list[dict[str, Any]]) -> None:
    found = [each for each in denied(*statements) if "training pods" in each]
    assert [each.partition("allow ")[2].partition(", which")[0] for each in found] == ["s3:GetObject"]


PERHAPS: dict[str, list[dict[str, Any]]] = {
    "denied under a condition": [ANYTHING, deny("s3:*", Condition={"StringNotEquals": {"aws:RequestedRegion": "x"}})],
    "denied on something": [ANYTHING, deny("s3:*", Resource=["arn:aws:s3:::payroll/*"])],
    "denied on all but something": [ANYTHING, {"Effect": "Deny", "Action": "s3:*", "NotResource": "arn:aws:s3:::x/*"}],
    "allowed on something": [allow("s3:*", Resource="arn:aws:s3:::x/*"), allow("*", Condition={"Bool": {"a": "b"}})],
}


@pytest.mark.parametrize("statements", PERHAPS.values(), ids=PERHAPS)
def test_what_may_be_allowed_is_no_mistake(statements: list[dict[str, Any]]) -> None:
    assert denied(*statements) == []


def test_on_a_cluster_of_others_the_network_may_have_a_role_of_its_own() -> None:
    statements = [ANYTHING, deny("ec2:AssignPrivateIpAddresses")]
    assert len(denied(*statements, surgeNodes="nodegroup")) == 1
    assert denied(*statements, **{**existing_cluster.CONFIG, "surgeNodes": "nodegroup", "monitoring": "none"}) == []


def deploy(answer: dict[str, Any] | Exception, *, exists: bool = False) -> graph.Graph:
    """Run the program with a boundary, in an account that answers so when it is asked for the policy."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == boundary.POLICY:
            assert arguments["arn"] == ARN
            if isinstance(answer, Exception):
                raise answer
            return answer
        if token.endswith(":getVpcs") and arguments.get("tags"):
            return {"ids": ["vpc-1"] if exists else []}
        return graph.answer(token, arguments)

    config = {**graph.stack_config("Pulumi.local.yaml"), "permissionsBoundary": ARN}
    return graph.run(graph.program, config, ask=ask)


NARROW = {"policy": json.dumps({"Statement": [ANYTHING, deny("ecr:*")]})}


def test_it_is_refused_before_anything_is_made_and_only_a_warning_once_the_roles_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    with pytest.raises(settings.ConfigurationError) as refused:
        deploy(NARROW)
    (mistake,) = refused.value.mistakes
    names = "ecr:GetAuthorizationToken, ecr:BatchGetImage, ecr:GetDownloadUrlForLayer"
    assert f"doesn't allow {names}, which the role of the nodes needs" in mistake
    assert deploy(NARROW, exists=True).all("aws:iam/role:Role")
    assert mistake in "\n".join(said)


def test_a_policy_that_is_not_there_is_refused() -> None:
    with pytest.raises(settings.ConfigurationError, match=f"permissionsBoundary = {ARN}: there is no such policy"):
        deploy(graph.Refused(f"reading IAM policy ({ARN}): couldn't find resource"))


def test_without_the_right_to_read_it_the_stack_is_made_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    assert deploy(graph.Refused("AccessDenied: not authorized to perform: iam:GetPolicy")).all("aws:iam/role:Role")
    (warning,) = (each for each in said if "could not be read" in each)
    assert "allow iam:GetPolicy and iam:GetPolicyVersion" in warning
