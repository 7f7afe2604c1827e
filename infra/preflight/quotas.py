"""Service quotas: which one counts which instance type, how much of each the stack needs, and whether that is there.

    needs(stack, region)           # vCPUs by quota: for the nodes of this `pulumi up`, and for `maxWorkers`
    mistakes(stack, region, needs) # the first number is too high: this `pulumi up` would wait and fail
    warnings(stack, region, needs) # the second one is: the stack can't grow as far as it may

Quotas count vCPUs per region, account and market, by the letters with which a type's name begins.
https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import settings
from infra.preflight.region import Region

SPOT = "SPOT"
ON_DEMAND = "ON_DEMAND"


@dataclass(frozen=True)
class Quota:
    """A quota of the service `ec2`."""

    code: str
    name: str

    @property
    def text(self) -> str:
        """Return the quota as a person finds it in the console."""
        return f"{self.code} ({self.name})"


_STANDARD = Quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances")
_STANDARD_SPOT = Quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests")
_G = Quota("L-DB2E81BA", "Running On-Demand G and VT instances")
_G_SPOT = Quota("L-3819A6DF", "All G and VT Spot Instance Requests")
_P = Quota("L-417A185B", "Running On-Demand P instances")

# The beginning of a type's name → the quota, by market. The first that matches counts.
_QUOTAS: tuple[tuple[str, Quota, Quota | None], ...] = (
    (r"(a|c|d|h|i|im|is|m|r|t|z)\d", _STANDARD, _STANDARD_SPOT),
    (r"(g|gr|vt)\d", _G, _G_SPOT),
    (r"p[2-4]\D", _P, Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests")),
    (r"p5\D", _P, Quota("L-C4BD4855", "All P5 Spot Instance Requests")),
    (r"p\d", _P, None),  # AWS's list of Spot quotas ends with P5
    (
        r"dl\d",
        Quota("L-6E869C2A", "Running On-Demand DL instances"),
        Quota("L-85EED4F7", "All DL Spot Instance Requests"),
    ),
    (r"f\d", Quota("L-74FC7D96", "Running On-Demand F instances"), Quota("L-88CF9481", "All F Spot Instance Requests")),
    (
        r"inf\d",
        Quota("L-1945791B", "Running On-Demand Inf instances"),
        Quota("L-B5D1601B", "All Inf Spot Instance Requests"),
    ),
    (
        r"trn\d",
        Quota("L-2C3B7624", "Running On-Demand Trn instances"),
        Quota("L-6B0D517C", "All Trn Spot Instance Requests"),
    ),
    (r"x\d", Quota("L-7295265B", "Running On-Demand X instances"), Quota("L-E3A00192", "All X Spot Instance Requests")),
    (r"hpc\d", Quota("L-F7808C92", "Running On-Demand HPC instances"), None),
    (r"u(-\d|\d)", Quota("L-43DA4232", "Running On-Demand High Memory instances"), None),
)

ANY_GENERAL_TYPE = "m5.large"
"""Without GPUs, Karpenter brings types of the families c, m and r, if no types are named; one quota counts them all."""


@dataclass(frozen=True)
class Group:
    """Nodes of one market, as many as this `pulumi up` starts and as many as there can be; `sizes` in vCPUs."""

    key: str
    sizes: Mapping[str, int]
    capacity_type: str
    now: int
    most: int
    limit: int = 0
    """The most vCPUs of a node, where its type needn't be one of `sizes`."""

    @property
    def first(self) -> str:
        """Return the type that is taken first."""
        return next(iter(self.sizes))


@dataclass
class Need:
    """What the stack needs of one quota."""

    quota: Quota
    keys: list[str] = field(default_factory=list)
    nodes: int = 0
    now: int = 0
    most: int = 0

    @property
    def where(self) -> str:
        """Return the settings that name the types."""
        return " and ".join(self.keys)


def quota_of(type_: str, capacity_type: str) -> Quota | None:
    """Return the quota that counts an instance type; None if it is not known."""
    for pattern, on_demand, spot in _QUOTAS:
        if re.match(pattern, type_):
            return spot if capacity_type == SPOT else on_demand
    return None


def codes(stack: settings.Settings) -> list[str]:
    """Return the codes of all quotas that can matter, whatever AWS says of the types."""
    core, surge = stack.workers.nodes, stack.surge
    asked = [(name, ON_DEMAND) for name in stack.system.instance_types]
    asked += [(name, core.capacity_type) for name in core.instance_types]
    if surge:
        names = surge.instance_types or (*core.instance_types, ANY_GENERAL_TYPE)
        asked += [(name, surge.capacity_type) for name in names]
    asked += [(name, pool.capacity_type) for pool in stack.pools for name in pool.instance_types]
    return sorted({quota.code for name, market in asked if (quota := quota_of(name, market)) is not None})


