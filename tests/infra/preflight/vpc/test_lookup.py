"""What AWS says of an existing VPC is read as it is meant: main tables, propagated routes, endpoints of two kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import settings
from infra.preflight.vpc import lookup
from infra.preflight.vpc.checks import Endpoint, Table, Vpc

HERE = settings.ExistingVpc("vpc-1", ("subnet-1",))
S3 = "com.amazonaws.us-west-2.s3"
ANYWHERE = lookup.ANYWHERE
BLACKHOLE = {"name": "route.state", "values": ["blackhole"]}
NAT_ROUTE = {"cidr_block": ANYWHERE, "nat_gateway_id": "nat-1"}


class Absent(Exception):
    """The plug-in's error for a thing that doesn't exist."""

    def __init__(self) -> None:
        super().__init__("no matching EC2 Thing found")


def look_up(
    routes: list[dict[str, str]] | None = None,
    *,
    own_table: bool = True,
    propagated: bool = False,
    gone: bool = False,
    region: str = "us-west-2",
    endpoints: Mapping[tuple[str, bool], SimpleNamespace | Exception] | None = None,
) -> Vpc:
    """Look up a VPC with one subnet. `endpoints`: by the service, and whether only gateways are asked for."""
    table = SimpleNamespace(route_table_id="rtb-1", routes=[SimpleNamespace(**each) for each in routes or []])

    def answer(token: str, asked: Mapping[str, Any]) -> Any:
        match token.rpartition(":")[2]:
            case "getVpc":
                ranges = [
                    ("10.0.0.0/16", "associated"),
                    ("10.1.0.0/16", "disassociated"),
                    ("10.2.0.0/16", "associated"),
                ]
                found = [SimpleNamespace(cidr_block=cidr, state=state) for cidr, state in ranges]
                return SimpleNamespace(
                    cidr_block_associations=found, enable_dns_support=True, enable_dns_hostnames=False
                )
            case "getSubnet":
                place = {"vpc_id": "vpc-1", "availability_zone": "us-west-2a"}
                return SimpleNamespace(**place, available_ip_address_count=7, map_public_ip_on_launch=True)
            case "getRouteTable":
                there = own_table if "subnetId" in asked else True
                if "routeTableId" in asked:
                    (wanted,) = asked["filters"]
                    there = gone if wanted == BLACKHOLE else propagated
                return table if there else Absent()
        return (endpoints or {}).get((asked["serviceName"], "filters" in asked), Absent())

    async def ask(token: str, asked: Mapping[str, Any], _: type) -> Any:
        found = answer(token, asked)
        if isinstance(found, Exception):
            raise found
        return found

    return asyncio.run(lookup.look_up(HERE, region, ask))


def test_the_ranges_are_those_that_the_vpc_has_now() -> None:
    found = look_up()
    assert found.cidrs == ("10.0.0.0/16", "10.2.0.0/16")
    assert (found.found, found.dns_support, found.dns_names, found.unread) == (True, True, False, "")
    (subnet,) = found.subnets
    assert (subnet.zone, subnet.free, subnet.public) == ("us-west-2a", 7, True)


@pytest.mark.parametrize(
    ("routes", "propagated", "way"),
    [
        pytest.param([{"cidr_block": ANYWHERE, "nat_gateway_id": "nat-1"}], False, "nat-1", id="NAT"),
        pytest.param([{"cidr_block": ANYWHERE, "transit_gateway_id": "tgw-1"}], False, "tgw-1", id="transit gateway"),
        pytest.param([{"cidr_block": ANYWHERE, "network_interface_id": "eni-1"}], False, "eni-1", id="instance"),
        pytest.param(
            [{"cidr_block": "10.0.0.0/8", "transit_gateway_id": "tgw-1"}], False, "", id="only to the company"
        ),
        pytest.param([{"cidr_block": ANYWHERE, "vpc_peering_connection_id": "pcx-1"}], True, "", id="peering"),
        pytest.param([], True, lookup.PROPAGATED, id="propagated by a VPN"),
        pytest.param([], False, "", id="none"),
    ],
)
@pytest.mark.parametrize("own_table", [True, False], ids=["own table", "main table"])
def test_the_way_to_the_internet_is_what_the_default_route_leads_to(
    routes: list[dict[str, str]], propagated: bool, way: str, own_table: bool
) -> None:
    (subnet,) = look_up(routes, propagated=propagated, own_table=own_table).subnets
    assert subnet.table == Table("rtb-1", way)


def test_a_default_route_to_what_is_gone_is_no_way_out() -> None:
    (only,) = look_up([NAT_ROUTE], gone=True).subnets
    assert only.table == Table("rtb-1", "")
    (one_of_two,) = look_up([NAT_ROUTE, {"cidr_block": "10.0.0.0/8", "transit_gateway_id": "tgw-1"}], gone=True).subnets
    assert one_of_two.table == Table("rtb-1", "nat-1", doubtful=True)


def test_in_china_an_endpoint_may_have_either_name() -> None:
    interface = SimpleNamespace(route_table_ids=[], private_dns_enabled=True)
    names = ("com.amazonaws.cn-north-1.ec2", "cn.com.amazonaws.cn-north-1.sts")
    found = look_up(region="cn-north-1", endpoints={(name, False): interface for name in names})
    assert found.endpoints == dict.fromkeys(("ec2", "sts"), Endpoint(names=True))


def test_of_s3s_endpoints_the_gateway_counts_and_without_one_the_other_kind() -> None:
    gateway = SimpleNamespace(route_table_ids=["rtb-1"], private_dns_enabled=False)
    interface = SimpleNamespace(route_table_ids=[], private_dns_enabled=True)
    both = look_up(endpoints={(S3, True): gateway, (S3, False): interface})
    assert both.endpoints == {"s3": Endpoint(tables=("rtb-1",))}
    assert look_up(endpoints={(S3, False): interface}).endpoints == {"s3": Endpoint(names=True)}


def test_a_right_that_is_missing_is_kept_and_no_error() -> None:
    found = look_up(endpoints={(S3, True): RuntimeError("UnauthorizedOperation")})
    assert (found.unread, found.endpoints) == ("UnauthorizedOperation", {})
