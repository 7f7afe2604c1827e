"""A role in `roleArns` that can't be used is one sentence, before anything is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import settings
from infra import policies
from infra.policies import roles
from infra.preflight.cluster import Inside
from infra.preflight.roles import given
from infra.preflight.roles.given import Given
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.roles.given_roles import arns_for
from tests.infra.preflight.world import stack

ARNS = arns_for()
CALLER = f"arn:aws:sts::{graph.ACCOUNT}:assumed-role/deployer/session"
BY_EKS = Inside(foreign=frozenset({ARNS["node"]}))
"""On a cluster of the stack's own, EKS makes the access entry for the role of node groups."""
OTHERS = ARNS["node"].replace(graph.ACCOUNT, "210987654321")
FITTING = {
    name: role.trust for name, role in roles.of(stack(), roles.Names.before(stack(), graph.ACCOUNT, "aws")).items()
}
"""The trust policies that the stack's own roles would have."""


def found(name: str, trust: Mapping[str, Any] | None = None, **changes: Any) -> list[str]:
    """Return the mistakes if one role has this trust policy, or differs so, and the others are as they must be."""
    each = {name: Given(arn, FITTING[name]) for name, arn in ARNS.items()}
    each[name] = Given(**{"arn": ARNS[name], "trust": FITTING[name] if trust is None else trust, **changes})
    return given.mistakes(stack(roleArns=ARNS), each, CALLER, BY_EKS)


def allowing(service: Any, *actions: str, **more: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions), **more}
    return {"Statement": [{"Effect": "Allow", "Principal": {"AWS": "x"}, "Action": "sts:AssumeRole"}, statement]}


@pytest.mark.parametrize("name", ARNS)
def test_a_role_with_the_trust_policy_that_the_command_prints_is_no_mistake(name: str) -> None:
    assert found(name) == []


PODS = "pods.eks.amazonaws.com"
TAG = "aws:RequestTag/kubernetes-service-account"
FITS: dict[str, dict[str, Any]] = {
    "several services": allowing(["ec2.amazonaws.com", PODS], "sts:AssumeRole", "sts:TagSession"),
    "a pattern for the actions": allowing(PODS, "sts:*"),
    "a pattern for the pods": allowing(PODS, "sts:*", Condition={"StringLike": {TAG: ["train*", "x"]}}),
    "conditions of others": allowing(PODS, "sts:*", Condition={"StringEquals": {"aws:SourceAccount": "1"}}),
    "a statement for each action": {
        "Statement": [allowing(PODS, f"sts:{action}")["Statement"][1] for action in ("AssumeRole", "TagSession")]
    },
    "everyone": allowing(PODS, "sts:*", Principal={"AWS": "*"}),
    "the name of the service in China": allowing(f"{PODS}.cn", "sts:*"),
    "a condition that leaves others out": allowing(PODS, "sts:*", Condition={"StringNotEquals": {TAG: "x"}}),
}
WRONG: dict[str, dict[str, Any]] = {
    "nothing": {},
    "another service": allowing("ec2.amazonaws.com", "sts:AssumeRole", "sts:TagSession"),
    "one action too few": allowing(PODS, "sts:AssumeRole"),
    "other pods": allowing(PODS, "sts:*", Condition={"StringEquals": {TAG: "karpenter"}}),
    "only denied": {"Statement": {**allowing(PODS, "sts:*")["Statement"][1], "Effect": "Deny"}},
    "the role of Karpenter": FITTING["karpenter"],
}


@pytest.mark.parametrize("trust", FITS.values(), ids=FITS)
def test_what_may_let_the_service_assume_the_role_is_no_mistake(trust: dict[str, Any]) -> None:
    assert found("trainer", trust) == []


@pytest.mark.parametrize("trust", WRONG.values(), ids=WRONG)
def test_a_trust_policy_that_surely_keeps_the_service_out_is_one_mistake_with_the_statement(
    trust: dict[str, Any],
) -> None:
    (mistake,) = found("trainer", trust)
    assert mistake.startswith(f"roleArns.trainer = {ARNS['trainer']}: its trust policy doesn't let {PODS} assume it")
    assert json.loads(mistake.partition("exchange the roles: ")[2]) == FITTING["trainer"]["Statement"][0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"arn": ""}, "there is no such role; correct it, or make it first, as `python -m scripts.roles` prints it"),
        ({"arn": f"{ARNS['node']}-2"}, f"the account's role of this name is {ARNS['node']}-2; correct it"),
    ],
)
def test_a_role_that_is_not_there_or_in_another_path_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert found("node", **changes) == [f"roleArns.node = {ARNS['node']}: {reason}"]


def test_a_role_of_another_account_is_refused() -> None:
    wanted = stack(roleArns={**ARNS, "node": OTHERS})
    (mistake,) = given.mistakes(wanted, {"node": Given(OTHERS, FITTING["node"])}, CALLER, None)
    assert mistake.startswith(
        f"roleArns.node = {OTHERS}: is of another account than the stack, which is in {graph.ACCOUNT}"
    )


def test_a_role_of_nodes_that_others_have_let_into_the_cluster_is_refused() -> None:
    on_platform = {**existing_cluster.CONFIG, "monitoring": "none"}
    arns, entry = arns_for(**on_platform), {"kubernetesGroups": ["system:nodes"], "tags": {}}

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token.endswith(":getAccessEntry") and arguments["principalArn"] == arns["surge-node"]:
            return entry
        return existing_cluster.ask(token, arguments)

    config = {**graph.defaults(), **on_platform, "roleArns": arns}
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(graph.program, config, "dev", ask=ask)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(
        f"roleArns.surge-node = {arns['surge-node']}: has an access entry on the cluster platform"
    )
    entry["tags"] = stack(**on_platform).own_tags
    assert graph.run(graph.program, config, "dev", ask=ask).all("aws:eks/accessEntry:AccessEntry")


def test_karpenters_nodes_can_not_have_the_role_that_node_groups_had() -> None:
    """EKS has made an entry for it, and would refuse a second one in the middle of the update."""
    exchanged = {**ARNS, "node": ARNS["surge-node"], "surge-node": ARNS["node"]}
    each = {name: Given(arn, FITTING[name]) for name, arn in exchanged.items()}
    (mistake,) = given.mistakes(stack(roleArns=exchanged), each, CALLER, BY_EKS)
    assert mistake.startswith(f"roleArns.surge-node = {ARNS['node']}: has an access entry on the cluster tidewater-dev")


def test_a_role_that_may_not_be_read_is_a_warning() -> None:
    assert found("node", {}, unread="AccessDenied") == []
    (warning,) = given.warnings({"node": Given("", unread="AccessDenied"), "trainer": Given("")})
    assert warning.startswith("roleArns: node could not be read. To have them checked, allow iam:GetRole.")
    assert given.warnings({"node": Given("")}) == []


def test_all_roles_are_asked_for_by_name_and_refused_at_once_before_anything_is_registered() -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token != given.ROLE or not arguments["name"].startswith("given-"):
            return graph.answer(token, arguments)
        if arguments["name"] == "given-node":
            raise graph.Refused("reading IAM Role (given-node): couldn't find resource")
        trust = policies.to_json(FITTING["trainer"])
        return {**graph.answer(token, arguments), "assumeRolePolicy": trust}

    made, config = graph.Graph(), {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], "roleArns": ARNS}
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(graph.program, config, "dev", ask=ask, graph=made)
    assert {each.partition(" = ")[0] for each in refused.value.mistakes} == {
        f"roleArns.{name}" for name in ARNS if name != "trainer"
    }
    assert not [each for each in made.resources if each.type.startswith("aws:")]
