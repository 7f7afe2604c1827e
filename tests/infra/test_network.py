"""The subnets and the routes of the VPC, and its flow logs."""

from __future__ import annotations

import pytest

import settings
from infra import network, policies
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


def test_subnets_are_in_the_zones_that_were_checked_for_the_types_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(zones: list[str], offered: list[tuple[str, str]], wanted: dict[str, tuple[str, ...]]) -> list[str]:
        assert {name for name, _ in offered} == {name for types in wanted.values() for name in types}
        return [f"checked {zone} for {', '.join(wanted)}" for zone in zones]

    monkeypatch.setattr(network, "check_offerings", checked)
    monkeypatch.setattr(network, "choose_worker_zones", lambda zones, *_: zones[:1])  # it would not know these zones
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
