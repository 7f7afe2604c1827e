"""A stack can be destroyed when its cluster is gone; the objects of one that is only unreachable are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts import destroy
from scripts.destroy import VARIABLE, Resources, without_cluster
from scripts.session import Session, UpError

PROVIDER = {"type": "pulumi:providers:aws", "urn": "urn:p", "inputs": {"region": "eu-west-1", "profile": "lab"}}
CLUSTER = {
    "type": "aws:eks/cluster:Cluster",
    "urn": "urn:c",
    "id": "tidewater-dev",
    "provider": "urn:p::uuid",
    "outputs": {"endpoint": "https://one.example"},
}
OBJECT = {"type": "kubernetes:core/v1:Namespace", "urn": "urn:n"}
VPC = {
    "type": "aws:ec2/vpc:Vpc",
    "urn": "urn:pulumi:dev::tidewater::aws:ec2/vpc:Vpc::v",
    "id": "vpc-1",
    "provider": "urn:p::uuid",
}
STACK = (PROVIDER, VPC, CLUSTER, OBJECT)
GONE = "An error occurred (ResourceNotFoundException) when calling DescribeCluster: No cluster found"


@dataclass(frozen=True)
class FakeSession(Session):
    """Answers as the AWS CLI does."""

    state: Path = Path("/nowhere")
    environ: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    error: str = ""
    nodes: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        self.asked.append(command)
        if "describe-instances" in command:
            return self.nodes
        if self.error:
            raise UpError(self.error)
        return f"{self.endpoint}\n"


def test_the_objects_of_a_cluster_that_is_gone_are_dropped() -> None:
    session = FakeSession(error=GONE)
    assert without_cluster(session, STACK) == {VARIABLE: "true"}
    assert session.asked[0][-4:] == ("--region", "eu-west-1", "--profile", "lab")


def test_another_cluster_of_its_name_is_not_the_stacks() -> None:
    assert without_cluster(FakeSession(endpoint="https://two.example"), STACK) == {VARIABLE: "true"}


def test_the_objects_are_dropped_if_the_state_has_no_cluster_any_more() -> None:
    assert without_cluster(FakeSession(), (PROVIDER, OBJECT)) == {VARIABLE: "true"}


def test_the_objects_of_a_cluster_that_exists_are_deleted() -> None:
    assert without_cluster(FakeSession(endpoint="https://one.example"), STACK) == {}


GROUP = {
    "type": "aws:eks/nodeGroup:NodeGroup",
    "urn": "urn:pulumi:dev::tidewater::aws:eks/nodeGroup:NodeGroup::tidewater-dev-system",
    "provider": "urn:p::uuid",
    "inputs": {"clusterName": "platform"},
}


def test_the_objects_on_a_cluster_of_others_are_deleted_while_that_exists() -> None:
    session = FakeSession(endpoint="https://platform.example")
    assert without_cluster(session, (PROVIDER, GROUP, OBJECT)) == {}
    assert session.asked[0][3:5] == ("--name", "platform")
    assert without_cluster(FakeSession(error=GONE), (PROVIDER, GROUP, OBJECT)) == {VARIABLE: "true"}


def test_so_are_those_on_one_that_has_the_name_of_the_stack() -> None:
    group = {**GROUP, "inputs": {"clusterName": "tidewater-dev"}}
    assert without_cluster(FakeSession(endpoint="https://one.example"), (PROVIDER, group, OBJECT)) == {}
    assert without_cluster(FakeSession(error=GONE), (PROVIDER, group, OBJECT)) == {VARIABLE: "true"}


def test_a_cluster_about_which_eks_says_nothing_is_an_error() -> None:
    with pytest.raises(UpError, match="ExpiredToken"):
        without_cluster(FakeSession(error="An error occurred (ExpiredTokenException)"), STACK)


def test_a_stack_without_objects_asks_nobody() -> None:
    session = FakeSession(error="no network")
    assert without_cluster(session, (PROVIDER, CLUSTER)) == {}
    assert session.asked == []


def test_nodes_that_outlived_the_cluster_are_named_with_the_command_that_ends_them() -> None:
    session = FakeSession(error=GONE, nodes="i-1\ti-2\n")
    with pytest.raises(UpError, match="terminate-instances --instance-ids i-1 i-2 --region eu-west-1 --profile lab"):
        without_cluster(session, STACK)


def test_nodes_that_outlived_a_cluster_in_a_vpc_of_others_are_named_too() -> None:
    place = {"type": "pulumi:index:Stash", "urn": "urn:s", "outputs": {"output": {"vpc": "vpc-9", "cidr": ""}}}
    for cluster in (CLUSTER, GROUP):
        session = FakeSession(error=GONE, nodes="i-1")
        with pytest.raises(UpError, match="nodes that Karpenter made for it still run: i-1"):
            without_cluster(session, (PROVIDER, place, cluster, OBJECT))
        assert "Name=vpc-id,Values=vpc-9" in session.asked[-1]
        assert without_cluster(FakeSession(error=GONE), (PROVIDER, place, cluster, OBJECT)) == {VARIABLE: "true"}


def test_nodes_of_another_cluster_of_that_name_are_not_named() -> None:
    session = FakeSession(endpoint="https://two.example")
    assert without_cluster(session, STACK) == {VARIABLE: "true"}
    assert "Name=vpc-id,Values=vpc-1" in session.asked[-1]
    without_vpc = FakeSession(endpoint="https://two.example", nodes="i-1")
    assert without_cluster(without_vpc, (PROVIDER, CLUSTER, OBJECT)) == {VARIABLE: "true"}


def test_the_state_is_read_of_the_stack_that_is_named() -> None:
    @dataclass(frozen=True)
    class Exporting(FakeSession):
        def ask(self, *command: str) -> str:
            self.asked.append(command)
            return json.dumps({"deployment": {"resources": [dict(each) for each in resources]}})

    resources: tuple[Mapping[str, Any], ...] = (OBJECT,)
    session = Exporting()
    assert session.deployment(("--stack", "production"))["resources"] == [OBJECT]
    assert session.asked == [("pulumi", "stack", "export", "--stack", "production")]


@pytest.mark.parametrize(("error", "objects"), [("", True), (GONE, False)], ids=["its cluster exists", "it is gone"])
def test_what_a_killed_up_was_making_is_taken_over_first(
    error: str, objects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Exporting(FakeSession):
        def ask(self, *command: str) -> str:
            if command[0] == "pulumi":
                return json.dumps({"deployment": {"resources": [dict(each) for each in STACK]}})
            return super().ask(*command)

    taken: list[tuple[Sequence[str], bool]] = []
    monkeypatch.setattr(destroy, "warn_of_strangers", lambda session, resources: None)
    monkeypatch.setattr(destroy, "adopt", lambda session, stack, *, objects: taken.append((stack, objects)))
    session = Exporting(endpoint="https://one.example", error=error)
    assert destroy.prepare(session, ["--stack", "s"]) == ({} if objects else {VARIABLE: "true"})
    assert taken == [(["--stack", "s"], objects)]


def test_what_others_have_in_the_vpc_is_named_before_pulumi_waits_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    own = [{"Key": "Project", "Value": "tidewater"}, {"Key": "Stack", "Value": "dev"}]
    of_eks = [{"Key": "aws:eks:cluster-name", "Value": "tidewater-dev"}]
    groups: Resources = [
        {"GroupId": "sg-1", "GroupName": "default"},
        {"GroupId": "sg-2", "GroupName": "data", "Tags": own},
        {"GroupId": "sg-3", "GroupName": "eks-cluster-sg", "Tags": of_eks},
        {"GroupId": "sg-4", "GroupName": "GuardDuty"},
    ]
    endpoints: Resources = [
        {"VpcEndpointId": "vpce-1", "ServiceName": "com.amazonaws.eu-west-1.s3", "Tags": own},
        {"VpcEndpointId": "vpce-2", "ServiceName": "com.amazonaws.eu-west-1.guardduty-data"},
    ]
    answers = {
        "describe-security-groups": ("SecurityGroups", groups),
        "describe-vpc-endpoints": ("VpcEndpoints", endpoints),
    }

    @dataclass(frozen=True)
    class Listing(FakeSession):
        def ask(self, *command: str) -> str:
            key, listed = answers[command[2]]
            return json.dumps({key: [{**each, "VpcId": "vpc-1"} for each in listed]})

    destroy.warn_of_strangers(Listing(), STACK)
    endpoint, group = capsys.readouterr().out.splitlines()
    assert endpoint.startswith("warning: the endpoint vpce-2 (com.amazonaws.eu-west-1.guardduty-data) is not the stack")
    assert endpoint.endswith("aws ec2 delete-vpc-endpoints --vpc-endpoint-ids vpce-2 --region eu-west-1 --profile lab")
    assert group.startswith("warning: the security group sg-4 (GuardDuty) is not the stack's")
    assert group.endswith("aws ec2 delete-security-group --group-id sg-4 --region eu-west-1 --profile lab")


NODE_CLASS = {"type": "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", "urn": "urn:e", "id": "workers"}
NODE_POOL = {"type": "kubernetes:karpenter.sh/v1:NodePool", "urn": "urn:o", "id": "workers"}


@dataclass(frozen=True)
class Karpenters(FakeSession):
    """Answers as the API server does, or not at all."""

    away: bool = False

    def ask(self, *command: str) -> str:
        self.asked.append(command)
        if command[0] == "pulumi":
            return "{}"
        if self.away:
            raise UpError("connection refused")
        kinds = (("NodePool", "workers"), ("NodePool", "theirs"), ("EC2NodeClass", "workers"))
        return json.dumps({"items": [{"kind": kind, "metadata": {"name": name}} for kind, name in kinds]})


def test_node_pools_of_others_are_named_before_pulumi_waits_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    session = Karpenters()
    destroy.warn_of_node_pools(session, ["--stack", "dev"], (*STACK, NODE_CLASS, NODE_POOL))
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("warning: the NodePool theirs is not the stack's")
    assert said.endswith("kubectl delete nodepool theirs")
    assert session.asked[0][-2:] == ("--stack", "dev")


def test_a_cluster_that_does_not_answer_keeps_no_destroy(capsys: pytest.CaptureFixture[str]) -> None:
    destroy.warn_of_node_pools(Karpenters(away=True), (), (*STACK, NODE_CLASS))
    assert "was not checked: connection refused" in capsys.readouterr().out


def test_a_stack_without_karpenter_asks_for_no_node_pools() -> None:
    session = Karpenters()
    destroy.warn_of_node_pools(session, (), STACK)
    assert session.asked == []
