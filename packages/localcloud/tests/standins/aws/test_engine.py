"""A small stack from creation to deletion, with the real engine and the unmodified SDK. Each test leaves it empty."""

from __future__ import annotations

import time

import pytest
from localcloud.aws.compute import shortages
from localcloud.aws.eks import reconcile
from localcloud.standins.aws.clients import Clients
from localcloud.standins.aws.entry import absent_as_none
from moto.ec2.models import ec2_backends

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.standins.engine_stack import EngineStack

pytestmark = pytest.mark.e2e

PROGRAM = """
import pulumi, pulumi_aws as aws
config = pulumi.Config()
older = pulumi.ResourceOptions(version="7.1.0")  # as in the state of an older SDK
vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", tags={"Name": config.get("name") or "net"})
subnet = aws.ec2.Subnet("sub", vpc_id=vpc.id, cidr_block=config.get("cidr") or "10.0.1.0/24", opts=older)
bucket = aws.s3.Bucket("data", force_destroy=True, tags={"token": config.require_secret("token")})
code = aws.s3.BucketObjectv2("code", bucket=bucket.id, source=pulumi.FileAsset("code.txt"))
pulumi.export("vpc", vpc.id)
pulumi.export("subnet", subnet.id)
pulumi.export("bucket", bucket.bucket)
pulumi.export("region", aws.get_region().region)
"""

HELD = """
import pathlib, time
def hold(vpc_id):
    pathlib.Path("made").touch()
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> EngineStack:
    account = {"AWS_ACCESS_KEY_ID": "localcloud", "AWS_SECRET_ACCESS_KEY": "localcloud"}
    folder = tmp_path_factory.mktemp("stack")
    stack = EngineStack(folder, {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-west-2", **account})
    (folder / "code.txt").write_text("one")
    stack.pulumi("config", "set", "--secret", "token", "hush")
    return stack


def test_a_stack_is_created_updated_refreshed_and_destroyed(stack: EngineStack, clients: Clients) -> None:
    ec2, s3 = clients.get("ec2"), clients.get("s3")
    stack.program(PROGRAM)
    previewed, updated = stack.pulumi("preview"), stack.up()
    assert "+ 5 to create" in previewed
    assert "+ 5 created" in updated
    assert "warning" not in previewed + updated
    made = stack.outputs()
    assert made["region"] == "us-west-2"
    assert "hush" not in stack.state()
    assert "5 unchanged" in stack.up()

    stack.pulumi("config", "set", "name", "other")
    (stack.folder / "code.txt").write_text("two")
    assert "~ 2 updated" in stack.up()
    assert s3.get_object(Bucket=made["bucket"], Key="code")["Body"].read() == b"two"

    stack.pulumi("config", "set", "cidr", "10.0.2.0/24")
    assert "+-1 replaced" in stack.up()

    ec2.create_tags(Resources=[made["vpc"]], Tags=[{"Key": "Name", "Value": "drift"}])
    ec2.delete_subnet(SubnetId=stack.outputs()["subnet"])
    refreshed = stack.pulumi("refresh", "--yes", "--skip-preview")
    assert "~ 1 updated" in refreshed
    assert "- 1 deleted" in refreshed
    repaired = stack.up()
    assert "~ 1 updated" in repaired
    assert "+ 1 created" in repaired

    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert absent_as_none(lambda: s3.head_bucket(Bucket=made["bucket"])) is None
    assert absent_as_none(lambda: ec2.describe_vpcs(VpcIds=[made["vpc"]])) is None


GROUP = """
import json, pulumi, pulumi_aws as aws
def role(name, service):
    trust = {"Effect": "Allow", "Action": ["sts:AssumeRole", "sts:TagSession"], "Principal": {"Service": service}}
    return aws.iam.Role(name, assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [trust]})).arn
vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16")
subnets = [
    aws.ec2.Subnet(zone, vpc_id=vpc.id, cidr_block=f"10.0.{n}.0/24", availability_zone=f"us-west-2{zone}").id
    for n, zone in enumerate("ab")
]
cluster = aws.eks.Cluster(
    "c", name="c", role_arn=role("c", "eks.amazonaws.com"), vpc_config={"subnet_ids": subnets},
    access_config={"authentication_mode": "API"},
)
size = {"desired_size": 1, "min_size": 0, "max_size": 1}
node_role = role("n", "ec2.amazonaws.com")
once_more = pulumi.Config().get_bool("failed")
opts = pulumi.ResourceOptions(replace_on_changes=["*"], delete_before_replace=True) if once_more else None
group = aws.eks.NodeGroup(
    "g", cluster_name=cluster.name, node_role_arn=node_role, subnet_ids=subnets, scaling_config=size,
    instance_types=["m5.large"], opts=opts,
)
pulumi.export("status", group.status)
"""


def test_a_node_group_that_found_no_capacity_is_deleted_and_made_again(
    stack: EngineStack, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `infra.node_groups` registers a group so. What is tested here is what the engine makes of it.
    backend = ec2_backends[ACCOUNT][REGION]
    stack.program(GROUP)
    shortages.add(backend, {"types": ["m5.large"]})
    with monkeypatch.context() as impatient:
        impatient.setattr(reconcile, "JOIN_SECONDS", 0.0)
        assert "AsgInstanceLaunchFailures" in stack.up(fails=True)
    (first,) = clients.get("eks").list_nodegroups(clusterName="c")["nodegroups"]
    shortages.restore(backend)
    stack.pulumi("config", "set", "failed", "true")
    assert "+-1 replaced" in stack.up()
    (second,) = clients.get("eks").list_nodegroups(clusterName="c")["nodegroups"]
    assert second != first
    assert stack.outputs()["status"] == "ACTIVE"
    stack.pulumi("config", "rm", "failed")
    assert "unchanged" in (after := stack.up())
    assert "replaced" not in after
    stack.pulumi("destroy", "--yes", "--skip-preview")


def test_an_existing_resource_is_imported(stack: EngineStack, clients: Clients) -> None:
    ec2, s3 = clients.get("ec2"), clients.get("s3")
    where = {"LocationConstraint": "us-west-2"}
    s3.create_bucket(Bucket="was-there", CreateBucketConfiguration=where)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    bucket, network = ("aws:s3/bucket:Bucket", "b", "was-there"), ("aws:ec2/vpc:Vpc", "v", vpc)
    assert "= 1 imported" in stack.pulumi("import", *bucket, "--yes", "--generate-code=false")
    with_code = stack.pulumi("import", *network, "--yes", fails=True)
    assert "= 1 imported" in with_code
    assert "the stand-ins write no code for it: use `pulumi import --generate-code=false`" in with_code
    stack.program(
        "import pulumi, pulumi_aws as aws\n"
        "kept = pulumi.ResourceOptions(protect=True)\n"
        "aws.s3.Bucket('b', bucket='was-there', opts=kept)\n"
        "aws.ec2.Vpc('v', cidr_block='10.9.0.0/16', opts=kept)\n"
    )
    assert "3 unchanged" in stack.up()
    refused = ("import", "aws:s3/bucket:Bucket", "c", "was-never-there", "--yes", "--generate-code=false")
    assert "does not exist" in stack.pulumi(*refused, fails=True)
    stack.pulumi("state", "unprotect", "--all", "--yes")
    stack.pulumi("destroy", "--yes", "--skip-preview")


def test_the_next_up_completes_a_killed_one(stack: EngineStack, clients: Clients) -> None:
    # Killed between two resources: no provider can record a resource that is being created at that moment.
    stack.program(
        PROGRAM.replace("subnet = ", f"{HELD}\nsubnet = ").replace("vpc_id=vpc.id", "vpc_id=vpc.id.apply(hold)")
    )
    running = stack.start("up", "--yes", "--skip-preview")
    while not (stack.folder / "made").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.communicate(timeout=120)
    stack.program(PROGRAM)
    stack.pulumi("cancel", "--yes")
    stack.pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    stack.up()
    assert "5 unchanged" in stack.up()
    stack.pulumi("destroy", "--yes", "--skip-preview")
