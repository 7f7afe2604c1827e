"""What is left of the network: load balancers of Services, network interfaces of pods, security groups, addresses.

Any of the first three keeps the VPC from being deleted: pulumi-eks#194, #640, #779.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scripts.sweep.model import Clients, Kind, Stack, pages, tags_of

Tree = Mapping[str, Any]

TAGS_AT_ONCE = 20
"""Load balancers that one DescribeTags may name:
https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_DescribeTags.html"""


def _load_balancers(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    elb = clients("elbv2")
    found = {each["LoadBalancerArn"]: each for each in pages(elb, "describe_load_balancers", "LoadBalancers")}
    for arns in _in_parts(list(found)):
        for described in elb.describe_tags(ResourceArns=arns)["TagDescriptions"]:
            if stack.owns(tags_of(described["Tags"])):
                arn = described["ResourceArn"]
                yield arn, f"{found[arn]['Type']}, {found[arn]['DNSName']}"


def _classic_load_balancers(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    elb = clients("elb")
    all_ = pages(elb, "describe_load_balancers", "LoadBalancerDescriptions")
    found = {each["LoadBalancerName"]: each["DNSName"] for each in all_}
    for names in _in_parts(list(found)):
        for described in elb.describe_tags(LoadBalancerNames=names)["TagDescriptions"]:
            if stack.owns(tags_of(described["Tags"])):
                yield described["LoadBalancerName"], found[described["LoadBalancerName"]]


def _target_groups(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    elb = clients("elbv2")
    found = {each["TargetGroupArn"]: each for each in pages(elb, "describe_target_groups", "TargetGroups")}
    for arns in _in_parts(list(found)):
        for described in elb.describe_tags(ResourceArns=arns)["TagDescriptions"]:
            if stack.owns(tags_of(described["Tags"])):
                yield described["ResourceArn"], found[described["ResourceArn"]]["TargetGroupName"]


def _interfaces(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """An interface that vpc-cni made stays if its node ends between creating, attaching and deleting it.

    amazon-vpc-cni-k8s#608, #2854.
    """
    free = [{"Name": "status", "Values": ["available"]}]
    for interface in pages(clients("ec2"), "describe_network_interfaces", "NetworkInterfaces", Filters=free):
        if stack.owns(tags_of(interface.get("TagSet"))):
            yield interface["NetworkInterfaceId"], interface.get("Description", "")


def _security_groups(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    for group in pages(clients("ec2"), "describe_security_groups", "SecurityGroups"):
        if group["GroupName"] != "default" and stack.owns(tags_of(group.get("Tags"))):
            yield group["GroupId"], group["GroupName"]


def _addresses(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """One is left if AWS made it and the answer was lost: Pulumi doesn't know of it, and AWS bills it by the hour."""
    for address in clients("ec2").describe_addresses()["Addresses"]:
        if "AssociationId" not in address and stack.owns(tags_of(address.get("Tags"))):
            yield address["AllocationId"], address["PublicIp"]


@dataclass(frozen=True)
class Stranger:
    """What others have in the stack's VPC: AWS deletes no VPC with a security group or an endpoint in it.

    GuardDuty makes both: https://github.com/hashicorp/terraform-provider-aws/issues/46953
    """

    kind: str
    id: str
    name: str
    keeps: tuple[str, ...]
    """The VPC, and an endpoint's subnets."""
    deletion: str
    """The command of the AWS CLI."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id} ({self.name})"


def strangers_among(groups: Iterable[Tree], endpoints: Iterable[Tree], stack: Stack) -> Iterator[Stranger]:
    """Yield the strangers in the order in which AWS deletes them: an endpoint uses its security groups."""
    for each in endpoints:
        if not stack.owns(tags_of(each.get("Tags"))):
            id_, keeps = each["VpcEndpointId"], (each["VpcId"], *each.get("SubnetIds", ()))
            command = f"aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id_}"
            yield Stranger("endpoint", id_, each["ServiceName"], keeps, command)
    for each in groups:
        # The default group goes with its VPC.
        if each["GroupName"] != "default" and not stack.owns(tags_of(each.get("Tags"))):
            id_, command = each["GroupId"], f"aws ec2 delete-security-group --group-id {each['GroupId']}"
            yield Stranger("security group", id_, each["GroupName"], (each["VpcId"],), command)


def strangers(clients: Clients, stack: Stack) -> Iterator[Stranger]:
    """Yield what others have in the stack's VPC."""
    ec2 = clients("ec2")
    own = [{"Name": f"tag:{key}", "Values": [value]} for key, value in stack.tags.items()]
    vpcs = [vpc["VpcId"] for vpc in pages(ec2, "describe_vpcs", "Vpcs", Filters=own)]
    there = [{"Name": "vpc-id", "Values": vpcs}]
    if vpcs:
        groups = pages(ec2, "describe_security_groups", "SecurityGroups", Filters=there)
        yield from strangers_among(groups, pages(ec2, "describe_vpc_endpoints", "VpcEndpoints", Filters=there), stack)


@contextmanager
def _without_rules(clients: Clients, ids: Sequence[str]) -> Iterator[None]:
    """Remove the rules of all groups first: a group that another one's rule names can't be deleted."""
    ec2 = clients("ec2")
    still_there = [{"Name": "group-id", "Values": list(ids)}]
    for group in list(pages(ec2, "describe_security_groups", "SecurityGroups", Filters=still_there)):
        for revoke, rules in (
            (ec2.revoke_security_group_ingress, group["IpPermissions"]),
            (ec2.revoke_security_group_egress, group["IpPermissionsEgress"]),
        ):
            if rules:
                revoke(GroupId=group["GroupId"], IpPermissions=rules)
    yield


def _in_parts(ids: Sequence[str]) -> Iterator[list[Any]]:
    for start in range(0, len(ids), TAGS_AT_ONCE):
        yield list(ids[start : start + TAGS_AT_ONCE])


LOAD_BALANCERS = Kind(
    "load balancer", _load_balancers, lambda clients, id_: clients("elbv2").delete_load_balancer(LoadBalancerArn=id_)
)
CLASSIC_LOAD_BALANCERS = Kind(
    "classic load balancer",
    _classic_load_balancers,
    lambda clients, id_: clients("elb").delete_load_balancer(LoadBalancerName=id_),
)
TARGET_GROUPS = Kind(
    "target group", _target_groups, lambda clients, id_: clients("elbv2").delete_target_group(TargetGroupArn=id_)
)
INTERFACES = Kind(
    "network interface",
    _interfaces,
    lambda clients, id_: clients("ec2").delete_network_interface(NetworkInterfaceId=id_),
)
SECURITY_GROUPS = Kind(
    "security group",
    _security_groups,
    lambda clients, id_: clients("ec2").delete_security_group(GroupId=id_),
    _without_rules,
)
ADDRESSES = Kind("address", _addresses, lambda clients, id_: clients("ec2").release_address(AllocationId=id_))
