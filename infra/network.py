"""The VPC: public and private subnets over several zones, NAT, an S3 endpoint, a locked default security group.

    args = NetworkArgs(account.region, stack.network, stack.instance_types, stack.machines, kept.first_subnets)
    network = Network(name, args, account.options())
    network.private_subnet_ids
    FlowLogs(name, FlowLogsArgs(account, network.vpc_id, key.arn, days=90), account.options(network))

In a VPC that was there before, all of that is its owner's: the stack makes, changes and tags nothing of it.

Nodes, mount targets and the control plane's interfaces are in the private subnets; the control plane and the system
nodes only in those of the first update's zones. The public subnets hold NAT gateways, and load balancers if a workload
asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account
from infra.encryption import log_group
from infra.identity import RoleArgs, make_role
from infra.policies.roles import flow_log_group_name
from infra.zones import check_offerings, choose_worker_zones, choose_zones, plan_subnets
from settings import hardware


def distinct(zones: Sequence[str]) -> list[str]:
    """Return each zone once, in the order of their first subnets."""
    return list(dict.fromkeys(zones))


def _pairs(both: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first half's items, each with that of the second half."""
    half = len(both) // 2
    return list(zip(both[:half], both[half:], strict=True))


def firsts_of_zones(existing: settings.ExistingVpc | None, count: int) -> list[int]:
    """Return the indexes of the first subnet of each zone among `count` subnets; the stack's own have a zone each."""
    if existing is None:
        return list(range(count))
    zones = [subnet.zone for subnet in existing.subnets]
    return [zones.index(zone) for zone in distinct(zones)]


@dataclass(frozen=True)
class Private:
    """A private subnet."""

    id: pulumi.Output[str]
    zone: pulumi.Input[str]


@dataclass(frozen=True)
class NetworkArgs:
    """The region, the VPC's settings, the instance types by the key that names them, and the workers' machines."""

    region: str
    network: settings.Network
    instance_types: Mapping[str, Sequence[str]]
    machines: settings.Machines
    first_subnets: int
    """How many private subnets the stack had at its first update: a control plane stays in its zones."""


