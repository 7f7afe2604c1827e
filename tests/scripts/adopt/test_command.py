"""What a killed `pulumi up` was making of EKS is taken over or removed, and nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.adopt import Action, adopt, decide
from scripts.session import Session, UpError

PROVIDER = {"type": "pulumi:providers:aws", "urn": "urn:p", "inputs": {"region": "eu-west-1"}}
GROUP = {
    "type": "aws:eks/nodeGroup:NodeGroup",
    "urn": "urn:g",
    "inputs": {"clusterName": "c", "nodeGroupName": "workers-1234567"},
    "provider": "urn:p::uuid",
}
CLUSTER = {"type": "aws:eks/cluster:Cluster", "urn": "urn:c", "inputs": {"name": "c"}, "provider": "urn:p::uuid"}
VPC = {"type": "aws:ec2/vpc:Vpc", "urn": "urn:v", "inputs": {"cidrBlock": "10.0.0.0/16"}, "provider": "urn:p::uuid"}


@dataclass(frozen=True)
class FakeSession(Session):
    """An account in which a resource has one status after the other; it records the commands."""

    state: Path = Path("/nowhere")
    environ: Mapping[str, str] = field(default_factory=dict)
    pending: tuple[Mapping[str, Any], ...] = (GROUP,)
    recorded: tuple[Mapping[str, Any], ...] = ()
    statuses: list[str] = field(default_factory=lambda: ["ACTIVE"])
    asked: list[str] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        self.asked.append(" ".join(command))
        if command[:3] == ("pulumi", "stack", "import"):
            self.written.append(json.loads(Path(command[-1]).read_text()))
            return ""
        if command[:2] == ("pulumi", "stack"):
            operations = [{"type": "creating", "resource": each} for each in self.pending]
            return json.dumps(
                {"deployment": {"resources": [PROVIDER, *self.recorded], "pending_operations": operations}}
            )
        if command[2].startswith("describe-"):
            if not self.statuses:
                raise UpError("An error occurred (ResourceNotFoundException)")
            return self.statuses.pop(0) + "\n"
        if command[2:4] == ("wait", "nodegroup-active") and self.statuses == ["CREATE_FAILED"]:
            raise UpError("Waiter NodegroupActive failed")
        return ""

    @property
    def taken(self) -> list[str]:
        """The IDs of what the state has in addition."""
        (state,) = self.written
        before = 1 + len(self.recorded)
        return [each["id"] for each in state["deployment"]["resources"][before:]]


def test_a_node_group_that_exists_is_taken_over() -> None:
    session = FakeSession()
    adopt(session, ["--stack", "s"])
    assert (
        "aws eks describe-nodegroup --cluster-name c --nodegroup-name workers-1234567 --region eu-west-1"
        in (session.asked[1])
    )
    assert session.taken == ["c:workers-1234567"]
    assert session.asked[-1] == "pulumi refresh --yes --skip-preview --stack s --target urn:g"


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
    assert any(command.startswith("aws eks wait nodegroup-active --cluster-name c") for command in session.asked)
    assert session.taken == ["c:workers-1234567"]


def test_one_that_fails_meanwhile_is_removed() -> None:
    session = FakeSession(statuses=["CREATING", "CREATE_FAILED"])
    adopt(session, [])
    assert any(command.startswith("aws eks delete-nodegroup --cluster-name c") for command in session.asked)
    assert session.taken == []


def test_one_in_whose_place_a_later_up_has_made_another_is_removed() -> None:
    session = FakeSession(recorded=({**GROUP, "id": "c:workers-7654321"},))
    adopt(session, [])
    assert any("delete-nodegroup" in command and "workers-1234567" in command for command in session.asked)
    assert any("wait nodegroup-deleted" in command for command in session.asked)


def test_what_was_never_made_is_forgotten() -> None:
    session = FakeSession(statuses=[])
    adopt(session, [])
    assert session.taken == []


def test_a_resource_without_a_name_of_its_own_is_left_to_the_person(capsys: pytest.CaptureFixture[str]) -> None:
    session = FakeSession(pending=(CLUSTER, VPC))
    adopt(session, [])
    assert session.taken == ["c"]
    assert "urn:v" in capsys.readouterr().out


@pytest.mark.parametrize("pending", [(), (VPC,)], ids=["nothing was interrupted", "nothing of EKS was"])
def test_nothing_is_changed_without_an_interrupted_creation_of_eks(pending: tuple[Mapping[str, Any], ...]) -> None:
    session = FakeSession(pending=pending)
    adopt(session, [])
    assert session.asked == ["pulumi stack export"]


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
    ("status", "recorded", "action"),
    [
        (None, None, Action.FORGET),
        (None, "other", Action.FORGET),
        ("ACTIVE", None, Action.ADOPT),
        ("DEGRADED", None, Action.ADOPT),
        ("CREATE_FAILED", None, Action.REMOVE),
        ("ACTIVE", "other", Action.REMOVE),
        ("ACTIVE", "own", Action.FORGET),
        ("CREATE_FAILED", "own", Action.FORGET),
    ],
)
def test_every_case_has_one_decision(status: str | None, recorded: str | None, action: Action) -> None:
    assert decide(status, "own", recorded) is action
