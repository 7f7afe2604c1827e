"""Makes in an account what a destroyed stack may leave there: one of each kind, as its maker tags it."""

from __future__ import annotations

import json
from typing import Any

from scripts.sweep.model import Clients, Stack
from tests.scripts.sweep.conftest import POLICY, Lacking

TRUST = {"Version": "2012-10-17", "Statement": []}
MAY_LIST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}],
}


def leave_everything(clients: Clients, lacking: Lacking, name: str) -> dict[str, str]:
    """Make one of each kind for the cluster `name` (two security groups); return the id of each by its kind."""
    stack = {"Project": "tidewater", "Stack": name.removeprefix("tidewater-")}
    owned = {f"kubernetes.io/cluster/{name}": "owned"}
    lacking.groups[f"{name}-workers"] = stack
    point = f"arn:aws:backup:us-west-2:123456789012:recovery-point:{name}"
    lacking.points[point] = stack
    lacking.policy = json.dumps(POLICY)
    lacking.rules.append(f"{name}/quay")
    return {
        **_network(clients, name, stack, owned),
        **_nodes(clients, name, stack, owned),
        "placement group": f"{name}-workers",
        "instance profile": _profile(clients, name),
        "role": _role(clients, name, stack),
        "log group": _log_group(clients, name),
        "recovery point": point,
        "pull-through rule": f"{name}/quay",
        "repository": _repository(clients, f"{name}/quay/coreos/etcd"),
        "bucket": make_bucket(clients("s3"), f"{name}-1a2b3c4"),
    }


def _network(clients: Clients, name: str, stack: dict[str, str], owned: dict[str, str]) -> dict[str, str]:
    ec2, elb, classic = clients("ec2"), clients("elbv2"), clients("elb")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    shared = {f"kubernetes.io/cluster/{name}": "shared"}
    subnet, other = (
        ec2.create_subnet(
            VpcId=vpc,
            CidrBlock=f"10.0.{index}.0/24",
            AvailabilityZone=f"us-west-2{zone}",
            TagSpecifications=_tagged("subnet", shared),
        )["Subnet"]["SubnetId"]
        for index, zone in enumerate("ab")
    )
    group = _security_groups(ec2, vpc, name, owned)
    interface = ec2.create_network_interface(
        SubnetId=subnet,
        Description="aws-K8S-i-0123",
        TagSpecifications=_tagged("network-interface", {"cluster.k8s.amazonaws.com/name": name}),
    )
    balancer = elb.create_load_balancer(
        Name=name, Subnets=[subnet, other], Tags=_tags({"elbv2.k8s.aws/cluster": name}), Type="network"
    )
    target = elb.create_target_group(
        Name=name, Protocol="TCP", Port=80, VpcId=vpc, Tags=_tags({"elbv2.k8s.aws/cluster": name})
    )
    classic.create_load_balancer(
        LoadBalancerName=name,
        Listeners=[{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 80}],
        AvailabilityZones=["us-west-2a"],
        Tags=_tags(owned),
    )
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=_tagged("elastic-ip", stack))
    return {
        "address": address["AllocationId"],
        "security group": group,
        "network interface": interface["NetworkInterface"]["NetworkInterfaceId"],
        "load balancer": balancer["LoadBalancers"][0]["LoadBalancerArn"],
        "target group": target["TargetGroups"][0]["TargetGroupArn"],
        "classic load balancer": name,
    }


def _security_groups(ec2: Any, vpc: str, name: str, owned: dict[str, str]) -> str:
    """Make two groups with rules that name each other; return the id of one."""
    one, two = (
        ec2.create_security_group(
            GroupName=f"{name}-{label}",
            Description=label,
            VpcId=vpc,
            TagSpecifications=_tagged("security-group", owned),
        )["GroupId"]
        for label in ("one", "two")
    )
    for group, peer in ((one, two), (two, one)):
        rule = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": peer}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    return str(one)


def _nodes(clients: Clients, name: str, stack: dict[str, str], owned: dict[str, str]) -> dict[str, str]:
    ec2 = clients("ec2")
    image = ec2.register_image(Name=name)["ImageId"]
    instances = ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=_tagged("instance", {"eks:eks-cluster-name": name})
    )["Instances"]
    volume = ec2.create_volume(AvailabilityZone="us-west-2a", Size=8, TagSpecifications=_tagged("volume", stack))
    template = ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={"ImageId": image},
        TagSpecifications=_tagged("launch-template", owned),
    )["LaunchTemplate"]
    return {
        "instance": instances[0]["InstanceId"],
        "volume": volume["VolumeId"],
        "launch template": template["LaunchTemplateId"],
    }


def _profile(clients: Clients, name: str) -> str:
    iam = clients("iam")
    iam.create_role(RoleName=f"{name}-node", AssumeRolePolicyDocument=json.dumps(TRUST))
    profile = f"{name}_4067990795380418201"
    iam.create_instance_profile(InstanceProfileName=profile, Path=f"/karpenter/us-west-2/{name}/workers/")
    iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=f"{name}-node")
    return profile


def _role(clients: Clients, name: str, stack: dict[str, str]) -> str:
    iam, role = clients("iam"), f"{name}-controller-1a2b3c4"
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(TRUST), Tags=_tags(stack))
    iam.put_role_policy(RoleName=role, PolicyName="own", PolicyDocument=json.dumps(MAY_LIST))
    policy = iam.create_policy(PolicyName=role, PolicyDocument=json.dumps(MAY_LIST))["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role, PolicyArn=policy)
    return role


def _log_group(clients: Clients, name: str) -> str:
    group = f"/aws/eks/{name}/cluster"
    clients("logs").create_log_group(logGroupName=group)
    return group


def _repository(clients: Clients, name: str) -> str:
    clients("ecr").create_repository(repositoryName=name)
    return name


def make_bucket(s3: Any, name: str) -> str:
    """Make an empty bucket without tags in the client's region; return its name."""
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    return name


def make_strangers(ec2: Any, stack: Stack) -> tuple[str, str, str, str]:
    """Make a VPC and a subnet of the stack, and in them a security group and an endpoint as GuardDuty makes them."""
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=_tagged("vpc", stack.tags))["Vpc"]["VpcId"]
    tagged = _tagged("subnet", stack.tags)
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24", TagSpecifications=tagged)["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="GuardDutyManagedSecurityGroup", Description="x", VpcId=vpc)["GroupId"]
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc,
        VpcEndpointType="Interface",
        ServiceName="com.amazonaws.us-west-2.guardduty-data",
        SubnetIds=[subnet],
        SecurityGroupIds=[group],
    )["VpcEndpoint"]
    return vpc, subnet, group, endpoint["VpcEndpointId"]


def _tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _tagged(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": _tags(tags)}]