class Network(pulumi.ComponentResource):
    """See the module.

    Nodes depend on the whole component: they need the routes to pull images, and until they have left the cluster.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: list[pulumi.Output[str]]
    first_subnet_ids: list[pulumi.Output[str]]
    """Those of the private subnets that the stack had at its first update. What can't be moved stays in them."""
    mount_subnet_ids: list[pulumi.Output[str]]
    """The first of the private subnets of each zone: a file system has one mount target in a zone."""
    worker_subnet_ids: pulumi.Output[list[str]]
    """Those of the private subnets in which the workers' nodes are."""
    placement_group: pulumi.Output[str] | None
    """Name of the group that the workers' nodes are in; None if they are in none."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Network", name, None, opts)
        self._name = name
        self._child = pulumi.ResourceOptions(parent=self)
        offered = self._offered(args.instance_types)
        existing = args.network.existing
        private = self._found(existing) if existing else self._made(args, offered)
        self.private_subnet_ids = [subnet.id for subnet in private]
        self.first_subnet_ids = self.private_subnet_ids[: args.first_subnets]
        self.mount_subnet_ids = [private[index].id for index in firsts_of_zones(existing, len(private))]
        self.worker_subnet_ids = self._of_workers(private, offered, args)
        self.placement_group = self._placement_group() if args.machines.placement_group else None
        self.register_outputs({"vpcId": self.vpc_id})

    def _made(self, args: NetworkArgs, offered: pulumi.Output[list[tuple[str, str]]]) -> list[Private]:
        """Make the VPC with all that is in it; return its private subnets."""
        name, wanted = self._name, args.network
        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=wanted.cidr,
            enable_dns_hostnames=True,  # EFS mount targets and private endpoints have DNS names
            enable_dns_support=True,
            tags={"Name": name},
            opts=self._child,
        )
        self.vpc_id = vpc.id
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default",
            vpc_id=vpc.id,
            ingress=[],
            egress=[],
            tags={"Name": f"{name}-default-unused"},
            opts=self._child,
        )
        plan = plan_subnets(wanted.cidr, wanted.zone_count)
        zones = self._with_offerings(self._zones(wanted), offered, args.instance_types)
        public = self._subnets("public", plan.public, zones)
        private = self._subnets("private", plan.private, zones)
        tables = self._route(public, private, per_zone=wanted.nat_per_zone)
        aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{args.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            tags={"Name": f"{name}-s3"},
            opts=self._child,
        )
        return [Private(subnet.id, subnet.availability_zone) for subnet in private]

    def _found(self, existing: settings.ExistingVpc) -> list[Private]:
        """Return the private subnets of the existing VPC."""
        self.vpc_id = pulumi.Output.from_input(existing.id)
        return [Private(pulumi.Output.from_input(each.id), each.zone) for each in existing.subnets]

    def _zones(self, wanted: settings.Network) -> list[pulumi.Input[str]]:
        if not isinstance(wanted.zones, int):
            return list(wanted.zones)
        count = wanted.zones
        found = aws.get_availability_zones_output(
            state="available",
            exclude_zone_ids=list(hardware.ZONE_IDS_WITHOUT_EKS),
            filters=[{"name": "opt-in-status", "values": ["opt-in-not-required"]}],
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        # The value of the first update stays in the state, and a later input doesn't change it:
        # https://www.pulumi.com/docs/iac/concepts/stash/
        kept = pulumi.Stash(
            f"{self._name}-zones",
            input=found.names,
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["input"]),
        )
        both = pulumi.Output.all(kept.output, found.names)
        chosen = both.apply(lambda each: choose_zones(each[0], each[1], count))
        return [chosen[index] for index in range(count)]

    def _offered(self, wanted: Mapping[str, Sequence[str]]) -> pulumi.Output[list[tuple[str, str]]]:
        """Return the pairs of an instance type and a zone that has it."""
        names = sorted({name for types in wanted.values() for name in types})
        found = aws.ec2.get_instance_type_offerings_output(
            filters=[{"name": "instance-type", "values": names}],
            location_type="availability-zone",
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return pulumi.Output.all(found.instance_types, found.locations).apply(
            lambda given: list(zip(given[0], given[1], strict=True))
        )

    def _with_offerings(
        self,
        zones: list[pulumi.Input[str]],
        offered: pulumi.Output[list[tuple[str, str]]],
        wanted: Mapping[str, Sequence[str]],
    ) -> list[pulumi.Input[str]]:
        checked = pulumi.Output.all(offered, *zones).apply(lambda given: check_offerings(given[1:], given[0], wanted))
        return [checked[index] for index in range(len(zones))]

    def _of_workers(
        self, private: list[Private], offered: pulumi.Output[list[tuple[str, str]]], args: NetworkArgs
    ) -> pulumi.Output[list[str]]:
        asked, types = args.machines.zones, args.instance_types
        # From the zones alone, which a preview knows: it reports a mistake although no subnet exists yet.
        zones = [subnet.zone for subnet in private]
        names = pulumi.Output.all(offered, *zones).apply(
            lambda given: choose_worker_zones(distinct(given[1:]), given[0], types, asked)
        )
        if isinstance(asked, int):
            # The value of the first update with this count stays in the state, and a choice for another count is none
            # for this one: https://www.pulumi.com/docs/iac/concepts/stash/
            kept = pulumi.Stash(
                f"{self._name}-worker-zones-{asked}",
                input=names,
                opts=pulumi.ResourceOptions(parent=self, ignore_changes=["input"]),
            )
            names = pulumi.Output.all(offered, kept.output, *zones).apply(
                lambda given: choose_worker_zones(distinct(given[2:]), given[0], types, asked, given[1])
            )
        return pulumi.Output.all(names, *zones, *(subnet.id for subnet in private)).apply(
            lambda given: [id_ for zone, id_ in _pairs(given[1:]) if zone in given[0]]
        )

    def _placement_group(self) -> pulumi.Output[str]:
        name = f"{self._name}-workers"
        return aws.ec2.PlacementGroup(name, strategy="cluster", tags={"Name": name}, opts=self._child).name

    def _subnets(self, kind: str, ranges: tuple[str, ...], zones: list[pulumi.Input[str]]) -> list[aws.ec2.Subnet]:
        # EKS and its load balancer controller look for these tags.
        # https://docs.aws.amazon.com/eks/latest/userguide/network-load-balancing.html
        role = "kubernetes.io/role/elb" if kind == "public" else "kubernetes.io/role/internal-elb"
        return [
            aws.ec2.Subnet(
                f"{self._name}-{kind}-{index}",
                vpc_id=self.vpc_id,
                cidr_block=range_,
                availability_zone=zones[index],
                map_public_ip_on_launch=False,
                tags={
                    "Name": f"{self._name}-{kind}-{index}",
                    role: "1",
                    f"kubernetes.io/cluster/{self._name}": "shared",
                },
                opts=self._child,
            )
            for index, range_ in enumerate(ranges)
        ]

    def _route(
        self, public: list[aws.ec2.Subnet], private: list[aws.ec2.Subnet], *, per_zone: bool
    ) -> list[aws.ec2.RouteTable]:
        internet = aws.ec2.InternetGateway(
            f"{self._name}-internet", vpc_id=self.vpc_id, tags={"Name": self._name}, opts=self._child
        )
        outward = self._table("public", public)
        to_internet = aws.ec2.Route(
            f"{self._name}-public",
            route_table_id=outward.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=self._child,
        )
        gateways = [self._nat(index, public[index], to_internet) for index in range(len(public) if per_zone else 1)]
        tables = [outward]
        for index, subnet in enumerate(private):
            table = self._table(f"private-{index}", [subnet])
            tables.append(table)
            aws.ec2.Route(
                f"{self._name}-private-{index}",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateways[index % len(gateways)].id,
                opts=self._child,
            )
        return tables

    def _table(self, label: str, subnets: list[aws.ec2.Subnet]) -> aws.ec2.RouteTable:
        name = f"{self._name}-{label}"
        table = aws.ec2.RouteTable(name, vpc_id=self.vpc_id, tags={"Name": name}, opts=self._child)
        for index, subnet in enumerate(subnets):
            aws.ec2.RouteTableAssociation(
                f"{name}-subnet-{index}", route_table_id=table.id, subnet_id=subnet.id, opts=self._child
            )
        return table

    def _nat(self, index: int, subnet: aws.ec2.Subnet, internet: aws.ec2.Route) -> aws.ec2.NatGateway:
        name = f"{self._name}-nat-{index}"
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=self._child)
        return aws.ec2.NatGateway(
            name,
            allocation_id=address.id,
            subnet_id=subnet.id,
            tags={"Name": name},
            # AWS refuses a NAT gateway in a VPC without a route to the internet.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[internet]),
        )


@dataclass(frozen=True)
class FlowLogsArgs:
    """The account, the VPC, the key of the logs, and how many days they are kept."""

    account: Account
    vpc_id: pulumi.Input[str]
    key_arn: pulumi.Input[str]
    days: int


class FlowLogs(pulumi.ComponentResource):
    """Who exchanges how much with whom in the VPC, as CloudWatch logs; AWS adds what it has seen each ten minutes."""

    def __init__(self, name: str, args: FlowLogsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:FlowLogs", name, None, opts)
        child, entry = pulumi.ResourceOptions(parent=self), f"{name}-flow-logs"
        group = log_group(entry, flow_log_group_name(name), key_arn=args.key_arn, retention_days=args.days, opts=child)
        description = f"The flow logs of the VPC of {name}"
        role = make_role(entry, RoleArgs(args.account, "flow-logs", description, {"log_group": group.arn}), child)
        aws.ec2.FlowLog(
            entry,
            vpc_id=args.vpc_id,
            traffic_type="ALL",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            tags={"Name": entry},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*role.written]),
        )
        self.register_outputs({})
