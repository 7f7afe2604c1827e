"""The cases of EC2: networks, security groups and launch templates."""

from __future__ import annotations

from collections.abc import Callable

from localcloud.standins.aws.entry import words

from packages.localcloud.tests.standins.aws.world import Case, Tree, World


def _single(world: World) -> Tree:
    ports = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049}
    return {"securityGroupId": world.group(), **ports, "referencedSecurityGroupId": world.group("other")}


def _template(size: int) -> Callable[[World], Tree]:
    speed = {"volumeType": "gp3", "iops": 6000, "throughput": 250}
    ebs = {"volumeSize": size, "encrypted": "true", "deleteOnTermination": "true", **speed}
    disk = {"deviceName": "/dev/xvda", "ebs": ebs}
    options = {"httpTokens": "required", "httpPutResponseHopLimit": 1, "httpEndpoint": "enabled"}
    tags = [{"resourceType": "instance", "tags": {"Name": "worker"}}]
    inputs = {"blockDeviceMappings": [disk], "metadataOptions": options, "tagSpecifications": tags}
    return lambda world: {**inputs, "updateDefaultVersion": True, "vpcSecurityGroupIds": [world.group()]}


def _flow_log(world: World, traffic: str) -> Tree:
    role = world.role("flow-logs", "vpc-flow-logs.amazonaws.com").outputs["arn"]
    group = world.get("aws:cloudwatch/logGroup:LogGroup", "flows").outputs["arn"]
    return {"vpcId": world.vpc, "trafficType": traffic, "logDestination": group, "iamRoleArn": role}


EC2_CASES = [
    Case(
        "aws:ec2/flowLog:FlowLog",
        lambda world: {**_flow_log(world, "ALL"), "tags": {"a": "1", "b": "2"}},
        lambda world: {**_flow_log(world, "ALL"), "tags": {"a": "3"}},
        lambda world: _flow_log(world, "REJECT"),
    ),
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
        lambda world: {"vpcId": world.vpc},
        lambda world: {"vpcId": world.vpc, "tags": {"a": "1"}},
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
        lambda world: {"vpcId": world.vpc, "description": "d", "tags": {"a": "1"}},
        lambda world: {"vpcId": world.vpc, "description": "d", "tags": {"b": "2"}},
        lambda world: {"vpcId": world.vpc, "description": "other"},
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
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        lambda world: {**_single(world), "description": "nfs"},
        lambda world: {**_single(world), "description": "efs", "toPort": 2050, "tags": {"a": "1"}},
        lambda world: {**_single(world), "securityGroupId": world.group("other")},
    ),
    Case(
        "aws:ec2/placementGroup:PlacementGroup",
        lambda world: {"strategy": "cluster", "tags": {"a": "1", "b": "2"}},
        lambda world: {"strategy": "cluster", "tags": {"a": "3"}},
        lambda world: {"strategy": "cluster", "name": "other"},
    ),
    Case(
        "aws:ec2/launchTemplate:LaunchTemplate",
        _template(50),
        _template(60),
        lambda world: {**_template(50)(world), "name": "other"},
        unread=words("updateDefaultVersion"),
    ),
]
