"""A stack stays where its first update put it: in its region, VPC and zones, under its name, in its namespace.

    account = connect(wanted, place.keep(wanted))       # before the provider: a refused update leaves it as it is

Another region, cluster name, range of the VPC or namespace would replace what holds the data, under the same resource
names. Such an update ends in the middle: two members of etcd use the same files, and a name in AWS is taken. When the
setting is then set back, Pulumi creates the old objects again, finds that they exist, and deletes them in the end,
because the state lists them as objects to delete.

So would another VPC, other subnets of an existing one, another cluster or file system, or another KMS key: EFS and EKS
keep the key that they began with, and who reads the bucket has the rights to one key only. EKS also keeps the role of a
cluster and that of a node group:
https://docs.aws.amazon.com/eks/latest/APIReference/API_UpdateClusterConfig.html

A control plane stays in the zones that it was made in, and EKS refuses subnets of others. Nodes can be in further ones:
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html#network-requirements-subnets
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pulumi

# See `lookup`: the program waits for the answer, since nothing may be registered before it.
from pulumi.runtime.sync_await import _sync_await

import settings


@dataclass(frozen=True)
class Place:
    """Where a stack is."""

    region: str
    stack: str
    """The stack's name, from which the cluster has its name."""
    namespace: str
    cidr: str
    """The range of the VPC."""
    zones: str
    """As in the setting: a count, or names with commas between them. Empty in an existing VPC, as the range is."""
    vpc: str = ""
    """Id of the existing VPC; empty if the stack has its own."""
    subnets: str = ""
    """Ids of the subnets in it, with commas between them."""
    cluster: str = ""
    """Name of the existing cluster; empty if the stack has its own."""
    files: str = ""
    """Id of the existing file system; empty if the stack has its own."""
    data_key: str = ""
    """ARN of the customer's KMS key of the data; empty if the stack has its own."""
    role: str = ""
    """ARN of the given role of the cluster, or of the nodes on an existing one; empty if the stack makes its roles."""

    @classmethod
    def of(cls, wanted: settings.Settings) -> Place:
        """Return the place that the settings name."""
        here = (wanted.region, wanted.stack, wanted.training.namespace)
        network, existing, there = wanted.network, wanted.network.existing, wanted.cluster.existing
        owned = {"data_key": wanted.data_key, "role": wanted.roles.arns.get("node" if there else "cluster", "")}
        if existing:
            subnets, cluster = ",".join(existing.subnet_ids), there.name if there else ""
            owned |= {"vpc": existing.id, "subnets": subnets, "cluster": cluster, "files": wanted.file_system}
            return cls(*here, cidr="", zones="", **owned)
        named = str(network.zones) if isinstance(network.zones, int) else ",".join(network.zones)
        return cls(*here, network.cidr, named, **owned)

    @property
    def subnet_count(self) -> int:
        """Return the number of private subnets: one in each zone of the stack's own VPC."""
        return int(self.zones) if self.zones.isdigit() else len((self.subnets or self.zones).split(","))

    def begins_with_zones_of(self, first: Place) -> bool:
        """Return whether the zones are those of `first`, in the same order, perhaps with others after them."""
        if self.zones.isdigit() and first.zones.isdigit():
            return self.subnet_count >= first.subnet_count
        return self.zones.split(",")[: first.subnet_count] == first.zones.split(",")

    def begins_with_subnets_of(self, first: Place) -> bool:
        """Return whether the subnets are those of `first`, in the same order, perhaps with others after them."""
        return self.subnets.split(",")[: first.subnet_count] == first.subnets.split(",")


NETWORK = ("cidr", "zones", "vpc", "subnets", "cluster", "files", "data_key", "role")
"""What earlier versions did not record: they have a record of their own, since one that exists never changes."""

OWN = {"vpc": "", "subnets": "", "cluster": "", "files": "", "data_key": "", "role": ""}
"""What a record lacks if it is of a version that knew no existing VPC, cluster, file system, key or role."""


