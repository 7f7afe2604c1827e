"""The subnet plan, and the routes of the VPC."""

from __future__ import annotations

import ipaddress
import itertools

import pulumi
import pytest

import settings
from infra import network
from infra.account import connect
from infra.zones import workers as worker_zones
from tests import graph

NAT = "aws:ec2/natGateway:NatGateway"
SUBNET = "aws:ec2/subnet:Subnet"


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "192.168.16.0/20", "172.16.0.0/18"])
@pytest.mark.parametrize("zones", [2, 3, 4])
def test_subnets_are_in_the_vpc_and_do_not_overlap(cidr: str, zones: int) -> None:
    plan = network.plan_subnets(cidr, zones)
    ranges = [ipaddress.IPv4Network(each) for each in (*plan.public, *plan.private)]
    assert len(ranges) == 2 * zones
    assert all(each.subnet_of(ipaddress.IPv4Network(cidr)) for each in ranges)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))


def test_another_zone_does_not_change_existing_subnets() -> None:
    two, three = network.plan_subnets("10.0.0.0/16", 2), network.plan_subnets("10.0.0.0/16", 3)
    assert three.private[:2] == two.private
    assert three.public[:2] == two.public


def test_pods_get_most_of_the_addresses() -> None:
    plan = network.plan_subnets("10.0.0.0/16", 2)
    assert plan.private == ("10.0.0.0/19", "10.0.32.0/19")
    assert ipaddress.IPv4Network(plan.public[0]).prefixlen == 24


def test_zones_come_in_a_stable_order() -> None:
    assert [network.zone_name(["c", "a", "b"], index, 2) for index in range(2)] == ["a", "b"]


def test_too_few_zones_in_the_region_is_an_error_that_names_them() -> None:
    with pytest.raises(pulumi.RunError, match="availabilityZones = 3: the region has only 2"):
        network.zone_name(["a", "b"], 0, 3)


OFFERED = [("g5.xlarge", "us-west-2a"), ("g5.xlarge", "us-west-2b"), ("p5.48xlarge", "us-west-2c")]


def test_one_zone_with_an_instance_type_is_enough() -> None:
    zones = ["us-west-2b", "us-west-2c"]
    wanted = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": ["g5.xlarge", "p5.48xlarge"]}
    assert network.check_offerings(zones, OFFERED, wanted) == zones


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("p5.48xlarge", "none of the zones us-west-2a, us-west-2b has it; it is in us-west-2c"),
        ("g6e.xlarge", "none of the zones us-west-2a, us-west-2b has it; no zone of the region has it"),
    ],
)
def test_an_instance_type_that_no_zone_has_is_an_error_that_names_both(name: str, reason: str) -> None:
    wanted = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": [name]}
    with pytest.raises(pulumi.RunError, match=f"surgeInstanceTypes = {name}: {reason}"):
        network.check_offerings(["us-west-2a", "us-west-2b"], OFFERED, wanted)


def test_subnets_are_in_the_zones_that_were_checked_for_the_types_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(zones: list[str], offered: list[tuple[str, str]], wanted: dict[str, tuple[str, ...]]) -> list[str]:
        assert {name for name, _ in offered} == {name for types in wanted.values() for name in types}
        return [f"checked {zone} for {', '.join(wanted)}" for zone in zones]

    def program() -> None:
        stack = settings.load()
        account = connect(stack)
        args = network.NetworkArgs(account.region, stack.network, stack.instance_types, stack.machines)
        network.Network(stack.name, args, account.options())

    monkeypatch.setattr(network, "check_offerings", checked)
    monkeypatch.setattr(worker_zones, "choose", lambda zones, *_: zones[:1])  # it would not know these zones
    zones = {each.inputs["availabilityZone"] for each in graph.run(program, graph.defaults()).all(SUBNET)}
    keys = "systemInstanceTypes, instanceTypes, surgeInstanceTypes"
    assert zones == {f"checked us-west-2a for {keys}", f"checked us-west-2b for {keys}"}


def test_nat_gateways_are_one_for_all_zones_or_one_for_each() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    assert len(graph.deploy(config).all(NAT)) == 1
    assert len(graph.deploy({**config, "natGateways": "perZone", "availabilityZones": "3"}).all(NAT)) == 3


def test_zones_can_be_named() -> None:
    config = {**graph.stack_config("Pulumi.local.yaml"), "availabilityZones": "us-west-2b, us-west-2d"}
    zones = {each.inputs["availabilityZone"] for each in graph.deploy(config).all(SUBNET)}
    assert zones == {"us-west-2b", "us-west-2d"}


def test_subnets_have_the_tags_of_load_balancers() -> None:
    for subnet in graph.deploy(graph.stack_config("Pulumi.local.yaml")).all(SUBNET):
        role = "kubernetes.io/role/elb" if "public" in subnet.name else "kubernetes.io/role/internal-elb"
        assert subnet.inputs["tags"][role] == "1"
        assert subnet.inputs["tags"]["kubernetes.io/cluster/tidewater-local"] == "shared"


def test_s3_traffic_does_not_use_the_nat_gateway() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    endpoint = deployed.one("aws:ec2/vpcEndpoint:VpcEndpoint").inputs
    assert endpoint["vpcEndpointType"] == "Gateway"
    assert len(endpoint["routeTableIds"]) == len(deployed.all("aws:ec2/routeTable:RouteTable"))
