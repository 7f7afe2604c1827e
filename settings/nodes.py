"""The part of `parsing` for the workers and all nodes: who brings which node, how many, and of which types.

    image = nodes.image(read)
    system = nodes.system(read)
    workers = nodes.workers(read)
    surge = nodes.surge(read, workers)

With `surgeNodes: karpenter` the worker node group is the core: it has the nodes for `minWorkers`, whatever `workers`
is, and Karpenter brings the nodes above. With `nodegroup` that group has all worker nodes.
"""

from __future__ import annotations

import re

from settings import hardware
from settings.model import Nodes, Surge, Window, Workers
from settings.reader import Reader

ON_DEMAND = "ON_DEMAND"
SPOT = "SPOT"

_CHARTS = r"oci://[\w.:/-]+|(?!\w+://)\S.*"
_IMAGE_RELEASE = r"v\d{8}"
_WINDOW = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([01]\d|2[0-3]):([0-5]\d) ([1-9]|1\d|2[0-4])h"


def image(read: Reader) -> str:
    """Return the release of the nodes' image."""
    return read.text("nodeImageVersion", _IMAGE_RELEASE, "a release of the EKS image such as v20260304")


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
    now, least, most = (nodes_for(number, per_node) for number in (count, minimum, maximum))
    types = _instance_types(read, "instanceTypes", at_least_one=True)
    capacity_type = _capacity_type(read)
    if karpenter:
        group = Nodes(least, least, max(1, least), types, ON_DEMAND)  # EKS refuses a maximum of 0
    else:
        group = Nodes(now, least, most, types, capacity_type)
    found = Workers(
        count=count,
        sized_by_pulumi=read.choice("sizeOwner", ("pulumi", "cluster")) == "pulumi",
        minimum=minimum,
        maximum=maximum,
        gpus=read.integer("gpusPerWorker", 0, 8),
        per_node=per_node,
        nodes=group,
    )
    for name in types:
        _check_fit(read, "instanceTypes", name, found)
    return found


def surge(read: Reader, workers: Workers) -> Surge | None:
    """Return the nodes that Karpenter brings; None if it brings none."""
    least, most = (nodes_for(number, workers.per_node) for number in (workers.minimum, workers.maximum))
    found = Surge(
        capacity_type=_capacity_type(read),
        instance_types=_instance_types(read, "surgeInstanceTypes", at_least_one=False),
        maximum=most - least,
        window=_window(read),
        charts=read.text("karpenterCharts", _CHARTS, "an oci:// address or a folder"),
        image=read.image("karpenterImage"),
    )
    if _karpenter(read):
        _check_surge(read, found, workers)
        return found
    _refuse_without_karpenter(read, found)
    return None


def nodes_for(workers: int, per_node: int) -> int:
    """Return the number of nodes for so many workers; the last node may be partly used."""
    return -(-workers // per_node)


def _karpenter(read: Reader) -> bool:
    return read.choice("surgeNodes", ("karpenter", "nodegroup")) == "karpenter"


def _capacity_type(read: Reader) -> str:
    return read.choice("capacityType", (ON_DEMAND, SPOT))


def _limits(read: Reader, *, karpenter: bool) -> tuple[int, int]:
    low, why = (0, "") if karpenter else (1, "0 needs surgeNodes karpenter")
    minimum = read.integer("minWorkers", low, 1000, why=why)
    maximum = read.integer("maxWorkers", 1, 1000)
    if maximum < minimum:
        read.wrong("maxWorkers", maximum, f"must be at least minWorkers, which is {minimum}")
        return low, 1000  # `workers` has no range then, so it is not reported too
    return minimum, maximum


def _instance_types(read: Reader, key: str, *, at_least_one: bool) -> tuple[str, ...]:
    names = read.texts(key, r"[a-z0-9.-]+", "an EC2 instance type", at_least_one=at_least_one)
    unknown = [name for name in names if name not in hardware.INSTANCE_TYPES]
    for name in unknown:
        model = hardware.RETIRED_FAMILIES.get(name.partition(".")[0])
        if model is not None:
            why = f"its GPU is a {model}, and {hardware.RETIRED_GPUS[model]}; use a newer type, for example g4dn or g5"
            read.wrong(key, name, why)
            continue
        known = ", ".join(read.closest(name, hardware.INSTANCE_TYPES))
        read.wrong(key, name, f"unknown instance type; similar ones are {known}, and settings/hardware.py lists all")
    return tuple(name for name in names if name not in unknown)


def _check_fit(read: Reader, key: str, name: str, found: Workers) -> None:
    kind = hardware.INSTANCE_TYPES[name]
    gpus, per_node = found.gpus, found.per_node
    if gpus * per_node > kind.gpus:
        needed = f"{per_node} per node is {gpus * per_node} GPUs"
        read.wrong("gpusPerWorker", gpus, f"{needed}, and {name} in {key} has {kind.gpus}")
    if per_node > kind.vcpus:
        read.wrong("workersPerNode", per_node, f"{name} in {key} has {kind.vcpus} vCPUs")


def _window(read: Reader) -> Window | None:
    what = "weekday, start in UTC and length in hours, such as Sun 03:00 4h, or empty"
    text = read.text("maintenanceWindow", f"({_WINDOW})?", what)
    parts = re.fullmatch(_WINDOW, text)
    if parts is None:
        return None
    day, hour, minute, hours = parts.groups()
    return Window(day.lower(), int(hour), int(minute), int(hours))


def _check_surge(read: Reader, found: Surge, workers: Workers) -> None:
    if found.capacity_type == SPOT and found.maximum == 0:
        read.wrong(
            "capacityType",
            SPOT,
            "is for the nodes above minWorkers, and maxWorkers leaves none; the nodes for minWorkers are On-Demand. "
            "Lower minWorkers, raise maxWorkers, set ON_DEMAND, or set surgeNodes to nodegroup",
        )
    for name in found.instance_types:
        _check_fit(read, "surgeInstanceTypes", name, workers)
        if workers.nodes.instance_types:
            _check_size(read, name, workers.nodes.smallest)


def _check_size(read: Reader, name: str, least: hardware.InstanceType) -> None:
    # A worker requests its share of the smallest core node, so no smaller node has room for it.
    kind = hardware.INSTANCE_TYPES[name]
    if kind.vcpus < least.vcpus or kind.memory_gib < least.memory_gib:
        read.wrong(
            "surgeInstanceTypes",
            name,
            f"has {kind.vcpus} vCPUs and {kind.memory_gib} GiB; a worker that fits the smallest of instanceTypes needs "
            f"{least.vcpus} vCPUs and {least.memory_gib} GiB",
        )


def _refuse_without_karpenter(read: Reader, found: Surge) -> None:
    remedy = "has an effect only with surgeNodes karpenter; remove it, or set surgeNodes to karpenter"
    if found.instance_types:
        read.wrong("surgeInstanceTypes", ", ".join(found.instance_types), remedy)
    if found.window is not None:
        read.wrong("maintenanceWindow", str(read.config["maintenanceWindow"]), remedy)
