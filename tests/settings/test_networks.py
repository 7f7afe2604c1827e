"""The VPC that is there already, and every mistake about it that needs no AWS."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from botocore.utils import get_environ_proxies

import settings
from settings import networks
from settings.vpcs import DIRECT
from tests import graph

THERE = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnetIds": ["subnet-0000000000000000a", "subnet-0000000000000000b"],
}

PROXY = "http://proxy.example.com:3128"

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
    "another protocol": (
        {"httpProxy": "https://proxy.example.com:443"},
        "httpProxy = https://proxy.example.com:443: must",
    ),
    "no port": (
        {"httpProxy": "http://proxy.example.com"},
        "must be http://HOST:PORT, such as http://proxy.example.com:31",
    ),
    "a port above all": ({"httpProxy": "http://10.8.0.9:65536"}, "must be http://HOST:PORT"),
    "a path": ({"httpProxy": "http://10.8.0.9:3128/"}, "must be http://HOST:PORT"),
    "a wildcard": (
        {"httpProxy": PROXY, "noProxy": ["*.corp.example"]},
        "noProxy = *.corp.example: must be a name such",
    ),
    "half a network": ({"httpProxy": PROXY, "noProxy": ["10.0.0.1/8"]}, "noProxy = 10.0.0.1/8: must be a name such as"),
    "nodes that know no proxy": (
        {"httpProxy": PROXY, "nodeImageVersion": "v20251023"},
        "nodeImageVersion = v20251023: nodes set no variables for httpProxy up to v20251023; choose a newer release",
    ),
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


def test_a_password_of_the_proxy_is_refused_and_not_shown() -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**THERE, httpProxy="http://user:hunter2@proxy.example.com:3128")
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(
        "httpProxy: has a user or a password, and the nodes' user data and the pods would show it"
    )
    assert "hunter2" not in str(refused.value)


def through(**changes: Any) -> settings.Proxy:
    """Return the proxy of a stack in a VPC, before AWS is asked."""
    found = graph.parsed(**THERE, httpProxy=PROXY, **changes).training.proxy
    assert found is not None
    return found


def test_names_and_networks_of_the_stack_are_reached_without_the_proxy_and_so_are_a_persons() -> None:
    stack = graph.parsed(**THERE, httpProxy=PROXY, noProxy=[".corp.example", "10.0.0.0/8"])
    found = stack.with_vpc(("10.9.0.0/16", "10.8.0.0/16"), ()).with_cluster(
        settings.ExistingCluster("platform", service_range="192.168.0.0/16")
    )
    variables = found.training.proxy_variables
    assert variables["HTTP_PROXY"] == variables["https_proxy"] == PROXY
    direct = variables["NO_PROXY"].split(",")
    assert len(set(direct)) == len(direct)
    of_aws = ("10.8.0.0/16", "10.9.0.0/16", "192.168.0.0/16")
    assert tuple(direct[-3:]) == of_aws, "whatever the order in which AWS lists the ranges"
    assert {*direct} == {*DIRECT, ".corp.example", "10.0.0.0/8", *of_aws}
    assert graph.parsed(**THERE).with_vpc(("10.8.0.0/16",), ()).training.proxy_variables == {}


@pytest.mark.parametrize(
    "host",
    [
        "http://localhost:8080",
        "http://169.254.169.254",
        "http://169.254.170.23",
        "http://etcd.training.svc:2379",
        "http://etcd.training.svc.cluster.local:2379",
        "https://ip-10-8-0-1.us-west-2.compute.internal:10250",
        "https://0123.gr7.us-west-2.eks.amazonaws.com",
        "https://git.corp.example",
        "https://corp.example",
    ],
)
def test_pythons_libraries_go_directly_by_name_where_they_know_no_networks(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    for name, value in through(noProxy=[".corp.example"]).variables.items():
        monkeypatch.setenv(name, value)
    assert get_environ_proxies(host) == {}
    assert get_environ_proxies("https://s3.us-west-2.amazonaws.com")["https"] == PROXY


@pytest.mark.parametrize("listed", [".amazonaws.com", "amazonaws.com"])
def test_what_is_listed_is_not_served_by_the_proxy(listed: str) -> None:
    assert through().serves("ec2.us-west-2.amazonaws.com")
    assert not through(noProxy=[listed]).serves("ec2.us-west-2.amazonaws.com")
    assert through(noProxy=[listed]).serves("notamazonaws.com")
    assert (through().host, through().port) == ("proxy.example.com", 3128)
