"""What AWS has and the state lacks, with the real engine and the AWS command line.

All tests use one stack in one account. Each leaves it with one node group, which the state has; the last one destroys
it, with all that was taken over.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packages.localcloud.tests.aws.account import OPERATOR, clients, serve_account
from packages.localcloud.tests.aws.fakes import REGION
from packages.localcloud.tests.standins.engine_stack import EngineStack
from scripts.adopt import adopt
from scripts.adopt.kinds import KINDS
from scripts.session import Session

pytestmark = pytest.mark.e2e

PROGRAM = """
import json, pulumi_aws as aws
def role(name, service):
    trust = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["sts:AssumeRole", "sts:TagSession"], "Principal": {"Service": [service]}}]}
    return aws.iam.Role(name, assume_role_policy=json.dumps(trust))
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
subnets = [aws.ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=f"10.0.{number}.0/24", availability_zone=f"us-west-2{zone}")
    for number, zone in enumerate("ab")]
ids = [each.id for each in subnets]
cluster = aws.eks.Cluster("c", name="c", role_arn=role("control", "eks.amazonaws.com").arn,
    vpc_config={"subnet_ids": ids}, access_config={"authentication_mode": "API"})
node = role("node", "ec2.amazonaws.com")
aws.eks.NodeGroup("workers", cluster_name=cluster.name, node_role_arn=node.arn,
    subnet_ids=ids, scaling_config={"desired_size": 1, "min_size": 1, "max_size": 2})
"""
MORE = """
def tags(name):
    return {"Name": name, "Project": "t", "Stack": "dev"}
aws.eks.Addon("proxy", cluster_name=cluster.name, addon_name="kube-proxy")
aws.eks.AccessEntry("admin", cluster_name=cluster.name, principal_arn=role("admin", "ec2.amazonaws.com").arn)
aws.eks.PodIdentityAssociation("trainer", cluster_name=cluster.name, namespace="training", service_account="trainer",
    role_arn=role("pods", "pods.eks.amazonaws.com").arn)
gateway = aws.ec2.InternetGateway("internet", vpc_id=vpc.id)
table = aws.ec2.RouteTable("table", vpc_id=vpc.id, tags=tags("table"))
aws.ec2.Route("out", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.id)
aws.ec2.RouteTableAssociation("a", route_table_id=table.id, subnet_id=ids[0])
aws.ec2.NatGateway("nat", allocation_id=aws.ec2.Eip("nat", domain="vpc").id, subnet_id=ids[0])
aws.ec2.VpcEndpoint("s3", vpc_id=vpc.id, service_name="com.amazonaws.us-west-2.s3", route_table_ids=[table.id])
group = aws.ec2.SecurityGroup("data", vpc_id=vpc.id, description="NFS", tags=tags("data"))
aws.vpc.SecurityGroupIngressRule("nfs", description="NFS from the VPC", security_group_id=group.id, ip_protocol="tcp",
    from_port=2049, to_port=2049, cidr_ipv4="10.0.0.0/16")
aws.efs.MountTarget("a", file_system_id=aws.efs.FileSystem("data").id, subnet_id=ids[0], security_groups=[group.id])
key = aws.kms.Key("key")
aws.kms.Alias("key", name="alias/t-dev", target_key_id=key.id)
log = aws.cloudwatch.LogGroup("log", name="/aws/eks/c/cluster", tags=tags("log"))
aws.ec2.FlowLog("flows", vpc_id=vpc.id, traffic_type="ALL", log_destination=log.arn, tags=tags("flows"),
    iam_role_arn=role("flows", "vpc-flow-logs.amazonaws.com").arn)
