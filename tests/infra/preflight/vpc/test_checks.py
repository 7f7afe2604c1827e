"""An existing VPC that doesn't fit is refused with a remedy, all at once and before anything is made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi_aws as aws
import pytest

import settings
from infra.preflight import fit, vpc
from infra.preflight.vpc import checks, lookup
from infra.preflight.vpc.checks import Endpoint, Subnet, Table, Vpc
from tests import graph
from tests.infra.preflight.vpc import existing_vpc
from tests.infra.preflight.world import region

VPC, A, B, C = existing_vpc.VPC, *existing_vpc.SUBNETS
NAT, ISOLATED, PUBLIC = Table("rtb-1", "nat-1"), Table("rtb-2"), Table("rtb-3", "igw-1")
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
GOOD = Vpc(
    found=True,
    cidrs=("10.8.0.0/16",),
    subnets=(Subnet(A, VPC, ZONES[0], 1000, table=NAT), Subnet(B, VPC, ZONES[1], 1000, table=NAT)),
    endpoints={"s3": Endpoint(tables=("rtb-1", "rtb-2"))},
)
ALL_ENDPOINTS = {service: Endpoint(names=True) for service in checks.SERVICES}


def stack(**changes: Any) -> settings.Settings:
    """Return the settings of a stack in the VPC, before AWS is asked."""
    config = {"vpcId": VPC, "privateSubnetIds": [A, B], "surgeNodes": "nodegroup", **changes}
    return settings.parse({**graph.defaults(), **config}, stack="dev")


def with_second(**changes: Any) -> Vpc:
    return replace(GOOD, subnets=(GOOD.subnets[0], replace(GOOD.subnets[1], **changes)))


def without(*services: str) -> Mapping[str, Endpoint]:
    return {name: each for name, each in ALL_ENDPOINTS.items() if name not in services}


BAD: dict[str, tuple[dict[str, Any], Vpc, list[str]]] = {
    "no such VPC": ({}, replace(GOOD, found=False), [f"vpcId = {VPC}: us-west-2 has no such VPC; correct it, or the"]),
    "no such subnet": (
        {"privateSubnetIds": [A, B, C]},
        GOOD,
        [f"privateSubnetIds = {C}: us-west-2 has no such subnet; correct it"],
    ),
    "neither": (
        {"privateSubnetIds": [A, B, C]},
        replace(GOOD, found=False),
        [f"vpcId = {VPC}: us-west-2 has no such VPC", f"privateSubnetIds = {C}: us-west-2 has no such subnet"],
    ),
    "no names": (
        {},
        replace(GOOD, dns_support=False, dns_names=False),
        [
            f"turn it on: aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns-support",
            f"turn it on: aws ec2 modify-vpc-attribute --vpc-id {VPC} --enable-dns-hostnames",
        ],
    ),
    "subnet of another VPC": (
        {},
        with_second(vpc="vpc-0000000000000000f"),
        [f"privateSubnetIds = {B}: is in vpc-0000000000000000f, not in the stack's VPC; name subnets of {VPC} only"],
    ),
    "one zone": (
        {},
        with_second(zone="us-west-2a"),
        [f"privateSubnetIds = {A}, {B}: are all in us-west-2a; EKS needs two zones, so add one of another"],
    ),
    "zone without EKS": (
        {},
        with_second(zone="us-west-2-lax-1a"),
        [f"privateSubnetIds = {B}: is in us-west-2-lax-1a, where EKS can place no control plane; name one in us-west"],
    ),
    "too many zones of workers": (
        {"workerZones": 3},
        GOOD,
        ["workerZones = 3: privateSubnetIds are in 2 (us-west-2a, us-west-2b); lower it"],
    ),
    "zone of workers without a subnet": (
        {"workerZones": "us-west-2c"},
        GOOD,
        ["workerZones = us-west-2c: no subnet of privateSubnetIds is there; they are in us-west-2a, us-west-2b"],
    ),
    "internet gateway without public addresses": (
        {},
        with_second(table=PUBLIC),
        [f"privateSubnetIds = {B}: its way to the internet is an internet gateway, which serves public addresses only"],
    ),
    "no route and some of the endpoints": (
        {},
        replace(with_second(table=ISOLATED), endpoints=without("eks-auth", "ecr.dkr")),
        [f"privateSubnetIds = {B}: have no route to the internet, and the VPC lacks endpoints for ecr.dkr, eks-auth;"],
    ),
    "no route for Karpenter": (
        {"surgeNodes": "karpenter"},
        replace(with_second(table=ISOLATED), endpoints=ALL_ENDPOINTS),
        [f"surgeNodes = karpenter: Karpenter calls IAM, which has no endpoint in a VPC, and {B} have no route"],
    ),
}


@pytest.mark.parametrize(("changes", "there", "expected"), BAD.values(), ids=BAD.keys())
def test_what_the_stack_cant_use_is_one_mistake_with_key_value_and_remedy(
    changes: dict[str, Any], there: Vpc, expected: list[str]
) -> None:
    found = vpc.mistakes(stack(**changes), there, ZONES)
    assert len(found) == len(expected), found
    assert all(part in each for part, each in zip(expected, found, strict=True)), found


def test_a_vpc_that_fits_is_no_mistake_and_no_warning() -> None:
    assert vpc.mistakes(stack(), GOOD, ZONES) == vpc.warnings(stack(), GOOD) == vpc.crowded(GOOD) == []
    assert vpc.mistakes(stack(), replace(with_second(table=ISOLATED), endpoints=ALL_ENDPOINTS), ZONES) == []


def test_the_endpoints_that_are_missing_are_listed() -> None:
    there = replace(with_second(table=ISOLATED), endpoints=without("eks-auth", "ecr.dkr"))
    (mistake,) = vpc.mistakes(stack(), there, ZONES)
    assert (
        "lacks endpoints for ecr.dkr, eks-auth; make them, with private DNS names, and for s3 a gateway in the"
        in mistake
    )
    (none,) = vpc.mistakes(stack(), replace(there, endpoints={}), ZONES)
    assert f"endpoints for {', '.join(checks.SERVICES)}; make" in none


PROXY = {"httpProxy": "http://10.8.0.9:3128"}
FOLDER = {"dataset": "s3://bucket/images/", "datasetStorage": "s3"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["ec2", "eks-auth", "elasticfilesystem"]),
        ({"noProxy": ["s3.us-west-2.amazonaws.com"]}, ["ec2", "s3", "eks-auth", "elasticfilesystem"]),
        ({"noProxy": [".ecr.us-west-2.amazonaws.com"]}, ["ec2", "ecr.api", "ecr.dkr", "eks-auth", "elasticfilesystem"]),
        ({"noProxy": [".amazonaws.com"]}, [*checks.SERVICES]),
        (FOLDER, ["ec2", "s3", "eks-auth", "elasticfilesystem"]),
    ],
    ids=["only addons", "S3 directly", "ECR directly", "all of AWS directly", "a dataset that is mounted"],
)
def test_with_a_proxy_only_what_it_does_not_serve_needs_endpoints(changes: dict[str, Any], expected: list[str]) -> None:
    there = replace(with_second(table=ISOLATED), endpoints={})
    (mistake,) = vpc.mistakes(stack(**PROXY, **changes), there, ZONES)
    assert f"endpoints for {', '.join(expected)}, which the proxy doesn't serve; make them" in mistake
    enough = replace(there, endpoints={name: Endpoint(names=True) for name in expected})
    assert vpc.mistakes(stack(**PROXY, **changes), enough, ZONES) == []


def test_karpenter_and_images_need_no_route_where_the_proxy_serves_them() -> None:
    there = replace(with_second(table=ISOLATED), endpoints=ALL_ENDPOINTS)
    wanted = stack(**PROXY, surgeNodes="karpenter")
    assert vpc.mistakes(wanted, there, ZONES) == []
    assert not [each for each in vpc.warnings(wanted, there) if "images come from" in each]
    closed = stack(**PROXY, surgeNodes="karpenter", noProxy=["amazonaws.com", "nvcr.io"])
    (mistake,) = vpc.mistakes(closed, there, ZONES)
    assert mistake.startswith("surgeNodes = karpenter: Karpenter calls IAM")
    (warning,) = (each for each in vpc.warnings(closed, there) if "images come from" in each)
    assert "images come from nvcr.io: no node" in warning


def test_what_goes_through_the_proxy_though_s3_has_an_endpoint_is_a_warning() -> None:
    (warning,) = vpc.warnings(stack(**PROXY), GOOD)
    assert warning.startswith("httpProxy = http://10.8.0.9:3128: data and checkpoints in S3 go through it, though the")
    assert warning.endswith("add s3.us-west-2.amazonaws.com to noProxy")
    assert vpc.warnings(stack(**PROXY, noProxy=["s3.us-west-2.amazonaws.com"]), GOOD) == []
    assert not [each for each in vpc.warnings(stack(**PROXY), replace(GOOD, endpoints={})) if "httpProxy" in each]


def test_an_endpoint_serves_by_its_names_or_by_the_route_table_of_the_subnet() -> None:
    there = with_second(table=ISOLATED)
    for s3, lacking in (
        (Endpoint(tables=("rtb-1",)), ["s3"]),
        (Endpoint(tables=("rtb-2",)), []),
        (Endpoint(names=True), []),
        (Endpoint(), ["s3"]),
    ):
        found = replace(there, endpoints={**ALL_ENDPOINTS, "s3": s3})
        assert checks.missing([there.subnets[1]], found, [*checks.SERVICES]) == lacking


def test_a_subnet_without_room_for_the_control_plane_is_refused() -> None:
    assert vpc.crowded(with_second(free=6)) == []
    (mistake,) = vpc.crowded(with_second(free=5))
    assert mistake.startswith(f"privateSubnetIds = {B}: has 5 free addresses, and EKS needs 6 in each subnet;")


WARNED: dict[str, tuple[Vpc, str]] = {
    "public": (with_second(public=True), f"privateSubnetIds = {B}: gives its instances public addresses"),
    "S3 by the NAT gateway": (replace(GOOD, endpoints={}), f"privateSubnetIds = {A}, {B}: have no gateway endpoint of"),
    "images from the internet": (
        replace(with_second(table=ISOLATED), endpoints={**ALL_ENDPOINTS}),
        f"privateSubnetIds = {B}: have no route to the internet, and images come from docker.io, nvcr.io, public.ecr",
    ),
    "a route to what is gone": (
        with_second(table=replace(NAT, doubtful=True)),
        f"privateSubnetIds = {B}: its route table rtb-1 has a route to something that is gone (blackhole); if that is",
    ),
    "unread": (replace(GOOD, unread="AccessDenied", endpoints={}), "The error: AccessDenied"),
}


@pytest.mark.parametrize(("there", "expected"), WARNED.values(), ids=WARNED.keys())
def test_what_may_be_wanted_is_one_warning(there: Vpc, expected: str) -> None:
    assert vpc.mistakes(stack(), there, ZONES) == []
    (warning,) = vpc.warnings(stack(), there)
    assert expected in warning


def test_images_in_ecr_need_no_internet() -> None:
    keys = ("image", "fetchImage", "etcdImage", "controllerImage", "devicePluginImage", "efaPluginImage")
    copies = dict.fromkeys(keys, "123456789012.dkr.ecr.us-west-2.amazonaws.com/copy:1")
    there = replace(with_second(table=ISOLATED), endpoints=ALL_ENDPOINTS)
    assert vpc.warnings(stack(**copies), there) == []


@pytest.mark.parametrize(
    ("free", "zones", "fitting"),
    [((1000, 90), "us-west-2b", 3), ((1000, 200), 2, 40), ((90, 1000), 1, 3)],
    ids=["a-named-zone", "two-zones", "the-zone-that-is-taken"],
)
def test_more_nodes_than_free_addresses_in_the_zones_of_workers_are_refused(
    free: tuple[int, int], zones: Any, fitting: int
) -> None:
    subnets = tuple(replace(each, free=left) for each, left in zip(GOOD.subnets, free, strict=True))
    there = replace(GOOD, subnets=subnets)
    fits, too_many = (vpc.known(stack(workerZones=zones, maxWorkers=most), there) for most in (fitting, fitting + 1))
    asked = replace(region(fits), exists=False, vpc=there)
    assert fit.addresses(fits, asked) == []
    (mistake,) = fit.addresses(too_many, asked)
    assert f"Lower it to {fitting}, add zones to workerZones, or larger subnets to privateSubnetIds" in mistake
    assert fit.addresses(too_many, replace(asked, exists=True)) == [], "the stack's own nodes have some of them"


def test_a_type_that_no_zone_of_the_subnets_has_is_refused_with_their_key() -> None:
    wanted = vpc.known(stack(region="us-east-1", instanceTypes=["g7e.2xlarge"]), moved := east(GOOD))
    (mistake,) = fit.mistakes(wanted, replace(region(wanted), vpc=moved))
    assert "none of the zones us-east-1b, us-east-1d has it; it is in us-east-1a" in mistake
    assert "Name subnets in zones that have it in privateSubnetIds, or choose another type" in mistake


def east(there: Vpc) -> Vpc:
    zones = ("us-east-1b", "us-east-1d")
    subnets = (replace(each, zone=zone) for each, zone in zip(there.subnets, zones, strict=True))
    return replace(there, subnets=tuple(subnets))


def test_the_api_may_be_private_in_a_vpc_that_is_there() -> None:
    wanted = vpc.known(stack(), GOOD)
    assert fit.mistakes(wanted, replace(region(wanted), exists=False, vpc=GOOD)) == []


REFUSED = graph.Refused("UnauthorizedOperation: not allowed")
MISSING_LINKS = {"enableDnsHostnames": False, "enableDnsSupport": True, "cidrBlockAssociations": []}


def answers(**changed: Any) -> graph.Ask:
    """Answer as `existing_vpc.ask`, but for the functions in `changed`: an answer, or an error."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = changed.get(token.rpartition(":")[2])
        if isinstance(found, Exception):
            raise found
        return existing_vpc.ask(token, arguments) if found is None else found

    return ask


