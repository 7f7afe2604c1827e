"""In a VPC that was there before, the stack makes nothing of the network and uses what there is."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from infra.preflight import place
from settings import prices
from tests import graph
from tests.infra.preflight.vpc import existing_vpc

ONE_A_ZONE = ["subnet-0000000000000000a", "subnet-0000000000000000b"]
ALL = [*existing_vpc.SUBNETS]
CONFIG = {**graph.defaults(), **existing_vpc.CONFIG}


@pytest.fixture(scope="module")
def deployed() -> graph.Graph:
    """The whole program in the VPC, with workers in both zones."""
    return graph.run(graph.program, {**CONFIG, "workerZones": "2"}, ask=existing_vpc.ask)


def test_nothing_of_the_network_is_made(deployed: graph.Graph) -> None:
    network = {each.urn for each in deployed.resources if each.type == "tidewater:infra:Network"}
    made = {each.type for each in deployed.resources if each.parent in network}
    assert made == {"pulumi:index:Stash"}
    kinds = ("vpc:", "subnet", "route", "natGateway", "eip:", "internetGateway", "vpcEndpoint", "flowLog")
    assert not [each.type for each in deployed.resources if each.type.startswith("aws:ec2/") and _any(kinds, each)]
    assert not [each.type for each in deployed.resources if each.type == "aws:ec2/tag:Tag"]


def _any(kinds: tuple[str, ...], each: graph.Registered) -> bool:
    return each.type.removeprefix("aws:ec2/").startswith(kinds)


def test_all_that_needs_a_network_is_in_the_subnets_that_are_named(deployed: graph.Graph) -> None:
    cluster = deployed.one("eks:index:Cluster").inputs
    system = deployed.one("aws:eks/nodeGroup:NodeGroup", "system").inputs
    workers = deployed.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs
    scraper = deployed.one("aws:amp/scraper:Scraper").inputs["source"]["eks"]
    assert (cluster["vpcId"], cluster["privateSubnetIds"]) == (existing_vpc.VPC, ALL)
    assert system["subnetIds"] == workers["subnetIds"] == scraper["subnetIds"] == ALL
    node_class = deployed.one("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass").inputs["spec"]
    assert node_class["subnetSelectorTerms"] == [{"id": each} for each in ALL]
    assert deployed.one("aws:ec2/securityGroup:SecurityGroup").inputs["vpcId"] == existing_vpc.VPC


def test_the_file_system_has_one_mount_target_in_each_zone(deployed: graph.Graph) -> None:
    targets = deployed.all("aws:efs/mountTarget:MountTarget")
    assert sorted(each.inputs["subnetId"] for each in targets) == ONE_A_ZONE


def test_workers_of_one_zone_have_all_its_subnets() -> None:
    config = {**CONFIG, "workerZones": "us-west-2b"}
    one = graph.run(graph.program, config, ask=existing_vpc.ask)
    assert one.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs["subnetIds"] == ALL[1:]


def test_metrics_may_be_read_from_each_range_of_the_vpc(deployed: graph.Graph) -> None:
    policies = {
        each.inputs["metadata"]["name"]: each.inputs["spec"]
        for each in deployed.resources
        if each.type.endswith("NetworkPolicy")
    }
    blocks = [{"ipBlock": {"cidr": cidr}} for cidr in existing_vpc.CIDRS]
    (scrapes,) = (rule["from"] for rule in policies["jobs"]["ingress"] if "ports" in rule)
    assert scrapes[1:] == blocks
    assert [rule["from"] for name, spec in policies.items() if "metrics" in name for rule in spec["ingress"]] == [
        blocks
    ]


def test_no_nat_gateway_is_paid_for() -> None:
    assert "natGateways" not in prices.hourly(settings.parse(CONFIG, stack="dev"))


def record(**changes: str) -> dict[str, Any]:
    own = {
        "cidr": "",
        "zones": "",
        "vpc": existing_vpc.VPC,
        "subnets": ",".join(ONE_A_ZONE),
        "cluster": "",
        "files": "",
        "data_key": "",
        "role": "",
    }
    return {"region": "us-west-2", "stack": "dev", "namespace": "training", **own, **changes}


def refused(recorded: dict[str, Any], **changes: Any) -> list[str]:
    here = place.Place.of(settings.parse({**graph.defaults(), **changes}, stack="dev"))
    return place.mistakes(here, place.first_place(here, recorded))


def test_a_stack_stays_in_the_vpc_and_the_subnets_of_its_first_update() -> None:
    first = {"vpcId": existing_vpc.VPC, "privateSubnetIds": ONE_A_ZONE}
    assert refused(record(), **first) == []
    (vpc,) = refused(record(), **{**first, "vpcId": "vpc-0000000000000000f"})
    assert vpc.startswith(f"vpcId = vpc-0000000000000000f: the stack is in {existing_vpc.VPC}; set it back")
    (left,) = refused(record())
    assert left.startswith(f"vpcId = (empty): the stack is in {existing_vpc.VPC}; set it back")
    (moved,) = refused(record(), **{**first, "privateSubnetIds": ONE_A_ZONE[::-1]})
    assert moved.startswith("privateSubnetIds = subnet-0000000000000000b,subnet-0000000000000000a: the stack began")


def test_subnets_may_be_added_after_those_of_the_first_update_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = record(stack="local")
    network = {key: kept.pop(key) for key in place.NETWORK}
    monkeypatch.setattr(graph, "STASHED", {"place": kept, "place-network": network})
    grown = graph.run(graph.program, {**CONFIG, "workerZones": "2"}, ask=existing_vpc.ask)
    assert grown.one("eks:index:Cluster").inputs["privateSubnetIds"] == ONE_A_ZONE
    assert grown.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs["subnetIds"] == ALL


def test_a_stack_with_a_vpc_of_its_own_is_not_moved_by_a_version_that_knows_existing_ones() -> None:
    older = {"region": "us-west-2", "stack": "dev", "namespace": "training", "cidr": "10.0.0.0/16", "zones": "2"}
    assert refused(older) == []
    (moved,) = refused(older, vpcId=existing_vpc.VPC, privateSubnetIds=ONE_A_ZONE)
    assert "the stack is in a VPC of its own, with vpcCidr = 10.0.0.0/16; set it back" in moved