"""
DRAWN = """
trust = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": ["ec2.amazonaws.com"]}}]}
aws.iam.Role("drawn", assume_role_policy=json.dumps(trust), path="/stack/")
aws.cloudwatch.EventRule("drawn", event_pattern=json.dumps({"source": ["aws.ec2"]}))
aws.s3.Bucket("drawn", force_destroy=True)
aws.ec2.LaunchTemplate("drawn", description="of nodes")
aws.ec2.PlacementGroup("drawn", strategy="cluster")
"""
GROUP = "aws:eks/nodeGroup:NodeGroup"
PENDING = {type for type, kind in KINDS.items() if kind.pending}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineStack]:
    """A stack with a cluster and a node group, in an account of its own."""
    for endpoint in serve_account():
        account = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,  # the name that the AWS CLI reads
            "AWS_ACCESS_KEY_ID": OPERATOR.access_key,
            "AWS_SECRET_ACCESS_KEY": OPERATOR.secret_key,
        }
        made = EngineStack(tmp_path_factory.mktemp("stack"), account)
        made.environment["PATH"] += f":{Path(sys.executable).parent}"  # for the command aws
        made.program(PROGRAM)
        made.up()
        yield made


@pytest.fixture
def session(stack: EngineStack, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("scripts.session.paths.CHECKOUT", stack.folder)
    return Session(stack.folder, {**os.environ, **stack.environment})


@pytest.fixture(scope="module")
def eks(stack: EngineStack) -> Any:
    """EKS, as the tests look at it."""
    return clients(stack.environment["AWS_ENDPOINT_URL"], OPERATOR.access_key, OPERATOR.secret_key)("eks")


def exported(stack: EngineStack) -> Any:
    return json.loads(stack.pulumi("stack", "export"))


def group_names(eks: Any) -> list[str]:
    listed: list[str] = eks.list_nodegroups(clusterName="c")["nodegroups"]
    return listed


def recorded_group(stack: EngineStack) -> Any:
    """Return the one node group that the state has."""
    (group,) = [each["outputs"] for each in stack.resources() if each["type"] == GROUP]
    return group


def interrupt_the_creation(stack: EngineStack, name: str = "workers") -> list[str]:
    """Put the state back to when the resources of this name were being created; return their IDs."""
    # In the file, since `pulumi stack import` drops pending operations.
    file = stack.folder / ".pulumi/stacks/t/dev.json"
    state = json.loads(file.read_text())
    latest = state["checkpoint"]["latest"]
    pending = [each for each in latest["resources"] if each["urn"].endswith(f"::{name}")]
    latest["resources"] = [each for each in latest["resources"] if each not in pending]
    ids = [each.pop("id") for each in pending]
    for each in pending:
        del each["outputs"]
    latest["pending_operations"] = [{"resource": each, "type": "creating"} for each in pending]
    file.write_text(json.dumps(state))
    return ids


def forget(stack: EngineStack, *types: str) -> list[str]:
    """Remove the resources of these types from the state; return their URNs."""
    state = exported(stack)
    resources = state["deployment"]["resources"]
    gone = [each["urn"] for each in resources if each["type"] in types]
    state["deployment"]["resources"] = [each for each in resources if each["urn"] not in gone]
    file = stack.folder / "state.json"
    file.write_text(json.dumps(state))
    stack.pulumi("stack", "import", "--file", str(file))
    return gone


def test_it_is_taken_over_and_the_next_up_makes_no_other(stack: EngineStack, session: Session, eks: Any) -> None:
    (name,) = group_names(eks)
    assert interrupt_the_creation(stack) == [f"c:{name}"]
    adopt(session, ["--stack", "dev"])
    assert not exported(stack)["deployment"].get("pending_operations")
    said = stack.up()
    assert "unchanged" in said
    assert "created" not in said
    assert "pending operations" not in said
    assert group_names(eks) == [name]


def test_it_is_removed_if_an_up_has_made_another_meanwhile(stack: EngineStack, session: Session, eks: Any) -> None:
    (name,) = group_names(eks)
    interrupt_the_creation(stack)
    assert "+ 1 created" in stack.up()
    assert len(group_names(eks)) == 2
    adopt(session, ["--stack", "dev"])
    (left,) = group_names(eks)
    assert left != name
    assert "unchanged" in stack.up()


def test_a_second_node_group_of_an_up_without_an_answer_is_removed_although_it_was_run_again(
    stack: EngineStack, session: Session, eks: Any
) -> None:
    forget(stack, GROUP)
    stack.up()
    assert len(group_names(eks)) == 2
    adopt(session, ["--stack", "dev"], unanswered=True)
    (left,) = group_names(eks)
    assert left == recorded_group(stack)["nodeGroupName"]


def test_a_node_group_that_a_person_has_made_stays(stack: EngineStack, session: Session, eks: Any) -> None:
    group = recorded_group(stack)
    own = {"clusterName": "c", "nodegroupName": "workers-large"}
    eks.create_nodegroup(**own, nodeRole=group["nodeRoleArn"], subnets=group["subnetIds"])
    adopt(session, ["--stack", "dev"], unanswered=True)
    assert own["nodegroupName"] in group_names(eks)
    eks.delete_nodegroup(**own)


def test_what_a_killed_up_was_making_is_taken_over_under_the_name_that_pulumi_had_drawn(
    stack: EngineStack, session: Session
) -> None:
    stack.program(PROGRAM + DRAWN)
    stack.up()
    ids = interrupt_the_creation(stack, "drawn")
    adopt(session, ["--stack", "dev"])
    found = {each["id"]: each["type"] for each in stack.resources() if each["urn"].endswith("::drawn")}
    assert set(found) == set(ids)
    assert set(found.values()) == PENDING, "not every kind is in the program"
    stack.pulumi("preview", "--expect-no-changes")


def test_what_was_made_without_an_answer_is_taken_over_and_the_next_up_changes_nothing(
    stack: EngineStack, session: Session, eks: Any
) -> None:
    stack.program(PROGRAM + MORE)
    stack.up()
    kinds = set(KINDS) - PENDING
    names, gone = group_names(eks), forget(stack, *kinds)
    assert {urn.split("::")[2].split("$")[-1] for urn in gone} == kinds, "not every kind is in the program"
    adopt(session, ["--stack", "dev"], unanswered=True)
    assert set(gone) <= {each["urn"] for each in stack.resources()}
    stack.pulumi("preview", "--expect-no-changes")
    assert group_names(eks) == names
    stack.pulumi("destroy", "--yes", "--skip-preview")
