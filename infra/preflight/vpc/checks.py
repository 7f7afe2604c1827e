"""Whether an existing VPC and its subnets are as the stack needs them: it changes nothing there. Pure.

Nodes and pods need names for the file system's mount targets, zones that EKS can use, addresses, and a way to AWS's
services and to the images: a route to the internet, or endpoints in the VPC.
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import settings

S3 = "s3"
SERVICES: Mapping[str, str] = {
    "ec2": "the VPC CNI, and nodes when they start",
    "ecr.api": "EKS's own images",
    "ecr.dkr": "EKS's own images",
    S3: "the layers of images in ECR, and the stack's bucket",
    "sts": "the identity of a node",
    "eks": "what a node asks of its cluster",
    "eks-auth": "the roles of pods, by the Pod Identity Agent",
    "elasticfilesystem": "the EFS CSI driver",
}
"""What nodes and pods of the stack call, and for what. Karpenter is refused without a route, so its are not here."""

WITHOUT_PROXY = ("ec2", "eks-auth", "elasticfilesystem")
"""What addons of EKS call, to which no documented value gives the variables for a proxy: the VPC CNI, the Pod Identity
Agent and the EFS CSI driver. https://github.com/aws/containers-roadmap/issues/2480 (and 2579)
https://github.com/aws/eks-pod-identity-agent (charts/eks-pod-identity-agent)"""

EKS_ADDRESSES = 6
"""The least in each subnet of a cluster. https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""

INTERNET_GATEWAY = "igw-"


@dataclass(frozen=True)
class Table:
    """The route table of a subnet.

    Attributes:
        way: id of what its default route leads to; empty if it has none, or if that is gone.
        doubtful: whether one of its routes leads to what is gone, and AWS doesn't say which.
    """

    id: str
    way: str = ""
    doubtful: bool = False


@dataclass(frozen=True)
class Subnet:
    """A subnet of `privateSubnetIds`.

    Attributes:
        free: the addresses that nothing has.
        public: whether its instances get public addresses.
        table: None if AWS did not say.
    """

    id: str
    vpc: str
    zone: str
    free: int
    public: bool = False
    table: Table | None = None

    @property
    def isolated(self) -> bool:
        """Return whether it surely has no route to the internet."""
        return self.table is not None and not self.table.way


@dataclass(frozen=True)
class Endpoint:
    """An endpoint of the VPC. A gateway has route tables; others may answer for the service's usual name."""

    tables: tuple[str, ...] = ()
    names: bool = False

    def serves(self, subnet: Subnet) -> bool:
        """Return whether what is in the subnet reaches the service by it."""
        return self.names or (subnet.table is not None and subnet.table.id in self.tables)


@dataclass(frozen=True)
class Vpc:
    """What AWS says of the VPC.

    Attributes:
        found: whether the region has it.
        subnets: those of `privateSubnetIds` that the region has, in their order.
        endpoints: by the service; those that AWS did not tell of are missing.
        unread: why routes or endpoints could not be read; empty if they could.
    """

    found: bool
    cidrs: tuple[str, ...] = ()
    dns_support: bool = True
    dns_names: bool = True
    subnets: tuple[Subnet, ...] = ()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    unread: str = ""


def known(stack: settings.Settings, vpc: Vpc | None) -> settings.Settings:
    """Return the settings with the VPC's ranges and the zones of its subnets, if the region has all of them."""
    existing = stack.network.existing
    if existing is None or vpc is None or not vpc.found or len(vpc.subnets) < len(existing.subnet_ids):
        return stack
    return stack.with_vpc(vpc.cidrs, tuple(settings.Subnet(each.id, each.zone) for each in vpc.subnets))


