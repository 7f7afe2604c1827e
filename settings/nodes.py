"""The part of `model` and of `parsing` for the workers and all nodes: what brings which, how many, and their types.

    image = nodes.image(read)
    system = nodes.system(read)
    workers = nodes.workers(read)
    surge = nodes.surge(read, workers)
    pools = nodes.pools(read, surge)

With `surgeNodes: karpenter` the worker node group is the core: it has the nodes for `minWorkers`, whatever `workers`
is, or fewer, and Karpenter brings the nodes above. With `nodegroup` that group has all worker nodes. Pools are further
nodes that Karpenter brings, for jobs that ask for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from settings import versions
from settings.hardware import InstanceType, Size, smallest
from settings.reader import Reader

ON_DEMAND = "ON_DEMAND"
SPOT = "SPOT"

MAX_VCPUS = 2000
"""More than any instance type has."""

MAX_RESERVATIONS = 20
"""As many as the policy of Karpenter's role has room for, which names them; an EC2NodeClass could name 30."""

SURGE_KEY = "surgeInstanceTypes"
"""The config key of the instance types above the core."""

OWN_POOL = "workers"
"""Name of the pool of the stack's own workers."""

MAX_POOL_NAME_LENGTH = 40
"""Karpenter's NodeClaims are named after their pool. Kubernetes allows names of 63 characters."""

_POOL_NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_POOL_DEFAULTS: Mapping[str, Any] = {"capacityType": ON_DEMAND, "spotFallback": False, "capacityReservationIds": []}
_POOL_KEYS = {"name", "instanceTypes", "maxNodes", *_POOL_DEFAULTS}
_POOL = f"an object with name, instanceTypes and maxNodes, and optionally {', '.join(_POOL_DEFAULTS)}, and nothing else"

_NEEDS_KARPENTER = "has an effect only with surgeNodes karpenter; remove it, or set surgeNodes to karpenter"
_RESERVATION = r"cr-[0-9a-f]{8,17}"
_INSTANCE_TYPE = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_CHARTS = r"oci://[\w.:/-]+|(?!\w+://)\S.*"
_IMAGE_RELEASE = r"(v\d{8})?"
_WINDOW = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([01]\d|2[0-3]):([0-5]\d) ([1-9]|1\d|2[0-4])h"


@dataclass(frozen=True)
class Nodes:
    """A group of nodes: how many now, at least and at most, and their instance types."""

    desired: int
    minimum: int
    maximum: int
    instance_types: tuple[str, ...]
    capacity_type: str = "ON_DEMAND"
    hardware: tuple[InstanceType, ...] = ()
    """What AWS says of `instance_types`; empty until it is asked. See `Settings.with_hardware`."""

    @property
    def smallest(self) -> Size:
        """Return what every node of the group has at least. AWS must have been asked."""
        return smallest(self.hardware)

    def with_hardware(self, found: Mapping[str, InstanceType]) -> Nodes:
        """Return the group with what AWS says of its types."""
        return replace(self, hardware=tuple(found[name] for name in self.instance_types))


