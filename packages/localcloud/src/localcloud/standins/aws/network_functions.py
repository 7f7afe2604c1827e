"""The functions (invokes) for networks: lists of what there is, and single things with all that AWS tells of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from localcloud.standins.aws.entry import Call, Tree, absent_as_none
from localcloud.standins.aws.registry import ENTRIES
from localcloud.standins.serve import PluginError


def filters(call: Call) -> list[Tree]:
    """Return the argument `filters` as EC2 takes it."""
    return [{"Name": item["name"], "Values": item["values"]} for item in call.inputs.get("filters") or []]


def vpcs(call: Call) -> Tree:
    """Answer `getVpcs`."""
    pages = call.client("ec2").get_paginator("describe_vpcs").paginate(Filters=filters_and_tags(call))
    return {**_asked(call), "ids": [vpc["VpcId"] for page in pages for vpc in page["Vpcs"]]}


def addresses(call: Call) -> Tree:
    """Answer `getEips`."""
    found = call.client("ec2").describe_addresses(Filters=filters_and_tags(call))["Addresses"]
    ids = [each["AllocationId"] for each in found if each.get("Domain") == "vpc"]
    return {**_asked(call), "allocationIds": ids, "publicIps": [each["PublicIp"] for each in found]}


def nat_gateways(call: Call) -> Tree:
    """Answer `getNatGateways`."""
    wanted = [*filters_and_tags(call), *_one("vpc-id", call.inputs.get("vpcId"))]
    pages = call.client("ec2").get_paginator("describe_nat_gateways").paginate(Filters=wanted)
    return {**_asked(call), "ids": [each["NatGatewayId"] for page in pages for each in page["NatGateways"]]}


def interfaces(call: Call) -> Tree:
    """Answer `getNetworkInterfaces`."""
    pages = call.client("ec2").get_paginator("describe_network_interfaces").paginate(Filters=filters_and_tags(call))
    return {**_asked(call), "ids": [each["NetworkInterfaceId"] for page in pages for each in page["NetworkInterfaces"]]}


def interface(call: Call) -> Tree:
    """Answer `getNetworkInterface`."""
    found = _single(
        call,
        "Network Interface",
        "describe_network_interfaces",
        "NetworkInterfaces",
        ids="NetworkInterfaceIds",
        names={},
    )
    return {
        **_asked(call),
        "id": found["NetworkInterfaceId"],
        "arn": "",
        "associations": [],
        "attachments": [],
        "availabilityZone": found["AvailabilityZone"],
        "description": found.get("Description", ""),
        "enaSrdSpecifications": [],
        "interfaceType": found["InterfaceType"],
        "ipv6Addresses": [],
        "macAddress": found["MacAddress"],
        "outpostArn": "",
        "ownerId": found["OwnerId"],
        "privateDnsName": found.get("PrivateDnsName", ""),
        "privateIp": found["PrivateIpAddress"],
        "privateIps": [each["PrivateIpAddress"] for each in found["PrivateIpAddresses"]],
        "requesterId": found.get("RequesterId", ""),
        "securityGroups": [each["GroupId"] for each in found["Groups"]],
        "subnetId": found["SubnetId"],
        "vpcId": found["VpcId"],
    }


def _one(name: str, value: str | None) -> list[Tree]:
    return [{"Name": name, "Values": [value]}] if value else []


def filters_and_tags(call: Call) -> list[Tree]:
    """Return the arguments `filters` and `tags` as EC2 takes them."""
    tags = call.inputs.get("tags") or {}
    return [*filters(call), *({"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items())]


def _asked(call: Call) -> Tree:
    given = {name: value for name, value in call.inputs.items() if name != "region"}
    return {"id": call.region, "region": call.region, "tags": {}, **given}


def vpc(call: Call) -> Tree:
    """Answer `getVpc`."""
    names = {"cidrBlock": "cidr", "default": "is-default", "dhcpOptionsId": "dhcp-options-id", "state": "state"}
    found = _single(call, "VPC", "describe_vpcs", "Vpcs", ids="VpcIds", names=names)
    return {
        **_facts(call, "aws:ec2/vpc:Vpc", found["VpcId"]),
        "default": found["IsDefault"],
        "state": found["State"],
        "cidrBlockAssociations": [
            {
                "associationId": each["AssociationId"],
                "cidrBlock": each["CidrBlock"],
                "state": each["CidrBlockState"]["State"],
            }
            for each in found["CidrBlockAssociationSet"]
        ],
        "ipv6AssociationId": "",
        "ipv6CidrBlock": "",
        "ipv6CidrBlockAssociations": [],
    }


def subnet(call: Call) -> Tree:
    """Answer `getSubnet`."""
    names = {
        "availabilityZone": "availability-zone",
        "availabilityZoneId": "availability-zone-id",
        "cidrBlock": "cidr-block",
        "defaultForAz": "default-for-az",
        "ipv6CidrBlock": "ipv6-cidr-block-association.ipv6-cidr-block",
        "state": "state",
        "vpcId": "vpc-id",
    }
    found = _single(call, "Subnet", "describe_subnets", "Subnets", ids="SubnetIds", names=names)
    naming = found.get("PrivateDnsNameOptionsOnLaunch") or {}
    return {
        **_facts(call, "aws:ec2/subnet:Subnet", found["SubnetId"]),
        "state": found["State"],
        "availableIpAddressCount": found["AvailableIpAddressCount"],
        "customerOwnedIpv4Pool": found.get("CustomerOwnedIpv4Pool", ""),
        "defaultForAz": found["DefaultForAz"],
        "enableDns64": bool(found.get("EnableDns64")),
        "enableLniAtDeviceIndex": found.get("EnableLniAtDeviceIndex", 0),
        "enableResourceNameDnsARecordOnLaunch": bool(naming.get("EnableResourceNameDnsARecord")),
        "enableResourceNameDnsAaaaRecordOnLaunch": bool(naming.get("EnableResourceNameDnsAAAARecord")),
        "ipv6CidrBlock": "",
        "ipv6CidrBlockAssociationId": "",
        "ipv6Native": bool(found.get("Ipv6Native")),
        "mapCustomerOwnedIpOnLaunch": bool(found.get("MapCustomerOwnedIpOnLaunch")),
        "outpostArn": found.get("OutpostArn", ""),
        "privateDnsHostnameTypeOnLaunch": naming.get("HostnameType", "ip-name"),
    }


_TARGETS: Final = {
    "carrierGatewayId": "CarrierGatewayId",
    "coreNetworkArn": "CoreNetworkArn",
    "egressOnlyGatewayId": "EgressOnlyInternetGatewayId",
    "gatewayId": "GatewayId",
    "instanceId": "InstanceId",
    "localGatewayId": "LocalGatewayId",
    "natGatewayId": "NatGatewayId",
    "networkInterfaceId": "NetworkInterfaceId",
    "odbNetworkArn": "OdbNetworkArn",
    "transitGatewayId": "TransitGatewayId",
    "vpcPeeringConnectionId": "VpcPeeringConnectionId",
}


def route_table(call: Call) -> Tree:
    """Answer `getRouteTable`; as in AWS, a subnet that has no table of its own has no match."""
    names = {
        "gatewayId": "association.gateway-id",
        "routeTableId": "route-table-id",
        "subnetId": "association.subnet-id",
        "vpcId": "vpc-id",
    }
    found = _single(call, "Route Table", "describe_route_tables", "RouteTables", ids="", names=names)
    routes = [each for each in found["Routes"] if _is_of_the_table(each)]
    return {
        **_facts(call, "aws:ec2/routeTable:RouteTable", found["RouteTableId"]),
        "routeTableId": found["RouteTableId"],
        "associations": [
            {
                "gatewayId": each.get("GatewayId", ""),
                "main": bool(each.get("Main")),
                "routeTableAssociationId": each["RouteTableAssociationId"],
                "routeTableId": each["RouteTableId"],
                "subnetId": each.get("SubnetId", ""),
            }
            for each in found["Associations"]
        ],
        "routes": [
            {
                "cidrBlock": each.get("DestinationCidrBlock", ""),
                "ipv6CidrBlock": each.get("DestinationIpv6CidrBlock", ""),
                "destinationPrefixListId": each.get("DestinationPrefixListId", ""),
                "vpcEndpointId": "",
                **{name: each.get(key) or "" for name, key in _TARGETS.items()},
            }
            for each in routes
        ],
    }


def _is_of_the_table(route: Tree) -> bool:
    """Return whether the plug-in lists a route: not the VPC's own, one of an endpoint, or one that was propagated."""
    gateway, origin = route.get("GatewayId") or "", route.get("Origin")
    return gateway != "local" and not gateway.startswith("vpce-") and origin != "EnableVgwRoutePropagation"