def mistakes(stack: settings.Settings, vpc: Vpc | None, zones: Sequence[str]) -> list[str]:
    """Return why the stack can't be in the VPC; `zones` are those of the region that EKS can use."""
    existing = stack.network.existing
    if existing is None or vpc is None:
        return []
    there = {each.id for each in vpc.subnets}
    found = [
        f"privateSubnetIds = {id_}: {stack.region} has no such subnet; correct it"
        for id_ in existing.subnet_ids
        if id_ not in there
    ]
    if not vpc.found:
        return [f"vpcId = {existing.id}: {stack.region} has no such VPC; correct it, or the region", *found]
    own = [each for each in vpc.subnets if each.vpc == existing.id]
    found += [
        f"privateSubnetIds = {each.id}: is in {each.vpc}, not in the stack's VPC; name subnets of {existing.id} only"
        for each in vpc.subnets
        if each.vpc != existing.id
    ]
    complete = len(own) == len(existing.subnet_ids)
    return [
        *_names(existing.id, vpc),
        *found,
        *(_zones(stack, own, zones) if complete else []),
        *_ways(stack, own, vpc),
    ]


def _names(id_: str, vpc: Vpc) -> list[str]:
    lacking = {
        "support": ("DNS", "nodes and pods would find no name", vpc.dns_support),
        "hostnames": ("DNS host names", "nodes would not find the file system or private endpoints", vpc.dns_names),
    }
    return [
        f"vpcId = {id_}: has {what} turned off, and {why}; turn it on: aws ec2 modify-vpc-attribute --vpc-id {id_} "
        f"--enable-dns-{flag}"
        for flag, (what, why, on) in lacking.items()
        if not on
    ]


def _zones(stack: settings.Settings, own: Sequence[Subnet], usable: Sequence[str]) -> list[str]:
    zones, asked = list(dict.fromkeys(each.zone for each in own)), stack.machines.zones
    found = [
        f"privateSubnetIds = {each.id}: is in {each.zone}, where EKS can place no control plane; name one in "
        f"{', '.join(usable)}"
        for each in own
        if each.zone not in usable
    ]
    if len(zones) == 1:
        listed = ", ".join(each.id for each in own)
        found.append(f"privateSubnetIds = {listed}: are all in {zones[0]}; EKS needs two zones, so add one of another")
    if isinstance(asked, int) and asked > len(zones):
        found.append(f"workerZones = {asked}: privateSubnetIds are in {len(zones)} ({', '.join(zones)}); lower it")
    if not isinstance(asked, int):
        found += [
            f"workerZones = {zone}: no subnet of privateSubnetIds is there; they are in {', '.join(zones)}"
            for zone in asked
            if zone not in zones
        ]
    return found


def _ways(stack: settings.Settings, own: Sequence[Subnet], vpc: Vpc) -> list[str]:
    """Return why nodes would reach neither AWS nor images."""
    closed = [each for each in own if _without_addresses(each)]
    found = [
        f"privateSubnetIds = {each.id}: its way to the internet is an internet gateway, which serves public addresses "
        "only, and its instances get none; name a subnet with a route to a NAT gateway"
        for each in closed
    ]
    isolated = [each for each in own if each.isolated]
    proxy = stack.training.proxy
    lacking = [] if vpc.unread else missing(isolated, vpc, needed(stack))
    listed, why = ", ".join(each.id for each in isolated), ", which the proxy doesn't serve" if proxy else ""
    if lacking:
        found.append(
            f"privateSubnetIds = {listed}: have no route to the internet, and the VPC lacks endpoints for "
            f"{', '.join(lacking)}{why}; make them, with private DNS names, and for s3 a gateway in the subnets' route "
            "tables; or make a route to a NAT gateway"
        )
    if isolated and stack.surge and not (proxy and proxy.serves("iam.amazonaws.com")):
        found.append(
            f"surgeNodes = karpenter: Karpenter calls IAM, which has no endpoint in a VPC, and {listed} have no route "
            "to the internet; set it to nodegroup, or make a route to a NAT gateway"
        )
    return found


def _without_addresses(subnet: Subnet) -> bool:
    return subnet.table is not None and subnet.table.way.startswith(INTERNET_GATEWAY) and not subnet.public


