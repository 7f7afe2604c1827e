"""A stack is removed if its cloud is gone, and kept if its cloud exists, even if other things are missing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scripts.session import Session, UpError, forget_if_lost, identifiers, only_records, release_dead_locks
from scripts.up import next_words, up

ACCOUNT = "123456789012"
PROVIDER = {
    "type": "pulumi:providers:aws",
    "urn": "urn:pulumi:local::tidewater::pulumi:providers:aws::tidewater-local",
    "id": "1",
    "inputs": {"region": "eu-west-1"},
}
REPLACEMENT = {**PROVIDER, "id": "2", "inputs": {"region": "us-east-1"}}
VPC = {
    "type": "aws:ec2/vpc:Vpc",
    "urn": "urn:pulumi:local::tidewater::aws:ec2/vpc:Vpc::network",
    "id": "vpc-1",
    "provider": f"{PROVIDER['urn']}::1",
    "outputs": {"arn": f"arn:aws:ec2:eu-west-1:{ACCOUNT}:vpc/vpc-1"},
}
ROLE = {
    "type": "aws:iam/role:Role",
    "urn": "urn:pulumi:local::tidewater::aws:iam/role:Role::node",
    "id": "node",
    "provider": f"{PROVIDER['urn']}::1",
    "outputs": {"arn": f"arn:aws:iam::{ACCOUNT}:role/node"},
}


@dataclass(frozen=True)
class FakeSession(Session):
    """Answers like pulumi and aws, and records the commands."""

    state: Path = Path("/nowhere")
    environ: Mapping[str, str] = field(default_factory=dict)
    recorded: tuple[Mapping[str, Any], ...] = ()
    vpcs: tuple[str, ...] = ()
    """Those in eu-west-1, where the stack is; the shell's region is another one."""
    account: str = ACCOUNT
    roles: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        self.asked.append(" ".join(command))
        if command[:3] == ("pulumi", "stack", "export"):
            return json.dumps({"deployment": {"resources": [*self.recorded, REPLACEMENT, PROVIDER]}})
        if "get-caller-identity" in command:
            return f"{self.account}\n"
        if "describe-vpcs" in command:
            return json.dumps(self.vpcs if ("--region", "eu-west-1") in pairwise(command) else [])
        return json.dumps(self.roles)


def forgotten(session: FakeSession) -> bool:
    return any(command.startswith("pulumi stack rm") for command in session.asked)


@pytest.mark.parametrize("recorded", [(VPC, ROLE), (ROLE,)], ids=["whole", "killed before it had a network"])
def test_a_stack_whose_cloud_is_gone_is_removed_and_its_settings_are_kept(
    recorded: tuple[Mapping[str, Any], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    session = FakeSession(recorded=recorded)
    forget_if_lost(session)
    assert "pulumi stack rm local --yes --force --preserve-config" in session.asked
    assert session.asked[-1] == "pulumi stack select --create local"
    assert "the cloud of this stack is gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(FakeSession(recorded=(VPC,), vpcs=("vpc-0", "vpc-1")), id="its cloud is there"),
        pytest.param(FakeSession(recorded=(VPC, ROLE), roles=("node",)), id="its network was deleted by hand"),
        pytest.param(FakeSession(recorded=(ROLE,), roles=("node",)), id="its cloud is there, with no network yet"),
        pytest.param(FakeSession(vpcs=("vpc-0",)), id="an empty stack"),
        pytest.param(FakeSession(recorded=({"type": "pulumi:pulumi:Stack"},)), id="nothing made yet"),
    ],
)
def test_a_stack_that_may_still_be_managed_is_kept(session: FakeSession) -> None:
    forget_if_lost(session)
    assert not forgotten(session)


RECORD = {"type": "pulumi:index:Stash", "custom": True}
NOTHING_MADE = [{"type": "pulumi:pulumi:Stack", "custom": False}, RECORD, {**PROVIDER, "custom": True}]