def endpoint(call: Call) -> Tree:
    """Answer `getVpcEndpoint`."""
    names = {
        "serviceName": "service-name",
        "serviceRegion": "service-region",
        "state": "vpc-endpoint-state",
        "vpcEndpointType": "vpc-endpoint-type",
        "vpcId": "vpc-id",
    }
    found = _single(call, "VPC Endpoint", "describe_vpc_endpoints", "VpcEndpoints", ids="VpcEndpointIds", names=names)
    names_of = found.get("DnsOptions") or {}
    return {
        **_facts(call, "aws:ec2/vpcEndpoint:VpcEndpoint", found["VpcEndpointId"]),
        "state": found["State"],
        "serviceRegion": found.get("ServiceRegion", call.region),
        "ipAddressType": found.get("IpAddressType", "ipv4"),
        "dnsOptions": [
            {
                "dnsRecordIpType": names_of.get("DnsRecordIpType", "ipv4"),
                "privateDnsOnlyForInboundResolverEndpoint": bool(
                    names_of.get("PrivateDnsOnlyForInboundResolverEndpoint")
                ),
            }
        ],
    }


def _single(call: Call, what: str, operation: str, key: str, *, ids: str, names: dict[str, str]) -> Tree:
    """Return the only thing that the arguments describe; `names` has EC2's filter for each of them."""
    wanted = filters_and_tags(call)
    for name, theirs in names.items():
        value = call.inputs.get(name)
        if value not in (None, ""):
            wanted += _one(theirs, str(value).lower() if isinstance(value, bool) else value)
    arguments: dict[str, Any] = {"Filters": wanted} if wanted else {}
    if call.inputs.get("id"):
        arguments[ids] = [call.inputs["id"]]
    describe = getattr(call.client("ec2"), operation)
    answer = absent_as_none(lambda: describe(**arguments)) or {key: []}
    found = [each for each in answer[key] if each.get("State") not in ("deleted", "deleting")]
    if not found:
        raise PluginError(f"no matching EC2 {what} found")
    if len(found) > 1:
        raise PluginError(
            f"multiple EC2 {what}s matched; use additional constraints to reduce matches to a single EC2 {what}"
        )
    only: Tree = found[0]
    return only


def _facts(call: Call, token: str, id_: str) -> Tree:
    """Return what the resource of this type says of the thing, as far as the function does."""
    found = ENTRIES[token].read(replace(call, id=id_)) or {}
    only = {name: value for name, value in found.items() if not name.startswith("default")}
    return {**_asked(call), **only, "id": id_}
