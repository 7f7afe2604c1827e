"""The stack's zones: which they are, the address ranges of their subnets, and which of them have the worker nodes.

    choose_zones(kept, available, 2)                                             # ["us-west-2a", "us-west-2b"]
    plan_subnets("10.0.0.0/16", 2).private                                       # ("10.0.0.0/19", "10.0.32.0/19")
    choose_worker_zones(zones, offered, {"instanceTypes": ("g5.xlarge",)}, 1)    # ["us-west-2a"]

By default one zone has the workers. Each step sums the gradients of all workers, and between zones that is slower and
costs $0.01 per GB in each direction:
https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer_within_the_same_AWS_Region.
The control plane, the system nodes and the file system stay in all zones.

A choice is kept. AWS offers types in further zones now and then, and another choice would replace the whole node group:
https://github.com/pulumi/pulumi-eks/pull/1593.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

PUBLIC_PREFIX = 24
"""Size of a public subnet: a NAT gateway and load balancers need few addresses."""

SYSTEM_KEY = "systemInstanceTypes"
WORKER_KEYS = ("instanceTypes", "surgeInstanceTypes")
"""The config keys that name types of system nodes and of the stack's own worker nodes. Others are those of pools."""


@dataclass(frozen=True)
class SubnetPlan:
    """Address ranges of the subnets, one of each kind per zone."""

    public: tuple[str, ...]
    private: tuple[str, ...]


def plan_subnets(cidr: str, zones: int) -> SubnetPlan:
    """Divide `cidr` into eighths: the first four are private subnets, the end of the last one holds the public ones.

    The plan is always for four zones, so a zone's subnets keep their ranges when another zone is added.
    Pods take their addresses from the private subnets, so these are large.
    """
    network = ipaddress.IPv4Network(cidr)
    halves = list(network.subnets(prefixlen_diff=3))
    private = halves[:4]
    public = list(halves[7].subnets(new_prefix=max(PUBLIC_PREFIX, halves[7].prefixlen + 2)))[-4:]
    return SubnetPlan(
        public=tuple(str(each) for each in public[:zones]),
        private=tuple(str(each) for each in private[:zones]),
    )


def choose_zones(kept: Sequence[str], available: Sequence[str], wanted: int) -> list[str]:
    """Return the zones of the first `wanted` subnets: those of the stack's first update, in order, then new ones.

    AWS's list grows and shrinks. By an index into the list itself, subnets would move to other zones: they and all
    that is in them would be replaced (hashicorp/terraform-provider-aws#530).

    Args:
        kept: the zones that AWS listed at the first update.
        available: those that it lists now.
        wanted: how many the stack uses.

    Raises:
        pulumi.RunError: there are fewer than are wanted.
    """
    chosen = [*sorted(kept), *sorted(set(available) - set(kept))]
    if len(chosen) < wanted:
        raise pulumi.RunError(
            f"availabilityZones = {wanted}: the region has only {len(chosen)} that EKS can use now "
            f"({', '.join(chosen)}); set it to {len(chosen)}, or choose another region"
        )
    return chosen[:wanted]


def check_offerings(
    zones: Sequence[str], offered: Sequence[tuple[str, str]], wanted: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the zones, if at least one of them has each instance type: node groups and Karpenter use those that do.

    Args:
        zones: the stack's zones.
        offered: pairs of an instance type and a zone that has it.
        wanted: the instance types, by the key that names them.

    Raises:
        pulumi.RunError: none of the zones has a type.
    """
    for key, types in wanted.items():
        for name in types:
            having = sorted(zone for type_, zone in offered if type_ == name)
            if not set(having) & set(zones):
                elsewhere = f"it is in {', '.join(having)}" if having else "no zone of the region has it"
                raise pulumi.RunError(
                    f"{key} = {name}: none of the stack's zones {', '.join(zones)} has it; {elsewhere}. Choose another "
                    "type; in a new stack, name zones that have it in availabilityZones"
                )
    return list(zones)


def choose_worker_zones(
    zones: Sequence[str],
    offered: Sequence[tuple[str, str]],
    wanted: Mapping[str, Sequence[str]],
    asked: int | Sequence[str],
    kept: Sequence[str] = (),
) -> list[str]:
    """Return the zones for the workers, in the order of the stack's.

    Of a number of zones these are the ones that were chosen before; if there are none, or they no longer have every
    type, the first ones in which every type can be had, each type in as many as possible. A pool is in these zones too,
    and moves no node: its types count only when there is something to choose.

    Args:
        zones: the stack's zones.
        offered: pairs of an instance type and a zone that has it.
        wanted: instance types, by the key that names them; those that are not of workers don't matter.
        asked: the setting workerZones: how many, or their names, which are among the zones.
        kept: what was chosen before.

    Raises:
        pulumi.RunError: a type is in none of the workers' zones.
    """
    pairs = set(offered)
    of_workers = [(key, name) for key in WORKER_KEYS for name in wanted.get(key, ())]
    of_pools = [(key, name) for key in wanted if key not in (SYSTEM_KEY, *WORKER_KEYS) for name in wanted[key]]

    def lacks(chosen: Sequence[str]) -> tuple[int, int, int]:
        found, others = (
            [sum((name, zone) in pairs for zone in chosen) for _, name in named] for named in (of_workers, of_pools)
        )
        return found.count(0), others.count(0), -sum(found)

    if not isinstance(asked, int):
        best = [zone for zone in zones if zone in asked]
    elif len(kept) == asked and set(kept) <= set(zones) and lacks(kept)[0] == 0:
        best = [zone for zone in zones if zone in kept]
    else:
        fewest_lacks: Sequence[str] = min(itertools.combinations(zones, asked), key=lacks)
        best = list(fewest_lacks)
    for key, name in (*of_workers, *of_pools):
        if not any((name, zone) in pairs for zone in best):
            raise pulumi.RunError(_nowhere(key, name, best, [zone for zone in zones if (name, zone) in pairs]))
    return best


def _nowhere(key: str, name: str, chosen: Sequence[str], having: Sequence[str]) -> str:
    return (
        f"{key} = {name}: the workers are in {', '.join(chosen)}, which doesn't have it; it is in {', '.join(having)}. "
        f"Name that zone in workerZones, give workers more zones there, or choose types that one zone has together"
    )
