"""Whether what AWS has fits the settings. Pure: each function returns its mistakes."""

from __future__ import annotations

import difflib
import ipaddress
import math
from collections.abc import Sequence

import pulumi

import settings
from infra.preflight.quotas import SPOT
from infra.preflight.region import Region
from infra.zones import SYSTEM_KEY, WORKER_KEYS, choose_worker_zones, plan_subnets
from settings.hardware import RETIRED_GPUS, InstanceType, Size, smallest

LEAST = Size(vcpus=2, memory_mib=4096)
"""The smallest node that has room for the addons' DaemonSets and for a pod of the stack in addition."""

CNI_INTERFACES = 2
"""The network interfaces with all their addresses that the VPC CNI has on each node: one in use, and a spare one, as
WARM_ENI_TARGET is 1. Prefixes are not delegated, so each pod takes one address.
https://docs.aws.amazon.com/eks/latest/best-practices/vpc-cni.html"""

AWS_ADDRESSES = 5
"""Of each subnet. https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"""

X86 = "x86_64"
"""The architecture of the nodes' image (`infra.node_groups`) and of the default images."""


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return what doesn't fit: access and zones, then types, in the order in which a person would correct them."""
    return [
        *_access(stack, region),
        *_zones(stack, region),
        *_offerings(stack, region),
        *_sizes(stack, region),
        *_drivers(stack, region),
        *_markets(stack, region),
        *_workers(stack, region),
        *_surge(stack, region),
        *_models(stack, region),
        *_pools(stack, region),
        *_disks(stack, region),
        *_adapters(stack, region),
    ]


