"""The command lists and deletes nothing by itself; it asks before it deletes, and it keeps off a stack that exists."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from scripts.session import read_config
from scripts.sweep.__main__ import agreed, main
from scripts.sweep.account import living, look
from scripts.sweep.model import Clients, Leftover, Stack
from tests.scripts.sweep.conftest import Lacking
from tests.scripts.sweep.leftovers import leave_everything, make_bucket, make_strangers

GONE = Stack("tidewater", "gone")


def test_nothing_is_deleted_until_it_is_asked_for_and_agreed_to(
    clients: Clients, lacking: Lacking, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = leave_everything(clients, lacking, GONE.name)
    before = look(clients, GONE)
    assert main(["gone"]) == 1
    said = capsys.readouterr().out
    assert "account 123456789012, region us-west-2, stack gone" in said
    assert all(id_ in said for id_ in left.values())
    assert "Nothing was deleted." in said
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main(["gone", "--delete"]) == 1
    assert look(clients, GONE) == before
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert main(["gone", "--delete"]) == 0
    assert "\nNothing is left.\n" in capsys.readouterr().out
    assert look(clients, GONE).things == ()


@pytest.mark.parametrize("answer", ["no\n", "\n", ""], ids=["no", "only Enter", "no terminal"])
def test_only_yes_is_a_yes(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert not agreed([Leftover("volume", "vol-1")])


def test_a_clean_account_is_success(clients: Clients, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gone"]) == 0
    assert capsys.readouterr().out.endswith("\nNothing is left.\n")


def test_what_others_have_in_the_stacks_vpc_is_given_as_what_keeps_it(
    clients: Clients, lacking: Lacking, capsys: pytest.CaptureFixture[str]
) -> None:
    vpc, subnet, group, endpoint = make_strangers(clients("ec2"), GONE)
    topic = clients("sns").create_topic(Name="t", Tags=[{"Key": key, "Value": of} for key, of in GONE.tags.items()])
    assert main(["gone"]) == 1
    said = capsys.readouterr().out.splitlines()[1:]
    assert said == [
        "In the stack's VPC, and not the stack's. AWS deletes nothing that they keep. Delete them in this order, then "
        "run `pulumi destroy`:",
        f"  endpoint {endpoint} (com.amazonaws.us-west-2.guardduty-data) keeps {vpc}, {subnet}",
        f"  security group {group} (GuardDutyManagedSecurityGroup) keeps {vpc}",
        "Also has the stack's tags, and is left alone:",
        f"  {topic['TopicArn']}",
        *said[-2:],
    ]
    make_bucket(clients("s3"), f"{GONE.name}-1a2b3c4")
    assert main(["gone", "--yes"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "Deleted the one thing above." in said
    assert said[said.index("Deleted the one thing above.") + 1].startswith("In the stack's VPC, and not the stack's.")


def test_a_stack_that_exists_is_left_alone(
    clients: Clients, lacking: Lacking, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bucket(clients("s3"), f"{GONE.name}-1a2b3c4")
    subnets = [each["SubnetId"] for each in clients("ec2").describe_subnets()["Subnets"][:2]]
    role = "arn:aws:iam::123456789012:role/eks"
    clients("eks").create_cluster(name=GONE.name, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    (before,) = look(clients, GONE).things
    assert main(["gone", "--yes"]) == 1
    assert "run `pulumi destroy --stack gone` first" in capsys.readouterr().out
    assert look(clients, GONE).things == (before,)


def test_a_stack_with_nodes_on_a_cluster_of_others_is_left_alone(
    clients: Clients, lacking: Lacking, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bucket(clients("s3"), f"{GONE.name}-1a2b3c4")
    eks, subnets = clients("eks"), [each["SubnetId"] for each in clients("ec2").describe_subnets()["Subnets"][:2]]
    role = "arn:aws:iam::123456789012:role/eks"
    eks.create_cluster(name="platform", roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    group = {"clusterName": "platform", "nodeRole": role, "subnets": subnets}
    eks.create_nodegroup(**group, nodegroupName=f"{GONE.name}-of-others")
    assert living(clients, GONE) == ""
    eks.create_nodegroup(**group, nodegroupName=f"{GONE.name}-system-1a2b3c4", tags=GONE.tags)
    assert main(["gone", "--yes"]) == 1
    said = capsys.readouterr().out
    assert (
        f"the cluster platform has the node group {GONE.name}-system-1a2b3c4; run `pulumi destroy --stack gone`" in said
    )
    assert look(clients, GONE).things


def test_yes_asks_no_question_and_a_failed_deletion_is_reported_and_is_no_success(
    clients: Clients, lacking: Lacking, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = leave_everything(clients, lacking, GONE.name)
    monkeypatch.setattr("scripts.sweep.storage.without_denial", lambda policy, action: policy)
    assert main(["gone", "--yes"]) == 1
    said = capsys.readouterr()
    assert f"not deleted: recovery point {left['recovery point']}: " in said.err
    assert f"Still left: {left['recovery point']}\n" in said.out


def test_the_stacks_own_region_and_profile_are_taken(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text(
        "name: p\nconfig:\n  region: {default: us-west-2}\n  profile: {default: ''}\n  plain: {type: string}\n"
    )
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  p:region: eu-west-1\n  other:region: x\n")
    (tmp_path / "Pulumi.new.yaml").write_text("")
    assert read_config(tmp_path, "dev") == ("p", {"region": "eu-west-1", "profile": "", "plain": None})
    assert read_config(tmp_path, "new")[1]["region"] == "us-west-2"
    assert read_config(tmp_path, "never-configured")[1]["region"] == "us-west-2"
