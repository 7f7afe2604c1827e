"""A network with all that the functions for single things answer about."""

from __future__ import annotations

from dataclasses import dataclass

from packages.localcloud.tests.standins.aws.harness import Engine

S3 = "com.amazonaws.us-west-2.s3"


@dataclass(frozen=True)
class Ids:
    """The ids of a network."""

    vpc: str
    subnet: str
    table: str
    gateway: str
    endpoint: str


def make_network(engine: Engine, name: str) -> Ids:
    """Make a VPC with a subnet, its route table with a default route, and S3's endpoint, tagged `Stack: name`."""

    def make(token: str, **inputs: object) -> str:
        return str(engine.create(token, name, {**inputs, "tags": {"Stack": name}}).id)

    vpc = make("aws:ec2/vpc:Vpc", cidrBlock="10.9.0.0/16", enableDnsHostnames=True)
    subnet = make("aws:ec2/subnet:Subnet", vpcId=vpc, cidrBlock="10.9.0.0/24", availabilityZone="us-west-2b")
    table = make("aws:ec2/routeTable:RouteTable", vpcId=vpc)
    gateway = make("aws:ec2/internetGateway:InternetGateway", vpcId=vpc)
    route = {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway}
    engine.create("aws:ec2/route:Route", name, route)
    association = {"routeTableId": table, "subnetId": subnet}
    engine.create("aws:ec2/routeTableAssociation:RouteTableAssociation", name, association)
    service = {"serviceName": S3, "vpcEndpointType": "Gateway", "routeTableIds": [table]}
    return Ids(vpc, subnet, table, gateway, make("aws:ec2/vpcEndpoint:VpcEndpoint", vpcId=vpc, **service))