def _access(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake if the Kubernetes API would be private in a VPC that is still to be made."""
    if stack.cluster.public_access_cidrs or region.exists or stack.network.existing:
        return []
    return [
        "publicAccessCidrs = []: only machines in the stack's VPC, or connected to it, would reach the Kubernetes API, "
        "and there is no VPC yet; set the address of the machine that runs pulumi: pulumi config set --path "
        "'tidewater:publicAccessCidrs[0]' \"$(curl -s https://checkip.amazonaws.com)/32\""
    ]


def possible_zones(stack: settings.Settings, region: Region) -> tuple[str, ...]:
    """Return the zones in which the stack's subnets can be. For a count, `infra.network` chooses and checks them."""
    wanted = stack.network.zones
    return region.zones if isinstance(wanted, int) else wanted


def _zones(stack: settings.Settings, region: Region) -> list[str]:
    wanted, there = stack.network.zones, ", ".join(region.zones)
    if stack.network.existing:  # for `vpc`
        return []
    if isinstance(wanted, int):
        if wanted <= len(region.zones):
            return []
        return [
            f"availabilityZones = {wanted}: {region.name} has only {len(region.zones)} that EKS can use: {there}; "
            "lower it, or choose another region"
        ]
    return [
        f"availabilityZones = {zone}: is not a zone of {region.name} that EKS can use; those are {there}"
        for zone in wanted
        if zone not in region.zones
    ]


def _offerings(stack: settings.Settings, region: Region) -> list[str]:
    zones, found = possible_zones(stack, region), []
    remedy = "subnets in zones" if stack.network.existing else "zones"
    key_of_zones = "privateSubnetIds" if stack.network.existing else "availabilityZones"
    for key, name in _named(stack):
        having = region.zones_with(name)
        if not having:
            found.append(f"{key} = {name}: {region.name} has no such instance type; {_similar(name, region)}")
        elif not set(having) & set(zones):
            found.append(
                f"{key} = {name}: none of the zones {', '.join(zones)} has it; it is in {', '.join(having)}. Name "
                f"{remedy} that have it in {key_of_zones}, or choose another type"
            )
    return found


def _similar(name: str, region: Region) -> str:
    family = f"{name.partition('.')[0]}."
    known = sorted({type_ for type_, _ in region.offered if type_.startswith(family)})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if close:
        return f"similar ones are {', '.join(close)}"
    return f"`aws ec2 describe-instance-type-offerings --region {region.name}` lists those that it has"


def _sizes(stack: settings.Settings, region: Region) -> list[str]:
    found = []
    for key, kind in _known(stack, region):
        if kind.vcpus < LEAST.vcpus or kind.memory_mib < LEAST.memory_mib:
            found.append(f"{key} = {kind.name}: has {_size(kind)}; a node needs at least {_size(LEAST)}")
        if X86 not in kind.architectures:
            found.append(
                f"{key} = {kind.name}: is an {', '.join(kind.architectures)} type, and the images of the nodes and of "
                f"the workers are {X86}; choose an {X86} type"
            )
    return found


def _drivers(stack: settings.Settings, region: Region) -> list[str]:
    return [
        f"{key} = {kind.name}: its GPU is a {kind.gpu}, and {RETIRED_GPUS[kind.gpu]}; choose a newer type, such as "
        "g5.xlarge"
        for key, kind in _known(stack, region)
        if kind.gpu in RETIRED_GPUS
    ]


def _markets(stack: settings.Settings, region: Region) -> list[str]:
    markets = {SYSTEM_KEY: "ON_DEMAND", "instanceTypes": stack.workers.nodes.capacity_type}
    markets |= {pool.key: pool.capacity_type for pool in stack.brought}
    reserved = {pool.key for pool in stack.brought if pool.reservations}
    found = []
    for key, kind in _known(stack, region):
        wanted = "spot" if markets[key] == SPOT else "on-demand"
        if not {wanted, *(["capacity-block"] if key in reserved else [])} & set(kind.usage_classes):
            sold = ", ".join(kind.usage_classes)
            found.append(
                f"{key} = {kind.name}: AWS sells it as {sold} only, and its nodes are {wanted}; choose another type"
            )
    return found


def _workers(stack: settings.Settings, region: Region) -> list[str]:
    workers, found = stack.workers, []
    gpus = workers.gpus * workers.per_node
    for key, kind in _of_workers(stack, region):
        if gpus > kind.gpus:
            found.append(
                f"gpusPerWorker = {workers.gpus}: with workersPerNode = {workers.per_node} a node needs {gpus} NVIDIA "
                f"GPUs, and {kind.name} in {key} has {kind.gpus}; choose another type, or 0 to train on CPUs"
            )
        if workers.per_node > kind.vcpus:
            found.append(f"workersPerNode = {workers.per_node}: {kind.name} in {key} has {kind.vcpus} vCPUs; lower it")
    return found


def _surge(stack: settings.Settings, region: Region) -> list[str]:
    # A worker requests its share of the smallest core node, so no smaller node has room for it.
    core = [kind for key, kind in _known(stack, region) if key == "instanceTypes"]
    if not core:
        return []
    least = smallest(core)
    limit = stack.surge.max_vcpus if stack.surge else 0
    too_few = [f"surgeMaxVcpus = {limit}: the smallest of instanceTypes has {least.vcpus}; set it to more, or to 0"]
    return (too_few if 0 < limit < least.vcpus else []) + [
        f"{key} = {kind.name}: has {_size(kind)}; a worker that fits the smallest of instanceTypes needs {_size(least)}"
        for key, kind in _known(stack, region)
        if key == "surgeInstanceTypes" and (kind.vcpus < least.vcpus or kind.memory_mib < least.memory_mib)
    ]


def _models(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake if workers would train on GPUs of different models and the settings don't ask for that."""
    return _of_different_models(stack, _of_workers(stack, region)) if stack.workers.gpus else []


def _pools(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake for each pool with nodes of two sorts: a job can't choose among them, and would get both."""
    found = []
    for pool in stack.pools:
        kinds = [(key, kind) for key, kind in _known(stack, region) if key == pool.key]
        without = [kind.name for _, kind in kinds if not kind.gpus]
        if without and len(without) < len(kinds):
            found.append(
                f"{pool.key} = {', '.join(without)}: no NVIDIA GPUs, and other types of the pool have some; make two "
                "pools of them"
            )
        else:
            found += _of_different_models(stack, kinds)
    return found


def _of_different_models(stack: settings.Settings, types: Sequence[tuple[str, InstanceType]]) -> list[str]:
    kinds = [(key, kind) for key, kind in types if kind.gpu]
    if len({kind.gpu for _, kind in kinds}) < 2 or stack.workers.mixed_gpu_models:
        return []
    keys = " and ".join(dict.fromkeys(key for key, _ in kinds))
    names = ", ".join(f"{kind.name} ({kind.gpu})" for _, kind in kinds)
    return [
        f"{keys}: {names} have different GPUs, and each step waits for the slowest; choose types with one model, or "
        "set mixedGpuModels to true"
    ]


def _disks(stack: settings.Settings, region: Region) -> list[str]:
    return [
        f"instanceStore = true: {kind.name} in {key} has no disks of its own; set it to false, or choose another type"
        for key, kind in _known(stack, region)
        if key != SYSTEM_KEY and stack.machines.instance_store and not kind.has_instance_store
    ]


def _adapters(stack: settings.Settings, region: Region) -> list[str]:
    """Return what is wrong with the EFAs: the launch template of the core is one for all its types."""
    kinds = _of_workers(stack, region)
    if not stack.machines.efa or not kinds:
        return []
    if lacking := [kind.name for _, kind in kinds if not kind.efa]:
        return [f"efa = true: {', '.join(lacking)} can have no EFA; choose larger types, or set it to false"]
    counts = {kind.name: kind.efa for _, kind in kinds}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        return [f"efa = true: all types must have the same number of EFAs; {listed}"]
    if len({kind.efa_cards for _, kind in kinds}) > 1:
        listed = ", ".join(f"{name} from card {region.types[name].efa_cards.start} on" for name in counts)
        return [f"efa = true: all types must have their EFAs on the same network cards; {listed}"]
    each, per_node = next(iter(counts.values())), stack.workers.per_node
    return [f"workersPerNode = {per_node}: does not divide the {each} EFAs of each node"] if each % per_node else []


def addresses(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake if the subnets of the workers have too few addresses for the nodes at `maxWorkers`, and if not
    that, for those of the pools too."""
    each = _held([kind for _, kind in _of_workers(stack, region)])
    nodes = -(-stack.workers.maximum // stack.workers.per_node)
    free, where, remedy = (_free_in_existing if stack.network.existing else _free_in_own)(stack, region)
    if nodes * each <= free:
        kinds = {pool: [kind for key, kind in _known(stack, region) if key == pool.key] for pool in stack.pools}
        all_held = nodes * each + sum(pool.maximum * _held(found) for pool, found in kinds.items())
        if all_held <= free:
            return []
        return [
            f"pools: with their maxNodes and maxWorkers = {stack.workers.maximum} the nodes take {all_held} IP "
            f"addresses, as the VPC CNI holds some on each, and {where}. Lower maxNodes, {remedy}"
        ]
    fitting = int(free) // each * stack.workers.per_node
    return [
        f"maxWorkers = {stack.workers.maximum}: {nodes} nodes take {nodes * each} IP addresses, as the VPC CNI holds "
        f"{each} on each, and {where}. Lower it to {fitting}, {remedy}"
    ]


def _held(kinds: Sequence[InstanceType]) -> int:
    """Return how many addresses the VPC CNI holds on each node at least."""
    return CNI_INTERFACES * min((kind.interface_addresses for kind in kinds), default=0)


def _free_in_own(stack: settings.Settings, region: Region) -> tuple[float, str, str]:
    """Return how many addresses the workers have, in words too, and how they get more."""
    most, cidr = stack.machines.zones, stack.network.cidr
    zones = most if isinstance(most, int) else len(most)
    (subnet, *_) = plan_subnets(cidr, 1).private
    free = zones * (ipaddress.IPv4Network(subnet).num_addresses - AWS_ADDRESSES)
    where = f"the subnets of the workers' zones ({zones}) have {free} in vpcCidr = {cidr}"
    return free, where, "add zones to workerZones, or make a new stack with a larger vpcCidr"


def _free_in_existing(stack: settings.Settings, region: Region) -> tuple[float, str, str]:
    """Count what is free now; a stack that exists has some of the others itself, so it is not asked."""
    if region.exists or region.vpc is None or isinstance(stack.network.zones, int):
        return math.inf, "", ""
    try:
        zones = choose_worker_zones(
            stack.network.zones, sorted(region.offered), stack.instance_types, stack.machines.zones
        )
    except (pulumi.RunError, ValueError):  # types or zones that are mistakes of their own
        return math.inf, "", ""
    subnets = [each for each in region.vpc.subnets if each.zone in zones]
    free = sum(each.free for each in subnets)
    where = f"{', '.join(each.id for each in subnets)} in the workers' zones have {free} that are free"
    return free, where, "add zones to workerZones, or larger subnets to privateSubnetIds"


def _of_workers(stack: settings.Settings, region: Region) -> list[tuple[str, InstanceType]]:
    return [(key, kind) for key, kind in _known(stack, region) if key in WORKER_KEYS]


def _named(stack: settings.Settings) -> list[tuple[str, str]]:
    return [(key, name) for key, names in stack.instance_types.items() for name in names]


def _known(stack: settings.Settings, region: Region) -> Sequence[tuple[str, InstanceType]]:
    return [(key, region.types[name]) for key, name in _named(stack) if name in region.types]


def _size(size: Size) -> str:
    return f"{size.vcpus} vCPUs and {size.memory_mib / 1024:g} GiB"
