"""The VPC that is there already, and every mistake about it that needs no AWS."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import settings
from settings import networks
from tests import graph

THERE = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetIds": ["subnet-0000000000000000a", "subnet-0000000000000000b"],
}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a range": (
        {"vpcCidr": "10.1.0.0/16"},
        "vpcCidr = 10.1.0.0/16: is for a VPC that the stack makes, and vpcId names",
    ),
    "zones": ({"availabilityZones": 3}, "availabilityZones = 3: is for a VPC that the stack makes"),
    "NAT gateways": ({"natGateways": "perZone"}, "natGateways = perZone: is for a VPC that the stack makes"),
    "flow logs": ({"vpcFlowLogs": 90}, "vpcFlowLogs = 90: is for a VPC that the stack makes"),
    "no subnets": ({"privateSubnetIds": []}, "vpcId = vpc-0123456789abcdef0: needs from 2 to 16 subnets in private"),
    "one subnet": ({"privateSubnetIds": THERE["privateSubnetIds"][:1]}, "needs from 2 to 16 subnets"),
    "a subnet twice": ({"privateSubnetIds": ["subnet-0000000000000000a"] * 2}, "subnet-0000000000000000a: is listed"),
    "no zone of workers": ({"workerZones": 0}, "workerZones = 0: must be 1 or more"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_not_for_a_vpc_that_is_there_is_one_mistake(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**{**THERE, **changes})
    (mistake,) = refused.value.mistakes
    assert message in mistake


def test_the_vpc_is_the_one_that_is_named_and_has_no_range_of_the_stacks() -> None:
    network = graph.parsed(**THERE).network
    assert network.existing == settings.ExistingVpc("vpc-0123456789abcdef0", tuple(THERE["privateSubnetIds"]))
    assert network.cidr == ""
    assert graph.parsed().network.existing is None
    assert graph.parsed().network.cidrs == ("10.0.0.0/16",)


def test_names_of_worker_zones_are_left_to_what_aws_says_of_the_subnets() -> None:
    assert graph.parsed(**THERE, workerZones="us-west-2b").machines.zones == ("us-west-2b",)


def test_the_defaults_that_the_engine_fills_in_are_those_that_are_no_mistake() -> None:
    keys = yaml.safe_load((graph.ROOT / "Pulumi.yaml").read_text())["config"]
    assert {key: str(keys[key]["default"]) for key in networks.DEFAULTS} == networks.DEFAULTS