def groups(stack: settings.Settings, region: Region) -> list[Group]:
    """Return the stack's nodes; those of types that the region doesn't have are left out."""
    system, core = stack.system, stack.workers.nodes
    found = [
        Group("systemInstanceTypes", _sizes(system.instance_types, region), ON_DEMAND, system.desired, system.maximum),
        Group(
            "instanceTypes",
            _sizes(core.instance_types, region),
            core.capacity_type,
            now=core.desired,
            most=core.desired if stack.surge else core.maximum,  # with Karpenter the core never grows
        ),
    ]
    if stack.surge:
        found.append(_surge(stack, stack.surge, region))
    # The nodes of pools come with jobs, so this `pulumi up` starts none.
    found += [
        Group(pool.key, _sizes(pool.instance_types, region), pool.capacity_type, 0, pool.maximum)
        for pool in stack.pools
    ]
    return [group for group in found if group.sizes]


def _surge(stack: settings.Settings, surge: settings.Surge, region: Region) -> Group:
    core, workers = stack.workers.nodes.instance_types, stack.workers
    key, sizes = "surgeInstanceTypes", _sizes(surge.instance_types or core, region)
    if not surge.instance_types:
        key = "instanceTypes"
        if sizes and not all(region.types[name].gpus for name in sizes):
            sizes = {ANY_GENERAL_TYPE: min(sizes.values())}
    now = -(-workers.count // workers.per_node) - workers.nodes.desired
    if surge.reservations:  # instances in a Capacity Block count for no quota, and what is reserved only AWS knows
        now = 0
    known = {name for names in stack.instance_types.values() for name in names} <= region.types.keys()
    limit = stack.with_hardware(region.types).surge_vcpus if known and not surge.instance_types else 0
    return Group(key, sizes, surge.capacity_type, max(0, now), surge.maximum, limit)


def needs(stack: settings.Settings, region: Region) -> list[Need]:
    """Return what the stack needs of each quota: now at least, and at its largest size at most.

    Of several types AWS may take any: the smallest or the largest of those that the first one's quota counts.
    """
    found: dict[str, Need] = {}
    for group in groups(stack, region):
        quota = quota_of(group.first, group.capacity_type)
        if quota is None:
            continue
        sizes = [size for name, size in group.sizes.items() if quota_of(name, group.capacity_type) == quota]
        need = found.setdefault(quota.code, Need(quota))
        need.keys += [] if group.key in need.keys else [group.key]
        need.nodes += group.now
        need.now += group.now * min(sizes)
        need.most += group.most * max(*sizes, group.limit)
    return list(found.values())


def mistakes(stack: settings.Settings, region: Region, wanted: Sequence[Need]) -> list[str]:
    """Return a sentence for each quota that is too small for the nodes that this `pulumi up` starts."""
    return [
        f"{need.where}: {need.nodes} nodes need {need.now} vCPUs of the quota {need.quota.text}, and {region.name} has "
        f"{region.quotas[need.quota.code]:g}. {_remedy(stack, region, need)}, or choose fewer nodes or other types"
        for need in wanted
        if need.quota.code in region.quotas and need.now > region.quotas[need.quota.code]
    ]


def warnings(stack: settings.Settings, region: Region, wanted: Sequence[Need]) -> list[str]:
    """Return a sentence for each quota that is too small for the largest size, was not read, or is not known."""
    largest, found = _largest(stack), []
    for need in wanted:
        text, code = need.quota.text, need.quota.code
        if code in region.unread:
            found.append(
                f"the quota {text} could not be checked. The stack needs {need.most} vCPUs of it at {largest}. To have "
                "it checked, allow servicequotas:GetServiceQuota and servicequotas:GetAWSDefaultServiceQuota. The "
                f"error: {region.unread[code]}"
            )
        elif need.now <= region.quotas[code] < need.most:
            found.append(
                f"{need.where}: at {largest} the nodes need up to {need.most} vCPUs of the quota {text}, and "
                f"{region.name} has {region.quotas[code]:g}: some workers would wait for a node. "
                f"{_remedy(stack, region, need)}"
            )
    for group in groups(stack, region):
        if quota_of(group.first, group.capacity_type) is None:
            market = "Spot" if group.capacity_type == SPOT else "On-Demand"
            found.append(f"{group.key} = {group.first}: its {market} quota is not known here, so it was not checked")
    return found


def _largest(stack: settings.Settings) -> str:
    """Return what the largest size is, in words."""
    return f"maxWorkers = {stack.workers.maximum}{' and maxNodes of the pools' if stack.pools else ''}"


def _sizes(names: Sequence[str], region: Region) -> dict[str, int]:
    return {name: region.types[name].vcpus for name in names if name in region.types}


def _remedy(stack: settings.Settings, region: Region, need: Need) -> str:
    return (
        f"Ask for at least {need.most}, for {_largest(stack)}: `aws service-quotas "
        f"request-service-quota-increase --region {region.name} --service-code ec2 --quota-code {need.quota.code} "
        f"--desired-value {need.most}`"
    )
