"""Karpenter's roles, pod identity, access entry and queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

import settings
from infra.account import connect
from infra.karpenter import EVENTS, KarpenterAccess, KarpenterAccessArgs
from settings.model import MAX_NAME_LENGTH
from tests import graph

ROLE = "aws:iam/role:Role"
STACK = "production"
NAME = f"tidewater-{STACK}"
LONGEST_STACK = "s" * 22


def access() -> None:
    stack = settings.load()
    assert stack.surge is not None
    account = connect(stack)
    KarpenterAccess(stack.name, KarpenterAccessArgs(account), account.options())


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """The component in the production example."""
    return graph.run(access, graph.stack_config("Pulumi.aws.yaml.example"), stack=STACK)


def inline(made: graph.Graph) -> dict[str, Any]:
    """Return the controller's policy."""
    document: dict[str, Any] = json.loads(made.one("aws:iam/rolePolicy:RolePolicy").inputs["policy"])
    return document


def test_only_karpenters_own_pods_get_its_role(made: graph.Graph) -> None:
    (statement,) = json.loads(made.one(ROLE, "-karpenter").inputs["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    wanted = {"kube-system", "karpenter", f"arn:aws:eks:us-west-2:{graph.ACCOUNT}:cluster/{NAME}"}
    assert set(statement["Condition"]["StringEquals"].values()) == wanted
    identity = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs
    assert (identity["clusterName"], identity["namespace"], identity["serviceAccount"]) == (
        NAME,
        "kube-system",
        "karpenter",
    )
    assert identity["roleArn"] == f"arn:aws:mock:::{NAME}-karpenter"


def test_the_nodes_have_a_role_of_their_own_that_may_join_the_cluster(made: graph.Graph) -> None:
    role = made.one(ROLE, "-surge-node")
    attached = {each.inputs["policyArn"] for each in made.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")}
    assert {arn.rpartition("/")[2] for arn in attached} == {
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryPullOnly",
    }
    entry = made.one("aws:eks/accessEntry:AccessEntry").inputs
    assert (entry["principalArn"], entry["type"]) == (f"arn:aws:mock:::{role.name}", "EC2_LINUX")


def test_the_controller_passes_the_nodes_role_and_reads_its_queue(made: graph.Graph) -> None:
    statements = {each["Sid"]: each for each in inline(made)["Statement"]}
    assert statements["AllowPassingInstanceRole"]["Resource"] == f"arn:aws:mock:::{NAME}-surge-node"
    assert statements["AllowInterruptionQueueActions"]["Resource"] == f"arn:aws:mock:::{NAME}"


@pytest.mark.parametrize(("capacity_type", "there"), [("SPOT", True), ("ON_DEMAND", False)])
def test_only_a_stack_with_spot_nodes_may_make_ec2s_role_for_them(capacity_type: str, there: bool) -> None:
    made = graph.run(access, {**graph.defaults(), "capacityType": capacity_type})
    assert ("AllowSpotServiceLinkedRole" in {each["Sid"] for each in inline(made)["Statement"]}) is there


def test_the_controller_may_do_what_the_nodes_of_pools_need() -> None:
    big = {"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 2}
    reserved = {**big, "capacityType": "SPOT", "capacityReservationIds": ["cr-0123456789abcdef1"]}
    config = {**graph.defaults(), "capacityReservationIds": ["cr-0123456789abcdef0"], "pools": [reserved]}
    statements = {each["Sid"]: each for each in inline(graph.run(access, config))["Statement"]}
    assert "AllowSpotServiceLinkedRole" in statements
    named = [arn for arn in statements["AllowScopedEC2InstanceAccessActions"]["Resource"] if "capacity-reserv" in arn]
    assert [arn.rpartition("/")[2] for arn in named] == ["cr-0123456789abcdef0", "cr-0123456789abcdef1"]


def test_the_queue_is_encrypted_and_short_lived(made: graph.Graph) -> None:
    queue = made.one("aws:sqs/queue:Queue").inputs
    assert queue["name"] == NAME
    assert queue["sqsManagedSseEnabled"] is True
    assert queue["messageRetentionSeconds"] == 300


def test_every_event_that_karpenter_reads_goes_to_the_queue(made: graph.Graph) -> None:
    made_rules = made.all("aws:cloudwatch/eventRule:EventRule")
    rules = {each.name: json.loads(each.inputs["eventPattern"]) for each in made_rules}
    assert {(rule["source"][0], rule["detail-type"][0]) for rule in rules.values()} == set(EVENTS.values())
    targets = made.all("aws:cloudwatch/eventTarget:EventTarget")
    assert {each.inputs["rule"] for each in targets} == set(rules)
    assert {each.inputs["arn"] for each in targets} == {f"arn:aws:mock:::{NAME}"}
    policy = made.one("aws:sqs/queuePolicy:QueuePolicy")
    assert all(made.needs(each, policy) for each in targets)


def test_automatic_names_of_the_longest_stack_are_not_too_long() -> None:
    made = graph.run(access, graph.defaults(), stack=LONGEST_STACK)
    rules, roles = made.all("aws:cloudwatch/eventRule:EventRule"), made.all(ROLE)
    assert len(f"tidewater-{LONGEST_STACK}") == MAX_NAME_LENGTH
    # EventBridge and IAM allow 64 characters, and Pulumi adds a hyphen and seven digits.
    assert max(len(each.name) + 8 for each in [*rules, *roles]) <= 64
