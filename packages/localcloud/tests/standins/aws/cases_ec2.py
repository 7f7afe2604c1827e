"""The cases of EC2: networks, security groups and launch templates."""

from __future__ import annotations

from collections.abc import Callable

from localcloud.standins.aws.entry import words

from packages.localcloud.tests.standins.aws.world import Case, Tree, World


def _rule(world: World) -> Tree:
    return {
        "type": "ingress",
        "securityGroupId": world.group(),
        "protocol": "tcp",
        "fromPort": 443,
        "toPort": 443,
        "cidrBlocks": ["10.0.0.0/16"],
        "description": "d",
    }


def _single(world: World) -> Tree:
    ports = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049}
    return {"securityGroupId": world.group(), **ports, "referencedSecurityGroupId": world.group("other")}


def _inline(cidr: str) -> Callable[[World], Tree]:
    rule = {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": [cidr], "description": "ssh"}
    out = {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}
    return lambda world: {"vpcId": world.vpc, "ingress": [rule], "egress": [out], "tags": {"a": "1"}}


def _template(size: int) -> Callable[[World], Tree]:
    speed = {"volumeType": "gp3", "iops": 6000, "throughput": 250}
    ebs = {"volumeSize": size, "encrypted": "true", "deleteOnTermination": "true", **speed}
    disk = {"deviceName": "/dev/xvda", "ebs": ebs}
    options = {"httpTokens": "required", "httpPutResponseHopLimit": 1, "httpEndpoint": "enabled"}
    tags = [{"resourceType": "instance", "tags": {"Name": "worker"}}]
    inputs = {"blockDeviceMappings": [disk], "metadataOptions": options, "tagSpecifications": tags}
    return lambda world: {**inputs, "updateDefaultVersion": True, "vpcSecurityGroupIds": [world.group()]}


def _table(world: World, cidr: str) -> Tree:
    return {"vpcId": world.vpc, "routes": [{"cidrBlock": cidr, "gatewayId": world.gateway}]}


EC2_CASES = [
    Case(
        "aws:ec2/vpc:Vpc",
        lambda world: {"cidrBlock": "10.1.0.0/16", "tags": {"a": "1", "b": "2"}},
        lambda world: {"cidrBlock": "10.1.0.0/16", "enableDnsHostnames": True, "tags": {"a": "3"}},
        lambda world: {"cidrBlock": "10.2.0.0/16"},
    ),
    Case(
        "aws:ec2/subnet:Subnet",
        lambda world: {"vpcId": world.vpc, "cidrBlock": "10.0.1.0/24", "availabilityZone": "us-west-2a"},
        lambda world: {
            "vpcId": world.vpc,
            "cidrBlock": "10.0.1.0/24",
            "availabilityZone": "us-west-2a",
            "mapPublicIpOnLaunch": True,
            "tags": {"a": "1"},
        },
        lambda world: {"vpcId": world.vpc, "cidrBlock": "10.0.1.0/24", "availabilityZone": "us-west-2b"},
    ),
    Case(
        "aws:ec2/routeTable:RouteTable",
        lambda world: _table(world, "0.0.0.0/0"),
        lambda world: _table(world, "192.168.0.0/16"),
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.5.0.0/16").id},
    ),
    Case(
        "aws:ec2/route:Route",
        lambda world: {
            "routeTableId": world.table(),
            "destinationCidrBlock": "1.2.3.0/24",
            "gatewayId": world.gateway,
        },
        None,
        lambda world: {
            "routeTableId": world.table(),
            "destinationCidrBlock": "1.2.4.0/24",
            "gatewayId": world.gateway,
        },
        import_id=lambda route: f"{route.inputs['routeTableId']}_1.2.3.0/24",
    ),
    Case(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        lambda world: {"routeTableId": world.table(), "subnetId": world.subnet()},
        lambda world: {"routeTableId": world.table("second"), "subnetId": world.subnet()},
        lambda world: {"routeTableId": world.table(), "subnetId": world.subnet("b")},
        import_id=lambda found: f"{found.inputs['subnetId']}/{found.inputs['routeTableId']}",
    ),
    Case(
        "aws:ec2/internetGateway:InternetGateway",
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.6.0.0/16").id},
        lambda world: {"vpcId": world.fresh("aws:ec2/vpc:Vpc", cidrBlock="10.7.0.0/16").id, "tags": {"a": "1"}},
    ),
    Case("aws:ec2/eip:Eip", lambda world: {"domain": "vpc"}, lambda world: {"domain": "vpc", "tags": {"a": "1"}}),
    Case(
        "aws:ec2/natGateway:NatGateway",
        lambda world: {"subnetId": world.subnet(), "allocationId": world.address()},
        lambda world: {"subnetId": world.subnet(), "allocationId": world.address(), "tags": {"a": "1"}},
        lambda world: {"subnetId": world.subnet("b"), "allocationId": world.address()},
    ),
    Case(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        lambda world: {
            "vpcId": world.vpc,
            "serviceName": "com.amazonaws.us-west-2.s3",
            "routeTableIds": [world.table()],
        },
        lambda world: {
            "vpcId": world.vpc,
            "serviceName": "com.amazonaws.us-west-2.s3",
            "routeTableIds": [world.table(), world.table("second")],
            "tags": {"a": "1"},
        },
        lambda world: {"vpcId": world.vpc, "serviceName": "com.amazonaws.us-west-2.dynamodb"},
    ),
    Case(
        "aws:ec2/securityGroup:SecurityGroup",
        _inline("10.0.0.0/8"),
        _inline("10.0.0.0/16"),
        lambda world: {**_inline("10.0.0.0/8")(world), "description": "other"},
    ),
    Case(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        lambda world: {"vpcId": world.get("aws:ec2/vpc:Vpc", "bare", cidrBlock="10.8.0.0/16").id},
        lambda world: {
            "vpcId": world.get("aws:ec2/vpc:Vpc", "bare", cidrBlock="10.8.0.0/16").id,
            "tags": {"a": "1"},
        },
    ),
    Case(
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        _rule,
        lambda world: {**_rule(world), "description": "e"},
        lambda world: {**_rule(world), "toPort": 444},
        importable=False,
    ),
    Case(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        lambda world: {**_single(world), "description": "nfs"},
        lambda world: {**_single(world), "description": "efs", "toPort": 2050, "tags": {"a": "1"}},
        lambda world: {**_single(world), "securityGroupId": world.group("other")},
    ),
    Case(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        lambda world: {"securityGroupId": world.group(), "ipProtocol": "-1", "cidrIpv4": "1.0.0.0/8"},
        lambda world: {"securityGroupId": world.group(), "ipProtocol": "-1", "cidrIpv4": "2.0.0.0/8"},
        lambda world: {"securityGroupId": world.group("other"), "ipProtocol": "-1", "cidrIpv4": "1.0.0.0/8"},
    ),
    Case(
        "aws:ec2/placementGroup:PlacementGroup",
        lambda world: {"strategy": "cluster", "tags": {"a": "1", "b": "2"}},
        lambda world: {"strategy": "cluster", "tags": {"a": "3"}},
        lambda world: {"strategy": "spread"},
    ),
    Case(
        "aws:ec2/launchTemplate:LaunchTemplate",
        _template(50),
        _template(60),
        lambda world: {**_template(50)(world), "name": "other"},
        unread=words("updateDefaultVersion"),
    ),
]