@pytest.mark.parametrize(
    ("deployment", "only"),
    [
        pytest.param({"resources": NOTHING_MADE}, True, id="a first update that was refused"),
        pytest.param({"resources": [*NOTHING_MADE, {**VPC, "custom": True}]}, False, id="a resource was made"),
        pytest.param({"resources": NOTHING_MADE, "pending_operations": [VPC]}, False, id="one may have been made"),
        pytest.param({"resources": NOTHING_MADE[:1]}, False, id="no record"),
        pytest.param({}, False, id="an empty stack"),
    ],
)
def test_a_state_without_a_resource_is_known_by_its_records(deployment: dict[str, Any], *, only: bool) -> None:
    assert only_records(deployment) is only


def test_a_refused_first_update_does_not_fix_the_region() -> None:
    session = FakeSession(recorded=tuple(NOTHING_MADE))
    forget_if_lost(session)
    assert forgotten(session)


def test_a_stack_of_another_account_is_kept_and_not_touched() -> None:
    session = FakeSession(recorded=(VPC, ROLE), account="210987654321")
    with pytest.raises(UpError, match=f"is about the AWS account {ACCOUNT}, and .* is 210987654321: use `pulumi up`"):
        forget_if_lost(session)
    assert not forgotten(session)


def test_make_up_starts_the_cloud_in_the_stacks_region_and_asks_it_there_for_what_the_state_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: tidewater\nconfig:\n  region: {default: us-west-2}\n")
    (tmp_path / "Pulumi.local.yaml").write_text("config:\n  tidewater:region: eu-west-1\n")
    before, started = FakeSession(), FakeSession(recorded=(VPC, ROLE), vpcs=("vpc-1",))
    opened, deployed = iter([before, started]), []
    monkeypatch.setattr("scripts.toolchain.paths.CHECKOUT", tmp_path)
    monkeypatch.setattr(Session, "open", lambda: next(opened))
    monkeypatch.setattr(FakeSession, "outputs", lambda session: {})
    monkeypatch.setattr("scripts.up.adopt", lambda session, stack: None)
    monkeypatch.setattr("scripts.up.await_training", lambda session, outputs: None)
    monkeypatch.setattr("scripts.updates.run", lambda session, operation, remedy: deployed.append(session))
    up()
    assert before.asked == [f"{sys.executable} -m localcloud start --region eu-west-1"]
    assert "aws ec2 describe-vpcs --query Vpcs[].VpcId --region eu-west-1 --output json" in started.asked
    assert not forgotten(started)
    assert deployed == [started]


@pytest.mark.parametrize(
    ("pid", "hostname", "released"),
    [
        pytest.param(None, socket.gethostname(), True, id="its process was killed"),
        pytest.param(os.getpid(), socket.gethostname(), False, id="its process is at work"),
        pytest.param(None, "elsewhere", False, id="it is another machine's"),
    ],
)
def test_the_lock_of_a_killed_update_is_released(
    pid: int | None, hostname: str, released: bool, tmp_path: Path
) -> None:
    locks = tmp_path / "pulumi" / ".pulumi" / "locks" / "organization" / "tidewater" / "local"
    locks.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        pass
    (locks / "1.json").write_text(json.dumps({"pid": pid or gone.pid, "hostname": hostname}))
    session = FakeSession(state=tmp_path)
    release_dead_locks(session)
    assert session.asked == (["pulumi cancel --yes --stack local"] if released else [])


def test_only_identifiers_of_the_given_type_are_listed() -> None:
    assert identifiers(
        [VPC, {"type": "aws:ec2/subnet:Subnet", "id": "s"}, {"type": VPC["type"]}], str(VPC["type"])
    ) == ["vpc-1"]


@pytest.mark.parametrize("following", ["kubectl logs x", ["kubectl logs x"], {"logs": "kubectl logs x"}])
def test_the_next_command_is_printed_from_any_type_of_output(following: Any) -> None:
    words = next_words(following)
    assert ". ./activate" in words
    assert "kubectl logs x" in words