def deploy(ask: graph.Ask, **changes: Any) -> graph.Graph:
    made = graph.Graph()
    config = {**graph.defaults(), **existing_vpc.CONFIG, **changes}
    try:
        graph.run(graph.program, config, ask=ask, graph=made)
    finally:
        assert [each.type for each in made.resources if each.type.startswith("aws:")] == []
    return made


def test_all_that_is_wrong_with_a_vpc_is_said_at_once_and_nothing_is_made() -> None:
    nowhere = {"routeTableId": "rtb-x", "routes": [{"cidrBlock": lookup.ANYWHERE, "vpcPeeringConnectionId": "p"}]}
    ask = answers(getVpc=MISSING_LINKS, getRouteTable=nowhere)
    with pytest.raises(settings.ConfigurationError) as refused:
        deploy(ask, workerZones=4, systemInstanceTypes=["m7g.large"])
    keys = [each.split(" ")[0] for each in refused.value.mistakes]
    assert keys == ["vpcId", "workerZones", "privateSubnetIds", "surgeNodes", "systemInstanceTypes"]


def test_a_vpc_of_another_region_is_refused_before_anything_is_made() -> None:
    with pytest.raises(settings.ConfigurationError, match=f"vpcId = {VPC}: us-west-2 has no such VPC"):
        deploy(answers(getVpc=existing_vpc.ABSENT))


def test_without_the_right_to_read_routes_the_stack_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warned.append)
    config = {**graph.defaults(), **existing_vpc.CONFIG}
    ask = answers(getRouteTable=REFUSED, getVpcEndpoint=REFUSED)
    assert graph.run(graph.program, config, ask=ask).one("eks:index:Cluster")
    assert any("allow ec2:DescribeRouteTables" in each and "UnauthorizedOperation" in each for each in warned)


def test_the_plug_in_has_the_fields_that_are_read() -> None:
    read = {
        aws.ec2.GetVpcResult: ("cidr_block_associations", "enable_dns_support", "enable_dns_hostnames"),
        aws.ec2.GetSubnetResult: ("vpc_id", "availability_zone", "available_ip_address_count"),
        aws.ec2.GetVpcEndpointResult: ("route_table_ids", "private_dns_enabled"),
    }
    for kind, names in read.items():
        assert set(names) <= inspect.signature(kind).parameters.keys()
