"""A node group whose creation was interrupted, with the real engine and the AWS command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcloud.tests.aws.account import serve_account
from localcloud.tests.standins.engine_stack import EngineStack
from scripts.adopt import adopt
from scripts.session import Session

pytestmark = pytest.mark.e2e

PROGRAM = """
import json, pulumi_aws as aws
def role(name, service):
    trust = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["sts:AssumeRole"], "Principal": {"Service": [service]}}]}
    return aws.iam.Role(name, assume_role_policy=json.dumps(trust))
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
subnets = [aws.ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=f"10.0.{number}.0/24", availability_zone=f"us-west-2{zone}")
    for number, zone in enumerate("ab")]
ids = [each.id for each in subnets]
cluster = aws.eks.Cluster("c", name="c", role_arn=role("control", "eks.amazonaws.com").arn,
    vpc_config={"subnet_ids": ids}, access_config={"authentication_mode": "API"})
aws.eks.NodeGroup("workers", cluster_name=cluster.name, node_role_arn=role("node", "ec2.amazonaws.com").arn,
    subnet_ids=ids, scaling_config={"desired_size": 1, "min_size": 1, "max_size": 2})
"""
GROUP = "aws:eks/nodeGroup:NodeGroup"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[EngineStack]:
    """A stack with a cluster and a node group, in an account of its own."""
    for endpoint in serve_account():
        account = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-west-2",
            "AWS_DEFAULT_REGION": "us-west-2",  # the name that the AWS CLI reads
            "AWS_ACCESS_KEY_ID": "localcloud",
            "AWS_SECRET_ACCESS_KEY": "localcloud",
        }
        made = EngineStack(tmp_path, account)
        made.environment["PATH"] += f":{Path(sys.executable).parent}"  # for the command aws
        made.program(PROGRAM)
        made.up()
        yield made


@pytest.fixture
def session(stack: EngineStack, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("scripts.session.paths.CHECKOUT", stack.folder)
    return Session(stack.folder, {**os.environ, **stack.environment})


def exported(stack: EngineStack) -> Any:
    return json.loads(stack.pulumi("stack", "export"))


def group_names(session: Session) -> list[str]:
    listed: list[str] = json.loads(session.ask("aws", "eks", "list-nodegroups", "--cluster-name", "c"))["nodegroups"]
    return listed


def interrupt_the_creation(stack: EngineStack) -> str:
    """Put the state back to when the node group was being created; return the group's name."""
    # In the file, since `pulumi stack import` drops pending operations.
    file = stack.folder / ".pulumi/stacks/t/dev.json"
    state = json.loads(file.read_text())
    latest = state["checkpoint"]["latest"]
    resources = latest["resources"]
    group = next(each for each in resources if each["type"] == GROUP)
    resources.remove(group)
    name: str = group["outputs"]["nodeGroupName"]
    assert group["inputs"]["nodeGroupName"] == name  # Pulumi chooses it before it asks the provider
    del group["id"], group["outputs"]
    latest["pending_operations"] = [{"resource": group, "type": "creating"}]
    file.write_text(json.dumps(state))
    return name


def test_it_is_taken_over_and_the_next_up_makes_no_other(stack: EngineStack, session: Session) -> None:
    name = interrupt_the_creation(stack)
    adopt(session, ["--stack", "dev"])
    assert not exported(stack)["deployment"].get("pending_operations")
    said = stack.up()
    assert "unchanged" in said
    assert "created" not in said
    assert "pending operations" not in said
    assert group_names(session) == [name]
    stack.pulumi("destroy", "--yes", "--skip-preview")


def test_it_is_removed_if_an_up_has_made_another_meanwhile(stack: EngineStack, session: Session) -> None:
    name = interrupt_the_creation(stack)
    assert "+ 1 created" in stack.up()
    assert len(group_names(session)) == 2
    adopt(session, ["--stack", "dev"])
    (left,) = group_names(session)
    assert left != name
    assert "unchanged" in stack.up()
    stack.pulumi("destroy", "--yes", "--skip-preview")
