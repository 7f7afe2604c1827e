"""What AWS has and the state lacks is taken over or removed, and nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.adopt.command import Action, adopt, decide
from scripts.adopt.kinds import UNKNOWN
from scripts.session import Session, UpError

PROVIDER = {"type": "pulumi:providers:aws", "urn": "urn::p", "inputs": {"region": "eu-west-1"}}


def resource(type: str, name: str, /, **inputs: Any) -> dict[str, Any]:
    return {"type": type, "urn": f"urn::{name}", "inputs": inputs, "provider": "urn::p::uuid"}


GROUP = resource("aws:eks/nodeGroup:NodeGroup", "workers", clusterName="c", nodeGroupName="workers-1234567")
CLUSTER = resource("aws:eks/cluster:Cluster", "c", name="c", vpcConfig={"subnetIds": ["subnet-1"]})
VPC = resource("aws:ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16")
TARGET = resource("aws:efs/mountTarget:MountTarget", "data", fileSystemId="fs-1", subnetId="subnet-1")

NFS = resource("aws:ec2/securityGroup:SecurityGroup", "nfs", vpcId="vpc-1", tags={"Name": "nfs"})
TARGET_WITH_NFS = {**TARGET, "inputs": {**TARGET["inputs"], "securityGroups": ["sg-1"]}, "dependencies": ["urn::nfs"]}


@dataclass(frozen=True)
class FakeSession(Session):
    """An account in which every listing has the same, of one status after the other; it records the commands."""

    state: Path = Path("/nowhere")
    environ: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[Mapping[str, Any], ...] = (GROUP,)
    recorded: tuple[Mapping[str, Any], ...] = ()
    foreseen: tuple[Mapping[str, Any], ...] = ()
    listed: tuple[str, ...] | None = ("workers-1234567",)
    """None: AWS doesn't know what they would be in."""
    statuses: list[str] = field(default_factory=lambda: ["ACTIVE"])
    asked: list[str] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        self.asked.append(" ".join(command))
        if command[0] == "aws":
            return self._answer(command)
        if command[:3] == ("pulumi", "stack", "import"):
            self.written.append(json.loads(Path(command[-1]).read_text()))
            return ""
        if command[:2] == ("pulumi", "preview"):
            return json.dumps({"steps": [{"op": "create", "newState": each} for each in self._next()]})
        if self.written:
            return json.dumps(self.written[-1])
        operations = [{"type": "creating", "resource": each} for each in self.pending]
        return json.dumps({"deployment": {"resources": [PROVIDER, *self.recorded], "pending_operations": operations}})

    def _next(self) -> list[Mapping[str, Any]]:
        """Return what the next `up` would make, with the inputs that a preview knows."""
        recorded = {each["urn"] for state in self.written for each in state["deployment"]["resources"]}
        missing = [each for each in self.foreseen if each["urn"] not in recorded]
        unknown = {each["urn"] for each in missing}
        return [each if not unknown & {*each.get("dependencies", ())} else self._hidden(each) for each in missing]

    @staticmethod
    def _hidden(resource: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return it as while what it needs has no ID yet."""
        return {**resource, "inputs": {**resource["inputs"], "securityGroups": UNKNOWN}}

    def _answer(self, command: tuple[str, ...]) -> str:
        if command[-2:] != ("--region", "eu-west-1"):
            raise UpError("not the region of the stack")
        if "--query" in command and command[command.index("--query") + 1].endswith(".status"):
            if not self.statuses:
                raise UpError("An error occurred (ResourceNotFoundException)")
            return self.statuses.pop(0) + "\n"
        if "--query" in command:
            if self.listed is None:
                raise UpError("An error occurred (FileSystemNotFound)")
            return json.dumps(self.listed)
        if command[2:4] == ("wait", "nodegroup-active") and self.statuses == ["CREATE_FAILED"]:
            raise UpError("Waiter NodegroupActive failed")
        return ""

    @property
    def taken(self) -> list[str]:
        """The IDs of what the state has in addition."""
        before = 1 + len(self.recorded)
        return [each["id"] for state in self.written for each in state["deployment"]["resources"][before:]]


def commands(session: FakeSession, *words: str) -> list[str]:
    return [command for command in session.asked if all(word in command for word in words)]


def test_a_node_group_that_exists_is_taken_over() -> None:
    session = FakeSession()
    adopt(session, ["--stack", "s"])
    assert commands(session, "aws eks describe-nodegroup", "--cluster-name c --nodegroup-name workers-1234567")
    assert session.taken == ["c:workers-1234567"]
    assert session.asked[-1] == "pulumi refresh --yes --skip-preview --stack s --target urn::workers"


def test_it_is_written_with_its_inputs_after_what_it_needs() -> None:
    session = FakeSession()
    adopt(session, [])
    assert session.written[0]["deployment"]["resources"] == [
        PROVIDER,
        {**GROUP, "id": "c:workers-1234567", "outputs": {}},
    ]


def test_one_that_is_still_made_is_waited_for() -> None:
    session = FakeSession(statuses=["CREATING", "ACTIVE"])
    adopt(session, [])
    assert commands(session, "aws eks wait nodegroup-active --cluster-name c")
    assert session.taken == ["c:workers-1234567"]


def test_one_that_fails_meanwhile_is_removed() -> None:
    session = FakeSession(statuses=["CREATING", "CREATE_FAILED"])
    adopt(session, [])
    assert commands(session, "aws eks delete-nodegroup --cluster-name c")
    assert session.taken == []


def test_one_in_whose_place_a_later_up_has_made_another_is_removed() -> None:
    session = FakeSession(
        recorded=({**GROUP, "id": "c:workers-7654321"},), listed=("workers-1234567", "workers-7654321")
    )
    adopt(session, [])
    assert commands(session, "delete-nodegroup", "workers-1234567")
    assert commands(session, "wait nodegroup-deleted", "workers-1234567")
    assert not commands(session, "workers-7654321")


def test_of_two_one_is_taken_over_and_the_other_removed() -> None:
    session = FakeSession(listed=("workers-1234567", "workers-7654321"), statuses=["ACTIVE", "ACTIVE"])
    adopt(session, [])
    assert session.taken == ["c:workers-1234567"]
    assert commands(session, "delete-nodegroup", "workers-7654321")


def test_a_node_group_with_a_name_that_pulumi_does_not_choose_stays() -> None:
    session = FakeSession(listed=("workers-large", "other-1234567"))
    adopt(session, [])
    assert (session.taken, commands(session, "delete")) == ([], [])


@pytest.mark.parametrize("listed", [None, ()], ids=["not even what it would be in", "nothing in its place"])
def test_what_was_never_made_is_forgotten(listed: tuple[str, ...] | None) -> None:
    session = FakeSession(listed=listed)
    adopt(session, [])
    assert session.taken == []
    assert session.written, "its creation is still pending"


def test_a_resource_without_a_place_of_its_own_is_left_to_the_person(capsys: pytest.CaptureFixture[str]) -> None:
    session = FakeSession(pending=(CLUSTER, VPC), listed=("c",))
    adopt(session, [])
    assert session.taken == ["c"]
    said = capsys.readouterr().out
    assert "urn::vpc" in said
    assert "python -m scripts.sweep" in said


@pytest.mark.parametrize(
    ("metadata", "remedy"),
    [
        pytest.param({"name": "digits"}, "the next `pulumi up` takes the object over", id="named by the program"),
        pytest.param({}, "the next `pulumi up` takes the object over", id="a list of objects"),
        pytest.param(
            {"name": "digits-3f2a91bc", "namespace": "training", "annotations": {"pulumi.com/autonamed": "true"}},
            "`kubectl delete Job digits-3f2a91bc --namespace training`",
            id="named by Pulumi",
        ),
    ],
)
def test_an_object_of_kubernetes_is_not_looked_for_in_aws(
    metadata: Mapping[str, Any], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = resource("kubernetes:batch/v1:Job", "digits", metadata=metadata)
    session = FakeSession(pending=(job,))
    adopt(session, [])
    said = capsys.readouterr().out
    assert "urn::digits" in said
    assert remedy in said
    assert not {"AWS", "sweep", "import"} & set(said.replace("`", " ").replace(".", " ").split())
    assert session.asked == ["pulumi stack export"]


def test_before_a_destroy_the_objects_that_were_made_are_taken_over_and_the_refresh_drops_the_others() -> None:
    spaced = resource("kubernetes:apps/v1:StatefulSet", "etcd", metadata={"name": "etcd", "namespace": "training"})
    unspaced = resource("kubernetes:core/v1:Namespace", "training", metadata={"name": "training"})
    replacing = resource("kubernetes:batch/v1:Job", "digits", metadata={"name": "digits"})
    session = FakeSession(pending=(spaced, unspaced, replacing), recorded=({**replacing, "id": "digits"},))
    adopt(session, ["--stack", "s"], objects=True)
    assert session.taken == ["training/etcd", "training"]
    targets = "--target urn::etcd --target urn::training"
    assert session.asked[-1] == f"pulumi refresh --yes --skip-preview --stack s {targets}"


@pytest.mark.parametrize(("upserts", "taken"), [("false", ["training"]), ("true", [])], ids=["others'", "the stack's"])
def test_on_a_cluster_of_others_an_up_does_not_take_objects_over_by_itself(upserts: str, taken: list[str]) -> None:
    provider = {"type": "pulumi:providers:kubernetes", "urn": "urn::k", "inputs": {"upsertExistingObjects": upserts}}
    made = resource("kubernetes:core/v1:Namespace", "training", metadata={"name": "training"})
    session = FakeSession(pending=({**made, "provider": "urn::k::uuid"},), recorded=(provider,))
    adopt(session, [])
    assert (session.taken if session.written else []) == taken


@pytest.mark.parametrize("pending", [(), (VPC,)], ids=["nothing was interrupted", "nothing that has a place"])
def test_nothing_is_changed_without_an_interrupted_creation(pending: tuple[Mapping[str, Any], ...]) -> None:
    session = FakeSession(pending=pending)
    adopt(session, [])
    assert session.asked == ["pulumi stack export"]


ROLE = resource("aws:iam/role:Role", "nodes", name="nodes-1234567")


def test_what_has_the_name_that_pulumi_had_drawn_is_taken_over() -> None:
    session = FakeSession(pending=(ROLE,), listed=("nodes-1234567",))
    adopt(session, [])
    assert commands(session, "aws iam get-role --role-name nodes-1234567")
    assert session.taken == ["nodes-1234567"]


def test_nothing_is_looked_for_under_a_name_that_pulumi_has_only_just_drawn() -> None:
    session = FakeSession(pending=(), foreseen=(ROLE,), listed=("nodes-1234567",))
    adopt(session, [], unanswered=True)
    assert (session.taken, commands(session, "aws ")) == ([], [])


def test_what_the_next_up_would_make_and_aws_has_is_taken_over() -> None:
    session = FakeSession(pending=(), foreseen=(VPC, TARGET), listed=("fsmt-1",))
    adopt(session, [], unanswered=True)
    assert session.taken == ["fsmt-1"]
    assert session.asked[-1] == "pulumi refresh --yes --skip-preview --target urn::data"


def test_what_needs_something_that_is_taken_over_follows_with_all_of_its_inputs() -> None:
    session = FakeSession(pending=(), foreseen=(NFS, TARGET_WITH_NFS), listed=("found-1",))
    adopt(session, [], unanswered=True)
    assert session.written[-1]["deployment"]["resources"][1:] == [
        {**NFS, "id": "found-1", "outputs": {}},
        {**TARGET_WITH_NFS, "id": "found-1", "outputs": {}},
    ]


def test_what_a_refresh_does_not_find_is_taken_over_once_only() -> None:
    @dataclass(frozen=True)
    class Lost(FakeSession):
        def ask(self, *command: str) -> str:
            answer = super().ask(*command)
            if command[:2] == ("pulumi", "refresh"):
                self.written[-1]["deployment"]["resources"][1:] = []
            return answer

    session = Lost(pending=(), foreseen=(NFS, TARGET_WITH_NFS), listed=("sg-1",))
    adopt(session, [], unanswered=True)
    assert len(commands(session, "pulumi preview")) == 2


def test_what_is_in_something_that_is_still_to_be_made_is_not_looked_for() -> None:
    later = {**TARGET, "dependencies": ["urn::subnet"]}
    session = FakeSession(pending=(), foreseen=(later,), listed=("fsmt-1",))
    adopt(session, [], unanswered=True)
    assert (session.taken, commands(session, "aws ")) == ([], [])


def test_nothing_is_written_if_aws_has_nothing_more() -> None:
    session = FakeSession(pending=(), foreseen=(TARGET,), listed=())
    adopt(session, [], unanswered=True)
    assert session.written == []


def test_an_answer_that_is_an_error_changes_nothing() -> None:
    @dataclass(frozen=True)
    class Denied(FakeSession):
        def ask(self, *command: str) -> str:
            if command[0] == "aws":
                raise UpError("An error occurred (AccessDeniedException)")
            return super().ask(*command)

    session = Denied()
    with pytest.raises(UpError, match="AccessDenied"):
        adopt(session, [])
    assert session.asked == ["pulumi stack export"]


@pytest.mark.parametrize(
    ("status", "has_status", "recorded", "action"),
    [
        ("ACTIVE", True, False, Action.ADOPT),
        ("DEGRADED", True, False, Action.ADOPT),
        ("CREATE_FAILED", True, False, Action.REMOVE),
        ("ACTIVE", True, True, Action.REMOVE),
        ("", False, False, Action.ADOPT),
        ("", False, True, Action.LEAVE),
    ],
)
def test_every_case_has_one_decision(status: str, has_status: bool, recorded: bool, action: Action) -> None:
    assert decide(status, has_status, recorded) is action