class KeptPlace(pulumi.ComponentResource):
    """The record of the place at the first update. Give it a name without a setting in it; delete it last."""

    records: tuple[pulumi.Output[Mapping[str, Any]], ...]
    first_subnets: int
    """The number of private subnets at the first update; set by `keep`."""

    def __init__(self, name: str, place: Place, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tidewater:infra:KeptPlace", name, None, opts)
        values = asdict(place)
        network = {key: values.pop(key) for key in NETWORK}
        self.records = (first_value(name, values, self), first_value(f"{name}-network", network, self))
        self.register_outputs({})


def first_value(name: str, value: Any, parent: pulumi.Resource) -> pulumi.Output[Any]:
    """Return the value at the stack's first update: it stays in the state, and a later one doesn't change it.

    https://www.pulumi.com/docs/iac/concepts/stash/
    """
    kept = pulumi.ResourceOptions(parent=parent, ignore_changes=["input"])
    return pulumi.Stash(name, input=value, opts=kept).output


def keep(wanted: settings.Settings) -> KeptPlace:
    """Record the stack's place, or compare it with the record.

    Raises:
        settings.ConfigurationError: an earlier update has recorded another place.
    """
    place = Place.of(wanted)
    kept = KeptPlace("place", place)
    first = first_place(place, _sync_await(_known(kept)))
    if found := mistakes(place, first):
        raise settings.ConfigurationError(found)
    kept.first_subnets = first.subnet_count
    return kept


async def _known(kept: KeptPlace) -> Mapping[str, Any]:
    """Return what is recorded; in a preview, what earlier updates have recorded."""
    return {key: value for record in kept.records for key, value in (await record.future() or {}).items()}


def first_place(place: Place, recorded: Mapping[str, Any]) -> Place:
    """Return the place at the first update. What is not recorded yet is as it is in `place`."""
    return replace(place, **{**(OWN if recorded else {}), **recorded})


def mistakes(place: Place, first: Place) -> list[str]:
    """Return what the settings would move or replace."""
    again = "or destroy the stack first (`pulumi destroy`), or make another stack (`pulumi stack init`)"
    found = []
    if place.region != first.region:
        found.append(f"region = {place.region}: the stack is in {first.region}; set it back, {again}")
    if place.stack != first.stack:
        found.append(
            f"the stack's name {place.stack!r}: its cluster has its name from {first.stack!r}; name the stack so again "
            f"(`pulumi stack rename {first.stack}`), {again}"
        )
    if place.namespace != first.namespace:
        found.append(
            f"namespace = {place.namespace}: the stack's etcd, data and job are in {first.namespace}; set it back, "
            f"{again}"
        )
    if place.data_key != first.data_key:
        found.append(
            f"dataKeyArn = {place.data_key or '(empty)'}: the stack's data is encrypted with "
            f"{first.data_key or 'a key of its own'}, and EFS and EKS keep the key that they began with; set it back, "
            f"{again}"
        )
    if place.role != first.role:
        name, replaced = ("node", "node groups") if place.cluster else ("cluster", "cluster")
        found.append(
            f"roleArns.{name} = {place.role or '(empty)'}: the stack began with {first.role or 'a role of its own'}, "
            f"and another role would replace the {replaced}; set it back, {again}"
        )
    return found + _moved_network(place, first, again)


def _moved_network(place: Place, first: Place, again: str) -> list[str]:
    found = []
    if place.cluster != first.cluster:
        where = first.cluster or f"a cluster of its own, tidewater-{first.stack}"
        found.append(f"clusterName = {place.cluster or '(empty)'}: the stack is on {where}; set it back, {again}")
    if place.files != first.files:
        where = first.files or "a file system of its own"
        found.append(f"fileSystemId = {place.files or '(empty)'}: the stack's data is on {where}; set it back, {again}")
    if place.vpc != first.vpc:
        where = first.vpc or f"a VPC of its own, with vpcCidr = {first.cidr}"
        return [*found, f"vpcId = {place.vpc or '(empty)'}: the stack is in {where}; set it back, {again}"]
    if not place.begins_with_subnets_of(first):
        return [
            *found,
            f"privateSubnetIds = {place.subnets}: the stack began with {first.subnets}, where its control plane and "
            f"files are; set it back, {again}. To have workers in further subnets, add their ids after these",
        ]
    if place.cidr != first.cidr:
        found.append(f"vpcCidr = {place.cidr}: the stack's VPC has {first.cidr}; set it back, {again}")
    if not place.begins_with_zones_of(first):
        more = "raise the number" if first.zones.isdigit() else "add names after these"
        found.append(
            f"availabilityZones = {place.zones}: the stack began with {first.zones}, and EKS leaves the control plane "
            f"in its zones; set it back, {again}. To have workers in further zones, {more}"
        )
    return found
