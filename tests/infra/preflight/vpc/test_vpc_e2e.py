"""The real engine, with a VPC that boto3 made: what lacks something is refused, and a destroy leaves all of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packages.localcloud.tests.standins.engine_stack import EngineStack
from tests import graph
from tests.aws import moto_server
from tests.aws.moto_server import KEYS

pytestmark = pytest.mark.e2e

BEGIN = f"""
import os, runpy, sys
sys.path.insert(0, {str(graph.ROOT)!r})
os.chdir({str(graph.ROOT)!r})
"""
PROGRAM = (
    BEGIN
    + """
runpy.run_path("__main__.py", run_name="__main__")
"""
)
NETWORK_AND_FILES = (
    BEGIN
    + """
import pulumi_aws as aws
import settings
from infra import preflight
from infra.account import connect
from infra.network import Network, NetworkArgs
from infra.preflight import login, place
from infra.shared_storage import SharedStorage, SharedStorageArgs

wanted = settings.load()
account = connect(wanted, kept := place.keep(wanted))
stack = preflight.check(wanted, account, login.run)
site = NetworkArgs(account.region, stack.network, stack.instance_types, stack.machines, kept.first_subnets)
network = Network(stack.name, site, account.options())
alone = account.options()
alone.provider = account.provider
nodes = aws.ec2.SecurityGroup("nodes", vpc_id=network.vpc_id, opts=alone)
key = aws.kms.Key("files", opts=alone)
args = SharedStorageArgs(network, nodes.id, key.arn, stack.file_throughput, protect=False)
SharedStorage(stack.name, args, account.options())
"""
)


@dataclass(frozen=True)
class Made:
    """A VPC with two private subnets, a NAT gateway and no DNS host names yet."""

    ec2: Any
    vpc: str
    subnets: list[str]

    def described(self) -> dict[str, Any]:
        """Return all that AWS says of the network, tags included."""
        there = [{"Name": "vpc-id", "Values": [self.vpc]}]
        ec2 = self.ec2
        own = [{"Name": "resource-id", "Values": [self.vpc, *self.subnets]}]
        return {
            "vpcs": ec2.describe_vpcs(Filters=there)["Vpcs"],
            "subnets": ec2.describe_subnets(Filters=there)["Subnets"],
            "tables": ec2.describe_route_tables(Filters=there)["RouteTables"],
            "gateways": ec2.describe_nat_gateways(Filters=there)["NatGateways"],
            "endpoints": ec2.describe_vpc_endpoints(Filters=there)["VpcEndpoints"],
            "groups": ec2.describe_security_groups(Filters=there)["SecurityGroups"],
            "tags": ec2.describe_tags(Filters=own)["Tags"],
        }


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The endpoint of an account with enough of everything."""
    with moto_server.serve() as endpoint:
        yield endpoint


@pytest.fixture
def made(endpoint: str) -> Made:
    ec2 = moto_server.client("ec2", endpoint)
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")
        for index, zone in enumerate("ab")
    ]
    return Made(ec2, vpc, [each["Subnet"]["SubnetId"] for each in subnets])


def make_way(made: Made) -> None:
    """Give the VPC what it lacks: names, and a route to the internet in its main table."""
    ec2 = made.ec2
    ec2.modify_vpc_attribute(VpcId=made.vpc, EnableDnsHostnames={"Value": True})
    internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=made.vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=made.subnets[0], AllocationId=address)["NatGateway"]["NatGatewayId"]
    main = [{"Name": "vpc-id", "Values": [made.vpc]}, {"Name": "association.main", "Values": ["true"]}]
    (table,) = ec2.describe_route_tables(Filters=main)["RouteTables"]
    ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)


def new_stack(folder: Path, endpoint: str, made: Made) -> EngineStack:
    keys = {name.upper(): value for name, value in KEYS.items()}
    stack = EngineStack(folder, {"AWS_ENDPOINT_URL": endpoint, **keys})
    (folder / "Pulumi.yaml").write_text((graph.ROOT / "Pulumi.yaml").read_text())
    (folder / "bin" / "aws").symlink_to(Path(sys.executable).with_name("aws"))
    stack.pulumi("stack", "init", "new")
    stack.pulumi("config", "set", "tidewater:vpcId", made.vpc)
    stack.pulumi("config", "set", "--path", "tidewater:publicAccessCidrs[0]", graph.ADDRESS)
    for index, subnet in enumerate(made.subnets):
        stack.pulumi("config", "set", "--path", f"tidewater:privateSubnetIds[{index}]", subnet)
    return stack


def test_a_vpc_that_lacks_something_is_refused_and_one_that_fits_stays_as_it_was(
    tmp_path: Path, endpoint: str, made: Made
) -> None:
    stack = new_stack(tmp_path, endpoint, made)
    stack.program(PROGRAM)
    refused = stack.pulumi("preview", fails=True)
    assert "the configuration has 3 mistakes; nothing was changed" in refused
    assert f"vpcId = {made.vpc}: has DNS host names turned off" in refused
    assert "have no route to the internet, and the VPC lacks endpoints for ec2, ecr.api, ecr.dkr, s3, sts" in refused
    assert "surgeNodes = karpenter: Karpenter calls IAM" in refused

    make_way(made)
    before = made.described()
    planned = stack.pulumi("preview")
    assert "have no gateway endpoint of S3 in their route tables" in planned
    assert "aws:efs:MountTarget" in planned
    for kind in ("ec2:Vpc", "ec2:Subnet", "ec2:Route", "ec2:NatGateway", "ec2:InternetGateway", "ec2:Eip"):
        assert f"aws:{kind}" not in planned

    stack.program(NETWORK_AND_FILES)
    stack.up()
    targets = moto_server.client("efs", endpoint)
    (files,) = targets.describe_file_systems()["FileSystems"]
    there = targets.describe_mount_targets(FileSystemId=files["FileSystemId"])["MountTargets"]
    assert {each["SubnetId"] for each in there} == set(made.subnets)
    moved = stack.pulumi("preview", "--config", "tidewater:vpcId=vpc-00000000", fails=True)
    assert f"vpcId = vpc-00000000: the stack is in {made.vpc}; set it back" in moved

    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert targets.describe_file_systems()["FileSystems"] == []
    assert made.described() == before