def needed(stack: settings.Settings) -> list[str]:
    """Return the services that need endpoints where there is no route to the internet: those that no proxy serves."""
    proxy, mounted = stack.training.proxy, stack.training.dataset.mounted
    own = {*WITHOUT_PROXY, *([S3] if mounted else [])}  # the stack gives Mountpoint for S3 no proxy

    return [each for each in SERVICES if proxy is None or each in own or not proxy.serves(_host(each, stack.region))]


def _host(service: str, region: str) -> str:
    return f"{'.'.join(reversed(service.split('.')))}.{region}.amazonaws.com"


def missing(subnets: Sequence[Subnet], vpc: Vpc, services: Sequence[str]) -> list[str]:
    """Return those of the services that one of the subnets reaches by no endpoint."""
    return [
        service
        for service in services
        if not all((vpc.endpoints.get(service) or Endpoint()).serves(subnet) for subnet in subnets)
    ]


def crowded(vpc: Vpc | None) -> list[str]:
    """Return a mistake for each subnet that has no room for the control plane's network interfaces."""
    return [
        f"privateSubnetIds = {each.id}: has {each.free} free addresses, and EKS needs {EKS_ADDRESSES} in each subnet; "
        "free some, or name a larger one"
        for each in (vpc.subnets if vpc else ())
        if each.free < EKS_ADDRESSES
    ]


def warnings(stack: settings.Settings, vpc: Vpc | None) -> list[str]:
    """Return what costs more than it has to, and what could not be seen from here."""
    if vpc is None:
        return []
    found = [
        f"privateSubnetIds = {each.id}: gives its instances public addresses, so it is no private subnet"
        for each in vpc.subnets
        if each.public
    ]
    found += [
        f"privateSubnetIds = {each.id}: its route table {each.table.id} has a route to something that is gone "
        "(blackhole); if that is the default route, nodes reach nothing: aws ec2 describe-route-tables "
        f"--route-table-ids {each.table.id}"
        for each in vpc.subnets
        if each.table and each.table.doubtful
    ]
    if vpc.unread:
        found.append(
            "the routes and endpoints of the VPC could not be checked. To have them checked, allow "
            f"ec2:DescribeRouteTables, ec2:DescribeVpcEndpoints and ec2:DescribePrefixLists. The error: {vpc.unread}"
        )
        return found
    s3 = vpc.endpoints.get(S3) or Endpoint()
    if dear := [each.id for each in vpc.subnets if each.table and each.table.way and not s3.serves(each)]:
        found.append(
            f"privateSubnetIds = {', '.join(dear)}: have no gateway endpoint of S3 in their route tables, so data and "
            "checkpoints go through what is billed by the GB, such as a NAT gateway; an endpoint costs nothing"
        )
    proxy, host = stack.training.proxy, _host(S3, stack.region)
    if proxy and proxy.serves(host) and all(s3.serves(each) for each in vpc.subnets):
        found.append(
            f"httpProxy = {proxy.url}: data and checkpoints in S3 go through it, though the VPC has an endpoint of S3; "
            f"add {host} to noProxy"
        )
    isolated = [each.id for each in vpc.subnets if each.isolated]
    if isolated and (registries := _registries(stack)):
        found.append(
            f"privateSubnetIds = {', '.join(isolated)}: have no route to the internet, and images come from "
            f"{', '.join(registries)}: no node starts them unless it reaches these in another way. Copy them to ECR"
        )
    return found


def _registries(stack: settings.Settings) -> list[str]:
    """Return the registries of the stack's images that have no endpoint in a VPC."""
    hosts: set[str] = set()

    def note(name: str) -> str:
        first = name.split("/")[0]
        hosts.add(first if "." in first else "docker.io")
        return name

    stack.with_images(note)
    proxy = stack.training.proxy
    return sorted(host for host in hosts if ".dkr.ecr." not in host and not (proxy and proxy.serves(host)))
