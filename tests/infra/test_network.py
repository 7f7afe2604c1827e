"""The subnet plan, and the routes of the VPC."""

from __future__ import annotations

import ipaddress
import itertools

import pulumi
import pytest

import settings
from infra import network, policies
from infra import zones as worker_zones
from infra.account import connect
from tests import graph

FLOW_LOG, LOG_GROUP = "aws:ec2/flowLog:FlowLog", "aws:cloudwatch/logGroup:LogGroup"
NAT = "aws:ec2/natGateway:NatGateway"
SUBNET = "aws:ec2/subnet:Subnet"
STASH = "pulumi:index:Stash"


def network_of_the_stack() -> None:
    stack = settings.load()
    account = connect(stack)
    args = network.NetworkArgs(account.region, stack.network, stack.instance_types, stack.machines, 2)
    network.Network(stack.name, args, account.options())


def zones_of(deployed: graph.Graph) -> dict[str, str]:
    return {subnet.name: subnet.inputs["availabilityZone"] for subnet in deployed.all(SUBNET)}


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
    assert network.choose_zones(["c", "a", "b"], ["c", "a", "b"], 2) == ["a", "b"]


@pytest.mark.parametrize(
    "available",
    [
        pytest.param(["a", "b", "c", "d"], id="zones are new"),
        pytest.param(["c", "d"], id="a zone is not available"),
        pytest.param([], id="no zone is"),
    ],
)
def test_subnets_stay_in_their_zones_when_awss_list_changes(available: list[str]) -> None:
    assert network.choose_zones(["b", "d"], available, 2) == ["b", "d"]


def test_another_zone_is_added_to_those_in_use() -> None:
    assert network.choose_zones(["b", "c", "d"], ["a", "b", "c", "d"], 3) == ["b", "c", "d"]
    assert network.choose_zones(["b", "c"], ["a", "b", "c", "d"], 3) == ["b", "c", "a"]


def test_too_few_zones_in_the_region_is_an_error_that_names_them() -> None:
    with pytest.raises(pulumi.RunError, match=r"availabilityZones = 3: .* only 2 .*\(a, b\); set it to 2"):
        network.choose_zones(["a"], ["b", "a"], 3)


OFFERED = [("g5.xlarge", "us-west-2a"), ("g5.xlarge", "us-west-2b"), ("p5.48xlarge", "us-west-2c")]


def test_one_zone_with_an_instance_type_is_enough() -> None:
    zones = ["us-west-2b", "us-west-2c"]
    wanted = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": ["g5.xlarge", "p5.48xlarge"]}
    assert network.check_offerings(zones, OFFERED, wanted) == zones


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("p5.48xlarge", "none of .* us-west-2a, us-west-2b has it; it is in us-west-2c. Choose another"),
        ("g6e.xlarge", "none of .* us-west-2a, us-west-2b has it; no zone of the region has it"),
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

    monkeypatch.setattr(network, "check_offerings", checked)
    monkeypatch.setattr(worker_zones, "choose", lambda zones, *_: zones[:1])  # it would not know these zones
    zones = set(zones_of(graph.run(network_of_the_stack, graph.defaults())).values())
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


def test_an_update_after_awss_list_has_grown_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**graph.defaults(), "region": "us-west-2", "availabilityZones": "2"}
    first = graph.run(network_of_the_stack, config)
    monkeypatch.setattr(graph, "ZONES", ["us-west-2a", "us-west-2aa", *graph.ZONES])
    moved = graph.run(network_of_the_stack, config)
    assert zones_of(moved) != zones_of(first), "else this test shows nothing"
    monkeypatch.setattr(graph, "STASHED", {each.name: each.inputs["input"] for each in first.all(STASH)})
    second = graph.run(network_of_the_stack, config)
    assert zones_of(second) == zones_of(first)
    assert all(each.ignored == ("input",) for each in second.all(STASH)), "the state would say that it was updated"


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


def test_flow_logs_are_kept_as_long_as_their_key_says_and_go_before_what_they_need() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    assert not graph.deploy(config).all(FLOW_LOG)
    made = graph.deploy({**config, "vpcFlowLogs": 90})
    log, group, role = (made.one(type_, "flow-logs") for type_ in (FLOW_LOG, LOG_GROUP, "aws:iam/role:Role"))
    policy = made.one("aws:iam/rolePolicy:RolePolicy", "flow-logs")
    assert (log.inputs["vpcId"], log.inputs["trafficType"]) == ("tidewater-local-vpc-id", "ALL")
    assert (log.inputs["logDestination"], log.inputs["iamRoleArn"]) == (group.outputs["arn"], role.outputs["arn"])
    assert (group.inputs["retentionInDays"], group.inputs["name"]) == (90, "/aws/vpc/tidewater-local")
    assert all(made.needs(log, each) for each in (group, role, policy, made.one("aws:ec2/vpc:Vpc")))
    key = made.one("aws:kms/key:Key")
    assert group.inputs["kmsKeyId"] == key.outputs["arn"]
    assert f"log-group:{group.inputs['name']}" in key.inputs["policy"]
    assert "/aws/vpc/" not in graph.deploy(config).one("aws:kms/key:Key").inputs["policy"]


def test_a_last_delivery_of_flow_logs_does_not_make_the_deleted_group_again() -> None:
    (statement,) = policies.flow_logs("arn:aws:logs:us-west-2:123456789012:log-group:a")["Statement"]
    assert "logs:CreateLogGroup" not in statement["Action"]
    assert all(":log-group:a" in each for each in statement["Resource"])
