"""Asks AWS about an existing VPC: `infra.preflight.lookup` does so at the same time as it asks the rest.

The plug-in's functions for single things end with an error if there is none; that is an answer here. Without the right
to read routes or endpoints the stack may still be made, so that is no error either.
"""

from __future__ import annotations

import asyncio
import re

import pulumi_aws as aws

import settings
from infra.preflight.asking import Ask, or_none
from infra.preflight.vpc.checks import S3, SERVICES, Endpoint, Subnet, Table, Vpc

VPC = "aws:ec2/getVpc:getVpc"
SUBNET = "aws:ec2/getSubnet:getSubnet"
TABLE = "aws:ec2/getRouteTable:getRouteTable"
ENDPOINT = "aws:ec2/getVpcEndpoint:getVpcEndpoint"
CLUSTERS = "aws:eks/getClusters:getClusters"

_ABSENT = re.compile(r"no matching|no results|couldn't find resource|NotFound")
"""The words of the plug-in and of EC2 for what doesn't exist."""

_WAYS = (
    "nat_gateway_id",
    "transit_gateway_id",
    "gateway_id",
    "network_interface_id",
    "instance_id",
    "vpc_endpoint_id",
    "core_network_arn",
    "local_gateway_id",
    "carrier_gateway_id",
)
"""Where a default route may lead. A peering connection is none: https://docs.aws.amazon.com/vpc/latest/peering/"""

ANYWHERE = "0.0.0.0/0"
PROPAGATED = "a propagated route"


async def look_up(existing: settings.ExistingVpc, region: str, ask: Ask) -> Vpc:
    """Return what AWS says of the VPC, its subnets, their routes, and the endpoints of what nodes call."""
    services = list(SERVICES)
    vpc, subnets, endpoints = await asyncio.gather(
        or_none(ask(VPC, {"id": existing.id}, aws.ec2.GetVpcResult), _ABSENT),
        asyncio.gather(*(_subnet(id_, ask) for id_ in existing.subnet_ids)),
        asyncio.gather(*(_endpoint(existing.id, region, each, ask) for each in services), return_exceptions=True),
    )
    if vpc is None:
        return Vpc(found=False, subnets=tuple(each for each, _ in subnets if each))
    found = {name: each for name, each in zip(services, endpoints, strict=True) if isinstance(each, Endpoint)}
    unread = [str(each) for each in endpoints if isinstance(each, BaseException)]
    unread += [error for _, error in subnets if error]
    return Vpc(
        found=True,
        cidrs=tuple(each.cidr_block for each in vpc.cidr_block_associations if each.state == "associated"),
        dns_support=vpc.enable_dns_support,
        dns_names=vpc.enable_dns_hostnames,
        subnets=tuple(each for each, _ in subnets if each),
        endpoints=found,
        unread=unread[0] if unread else "",
    )


async def cluster_exists(name: str, ask: Ask) -> bool:
    """Return whether there is a cluster of this name: in an existing VPC it is what says that the stack was made."""
    return name in (await ask(CLUSTERS, {}, aws.eks.GetClustersResult)).names


async def _subnet(id_: str, ask: Ask) -> tuple[Subnet | None, str]:
    """Return the subnet, if there is one, and why its routes could not be read."""
    found = await or_none(ask(SUBNET, {"id": id_}, aws.ec2.GetSubnetResult), _ABSENT)
    if found is None:
        return None, ""
    table, error = None, ""
    try:
        table = await _table(id_, found.vpc_id, ask)
    except Exception as refused:  # the SDK has no other type for it
        error = str(refused)
    free, public = found.available_ip_address_count, found.map_public_ip_on_launch
    return Subnet(id_, found.vpc_id, found.availability_zone, free, public, table), error


async def _table(subnet: str, vpc: str, ask: Ask) -> Table | None:
    """Return the subnet's route table; one without a table of its own has the VPC's main table."""
    main = {"vpcId": vpc, "filters": [{"name": "association.main", "values": ["true"]}]}
    found = await or_none(ask(TABLE, {"subnetId": subnet}, aws.ec2.GetRouteTableResult), _ABSENT) or await or_none(
        ask(TABLE, main, aws.ec2.GetRouteTableResult), _ABSENT
    )
    if found is None:
        return None
    default = [route for route in found.routes if route.cidr_block == ANYWHERE]
    ways = [way for route in default for name in _WAYS if (way := getattr(route, name, ""))]
    if not ways:
        return Table(found.route_table_id, "" if default else await _propagated(found, ask))
    if not await _has(found, "route.state", "blackhole", ask):
        return Table(found.route_table_id, ways[0])
    only = len(found.routes) == len(default)
    return Table(found.route_table_id, "" if only else ways[0], doubtful=not only)


async def _propagated(table: aws.ec2.GetRouteTableResult, ask: Ask) -> str:
    """Return what stands for a default route that a virtual private gateway has propagated: the plug-in lists none.

    https://github.com/hashicorp/terraform-provider-aws (internal/service/ec2/vpc_route_table_data_source.go)
    """
    return PROPAGATED if await _has(table, "route.destination-cidr-block", ANYWHERE, ask) else ""


async def _has(table: aws.ec2.GetRouteTableResult, filter_: str, value: str, ask: Ask) -> bool:
    """Return whether a route of the table is like this: the plug-in says neither all routes nor their states.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeRouteTables.html
    """
    asked = {"routeTableId": table.route_table_id, "filters": [{"name": filter_, "values": [value]}]}
    return await or_none(ask(TABLE, asked, aws.ec2.GetRouteTableResult), _ABSENT) is not None


def service_names(region: str, service: str) -> list[str]:
    """Return the names that a service's endpoint may have: in China some begin with `cn.`, and others don't.

    https://docs.amazonaws.cn/en_us/vpc/latest/privatelink/aws-services-privatelink-support.html
    """
    name = f"com.amazonaws.{region}.{service}"
    return [name, f"cn.{name}"] if region.startswith("cn-") else [name]


async def _endpoint(vpc: str, region: str, service: str, ask: Ask) -> Endpoint | None:
    found = [await _endpoint_of(vpc, name, service, ask) for name in service_names(region, service)]
    return next((each for each in found if each), None)


async def _endpoint_of(vpc: str, name: str, service: str, ask: Ask) -> Endpoint | None:
    asked = {"vpcId": vpc, "serviceName": name, "state": "available"}
    gateway = {**asked, "filters": [{"name": "vpc-endpoint-type", "values": ["Gateway"]}]}
    kind = aws.ec2.GetVpcEndpointResult
    # S3 may have one of each kind, and the function answers with one only.
    found = await or_none(ask(ENDPOINT, gateway, kind), _ABSENT) if service == S3 else None
    found = found or await or_none(ask(ENDPOINT, asked, kind), _ABSENT)
    if found is None:
        return None
    return Endpoint(tables=tuple(found.route_table_ids or ()), names=bool(found.private_dns_enabled))
