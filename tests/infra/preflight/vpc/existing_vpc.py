"""A VPC that was there before the stack, as AWS tells of it: three private subnets, two of them in one zone.

graph.run(graph.program, {**graph.defaults(), **existing_vpc.CONFIG}, ask=existing_vpc.ask)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests import graph

VPC = "vpc-0123456789abcdef0"
SUBNETS = {
    "subnet-0000000000000000a": "us-west-2a",
    "subnet-0000000000000000b": "us-west-2b",
    "subnet-0000000000000001b": "us-west-2b",
}
CONFIG: dict[str, Any] = {
    "vpcId": VPC,
    "privateSubnetIds": list(SUBNETS),
    "publicAccessCidrs": [graph.ADDRESS],
    "monitoring": "managed",
}
CIDRS = ["10.8.0.0/16", "100.64.0.0/16"]
ROUTES = [{"cidrBlock": "10.8.0.0/16", "gatewayId": "local"}, {"cidrBlock": "0.0.0.0/0", "natGatewayId": "nat-1"}]

ABSENT = graph.Refused("no matching EC2 thing found")


def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer for an account that has this VPC, a NAT gateway in it, S3's gateway endpoint, and no cluster yet."""
    match token.rpartition(":")[2]:
        case "getVpc" if arguments["id"] == VPC:
            ranges = [{"associationId": "a", "cidrBlock": cidr, "state": "associated"} for cidr in CIDRS]
            dns = {"enableDnsSupport": True, "enableDnsHostnames": True}
            return {"id": VPC, "cidrBlock": CIDRS[0], "cidrBlockAssociations": ranges, **dns}
        case "getSubnet" if arguments["id"] in SUBNETS:
            place = {"vpcId": VPC, "availabilityZone": SUBNETS[arguments["id"]]}
            return {**place, "availableIpAddressCount": 4000, "mapPublicIpOnLaunch": False}
        case "getRouteTable" if "vpcId" in arguments:
            return {"routeTableId": "rtb-main", "routes": ROUTES}
        case "getVpcEndpoint" if arguments["serviceName"] == "com.amazonaws.us-west-2.s3":
            return {"routeTableIds": ["rtb-main"], "privateDnsEnabled": False}
        case "getVpc" | "getSubnet" | "getRouteTable" | "getVpcEndpoint":
            raise ABSENT
        case "getClusters":
            return {"names": []}
        case "getVpcs" | "getEips" | "getNatGateways":
            raise AssertionError(f"{token} is asked for what the stack doesn't make")
    return graph.answer(token, arguments)