@dataclass(frozen=True)
class Workers:
    """The training workers."""

    count: int
    """0 if the job is suspended."""
    sized_by_pulumi: bool
    """Whether `pulumi up` sets the number of a running job; else `kubectl scale` or an HPA sets it in the cluster."""
    minimum: int
    """The fewest with which training goes on; 0 if the job may be suspended."""
    maximum: int
    gpus: int
    per_node: int
    mixed_gpu_models: bool
    """Whether nodes with different GPUs may train together."""
    nodes: Nodes
    """The worker node group. With a `Surge` it is the core: nodes for `minimum` workers or fewer, always On-Demand."""
    per_replica: int = 1
    """How many workers divide one model among them; `count`, `minimum` and `maximum` are multiples of it."""

    @property
    def replicas(self) -> int:
        """Return the number of replicas; 0 if the job is suspended."""
        return self.count // self.per_replica

    @property
    def fewest(self) -> int:
        """Return the number of replicas below which a running job waits."""
        return max(1, self.minimum // self.per_replica)

    @property
    def most(self) -> int:
        """Return the most replicas."""
        return self.maximum // self.per_replica


@dataclass(frozen=True)
class Window:
    """Some hours of every week, in UTC."""

    day: str
    """The weekday on which it begins, as in cron: `sun`, `mon`, …"""
    hour: int
    minute: int
    hours: int
    """Its length, 1 to 24."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes that Karpenter starts for pending pods and ends when they are empty."""

    name: str
    capacity_type: str
    spot_fallback: bool
    """Whether On-Demand nodes come where there is no Spot capacity."""
    instance_types: tuple[str, ...]
    maximum: int
    """The most nodes."""
    reservations: tuple[str, ...]
    """Ids of On-Demand Capacity Reservations and Capacity Blocks, from which nodes come first."""
    hardware: tuple[InstanceType, ...] = ()
    """What AWS says of `instance_types`; empty until it is asked. See `Settings.with_hardware`."""

    @property
    def key(self) -> str:
        """Return the key of its instance types, as messages name it."""
        return f"pools.{self.name}.instanceTypes"

    @property
    def smallest(self) -> Size:
        """Return what every node has at least. AWS must have been asked."""
        return smallest(self.hardware)


@dataclass(frozen=True, kw_only=True)
class Surge(Pool):
    """The nodes above the core: the pool of the stack's own workers, as many as they need up to `Workers.maximum`.

    Without `instance_types` it has any type like the smallest of the core's.
    """

    max_vcpus: int
    """Of a node, if `instance_types` is empty; 0: see `Settings.surge_vcpus`."""
    window: Window | None
    """When nodes that no longer match the configuration may be replaced, those of all pools; None: never."""
    charts: str
    """An `oci://` address or a folder that has the charts `karpenter` and `karpenter-crd`."""
    image: str
    """Image of Karpenter's controller."""

    @property
    @override
    def key(self) -> str:
        return SURGE_KEY


def image(read: Reader) -> str:
    """Return the release of the nodes' image: the one of the configuration, else that of the Kubernetes version."""
    given = read.text("nodeImageVersion", _IMAGE_RELEASE, "a release of the EKS image such as v20260903, or empty")
    known = versions.KUBERNETES.get(read.choice("kubernetesVersion", tuple(versions.KUBERNETES)))
    return given or (known.node_image if known else "")


def system(read: Reader) -> Nodes:
    """Return the group of the system nodes."""
    count = read.integer("systemNodes", 1, 10)
    return Nodes(count, 1, max(count, 1) + 1, _instance_types(read, "systemInstanceTypes", at_least_one=True))


def workers(read: Reader) -> Workers:
    """Return the workers with their node group."""
    karpenter = _karpenter(read)
    minimum, maximum = _limits(read, karpenter=karpenter)
    count = read.integer("workers", minimum, maximum, why="from minWorkers to maxWorkers")
    per_node = read.integer("workersPerNode", 1, 96)
    gpus = read.integer("gpusPerWorker", 0, 8)
    per_replica = _per_replica(read, gpus, {"workers": count, "minWorkers": minimum, "maxWorkers": maximum})
    now, least, most = (nodes_for(number, per_node) for number in (count, minimum, maximum))
    types = _instance_types(read, "instanceTypes", at_least_one=True)
    capacity_type = _capacity_type(read)
    core = _core(read, least, karpenter=karpenter)
    if karpenter:
        group = Nodes(core, core, max(1, core), types, ON_DEMAND)  # EKS refuses a maximum of 0
    else:
        group = Nodes(now, least, most, types, capacity_type)
    return Workers(
        count=count,
        sized_by_pulumi=read.choice("sizeOwner", ("pulumi", "cluster")) == "pulumi",
        minimum=minimum,
        maximum=maximum,
        gpus=gpus,
        per_node=per_node,
        mixed_gpu_models=read.boolean("mixedGpuModels"),
        nodes=group,
        per_replica=per_replica,
    )


def surge(read: Reader, workers: Workers) -> Surge | None:
    """Return the nodes that Karpenter brings; None if it brings none."""
    core, most = workers.nodes.minimum, nodes_for(workers.maximum, workers.per_node)
    found = Surge(
        name=OWN_POOL,
        capacity_type=_capacity_type(read),
        spot_fallback=read.boolean("spotFallback"),
        instance_types=_instance_types(read, SURGE_KEY, at_least_one=False),
        max_vcpus=read.integer("surgeMaxVcpus", 0, MAX_VCPUS),
        maximum=most - core,
        window=_window(read),
        charts=read.text("karpenterCharts", _CHARTS, "an oci:// address or a folder"),
        image=read.image("karpenterImage"),
        reservations=_reservations(read),
    )
    if _karpenter(read):
        _check_surge(read, found)
        return found
    _refuse_without_karpenter(read, found)
    return None


def pools(read: Reader, surge: Surge | None) -> tuple[Pool, ...]:
    """Return the pools, in the order of the list."""
    given = read.objects("pools", _POOL, _is_pool)
    for name, count in Counter(str(each["name"]) for each in given).items():
        if count > 1:
            read.wrong("pools", name, f"is the name of {count} pools; give each pool a name of its own")
    found = tuple(_pool(read, each) for each in given)
    lists = [each.reservations for each in (*([surge] if surge else []), *found)]
    together = len({each for ids in lists for each in ids})
    if together > MAX_RESERVATIONS and all(len(ids) <= MAX_RESERVATIONS for ids in lists):
        remedy = f"{MAX_RESERVATIONS} at most, with the stack's own: the policy of Karpenter's role names them"
        read.wrong("pools", f"{together} capacity reservations", remedy)
    if found and not _karpenter(read):
        read.wrong("pools", ", ".join(each.name for each in found), _NEEDS_KARPENTER)
    return found


def nodes_for(workers: int, per_node: int) -> int:
    """Return the number of nodes for so many workers; the last node may be partly used."""
    return -(-workers // per_node)


def _per_replica(read: Reader, gpus: int, numbers: Mapping[str, int]) -> int:
    """Return how many workers divide one model. ``numbers`` of workers that aren't multiples of it are mistakes."""
    size = read.integer("workersPerReplica", 1, 1000)
    if size > 1 and gpus:
        remedy = "a model that is divided isn't supported on GPUs yet; set gpusPerWorker to 0, or remove it"
        read.wrong("workersPerReplica", size, remedy)
    if read.are_right("workersPerReplica", *numbers):
        for key, number in numbers.items():
            if number % size:
                read.wrong(key, number, f"must be a multiple of workersPerReplica, which is {size}")
    return size


def _karpenter(read: Reader) -> bool:
    return read.choice("surgeNodes", ("karpenter", "nodegroup")) == "karpenter"


def _core(read: Reader, least: int, *, karpenter: bool) -> int:
    """Return the nodes of the core: as many as minWorkers need, or fewer."""
    text = read.text("coreNodes", r"all|\d{1,4}", "a number of nodes, or all")
    if text in ("", "all"):
        return least
    if not karpenter:
        read.wrong("coreNodes", text, "has an effect only with surgeNodes karpenter; remove it")
    elif int(text) > least and read.are_right("minWorkers", "maxWorkers", "workersPerNode"):
        read.wrong("coreNodes", text, f"must be from 0 to {least}, the number of nodes for minWorkers")
    return int(text)


def _capacity_type(read: Reader) -> str:
    return read.choice("capacityType", (ON_DEMAND, SPOT))


def _limits(read: Reader, *, karpenter: bool) -> tuple[int, int]:
    low, why = (0, "") if karpenter else (1, "0 needs surgeNodes karpenter")
    before = len(read.mistakes)
    minimum = read.integer("minWorkers", low, 1000, why=why)
    maximum = read.integer("maxWorkers", 1, 1000)
    if len(read.mistakes) == before and maximum < minimum:
        read.wrong("maxWorkers", maximum, f"must be at least minWorkers, which is {minimum}")
    # After a mistake `workers` has no range, so it is not reported too.
    return (minimum, maximum) if len(read.mistakes) == before else (low, 1000)


def _instance_types(read: Reader, key: str, *, at_least_one: bool) -> tuple[str, ...]:
    return read.texts(key, _INSTANCE_TYPE, "an EC2 instance type such as m5.large", at_least_one=at_least_one)


def _reservations(read: Reader) -> tuple[str, ...]:
    key = "capacityReservationIds"
    found = read.texts(key, _RESERVATION, "the id of a capacity reservation such as cr-0123456789abcdef0")
    if len(found) > MAX_RESERVATIONS:
        read.wrong(key, f"{len(found)} ids", f"{MAX_RESERVATIONS} at most: the policy of Karpenter's role names them")
    return found


def _is_pool(value: Mapping[str, Any]) -> bool:
    needed = _POOL_KEYS - _POOL_DEFAULTS.keys()
    return needed <= value.keys() <= _POOL_KEYS and isinstance(value["name"], str) and None not in value.values()


def _pool(read: Reader, given: Mapping[str, Any]) -> Pool:
    name = str(given["name"])
    if not re.fullmatch(_POOL_NAME, name) or len(name) > MAX_POOL_NAME_LENGTH:
        what = f"{MAX_POOL_NAME_LENGTH} lower-case letters, digits and hyphens at most, beginning with a letter"
        read.wrong("pools", name or '""', f"the name of a pool must be {what}")
    elif name == OWN_POOL:
        read.wrong("pools", name, "is the name of the pool of the stack's own workers; choose another name")
    part = read.part(f"pools.{name}", {**_POOL_DEFAULTS, **given})
    found = Pool(
        name=name,
        capacity_type=_capacity_type(part),
        spot_fallback=part.boolean("spotFallback"),
        instance_types=_instance_types(part, "instanceTypes", at_least_one=True),
        maximum=part.integer("maxNodes", 1, 1000),
        reservations=_reservations(part),
    )
    _check_fallback(part, found)
    return found


def _window(read: Reader) -> Window | None:
    what = "weekday, start in UTC and length in hours, such as Sun 03:00 4h, or empty"
    text = read.text("maintenanceWindow", f"({_WINDOW})?", what)
    parts = re.fullmatch(_WINDOW, text)
    if parts is None:
        return None
    day, hour, minute, hours = parts.groups()
    return Window(day.lower(), int(hour), int(minute), int(hours))


def _check_surge(read: Reader, found: Surge) -> None:
    if found.capacity_type == SPOT and found.maximum == 0:
        read.wrong(
            "capacityType",
            SPOT,
            "is for the nodes above minWorkers, and maxWorkers leaves none; the nodes for minWorkers are On-Demand. "
            "Lower minWorkers, raise maxWorkers, set ON_DEMAND, or set surgeNodes to nodegroup",
        )
    _check_fallback(read, found)
    if found.max_vcpus and found.instance_types:
        read.wrong(
            "surgeMaxVcpus", found.max_vcpus, "has no effect with surgeInstanceTypes, which name the types; remove it"
        )


def _check_fallback(read: Reader, found: Pool) -> None:
    if found.spot_fallback and found.capacity_type != SPOT:
        read.wrong("spotFallback", "true", "is for Spot nodes; remove it, or set capacityType to SPOT")


def _refuse_without_karpenter(read: Reader, found: Surge) -> None:
    remedy = _NEEDS_KARPENTER
    if found.spot_fallback:
        read.wrong("spotFallback", "true", remedy)
    if found.instance_types:
        read.wrong(SURGE_KEY, ", ".join(found.instance_types), remedy)
    if found.max_vcpus:
        read.wrong("surgeMaxVcpus", found.max_vcpus, remedy)
    if found.reservations:
        read.wrong("capacityReservationIds", ", ".join(found.reservations), remedy)
    if found.window is not None:
        read.wrong("maintenanceWindow", str(read.config["maintenanceWindow"]), remedy)
