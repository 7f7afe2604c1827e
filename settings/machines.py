"""The part of `parsing` for what the worker nodes have in common, both the node group's and Karpenter's.

machines.machines(read, network, workers).zones      # 1
"""

from __future__ import annotations

from settings import hardware
from settings.model import Disk, Machines
from settings.nodes import Workers
from settings.reader import Reader
from settings.vpcs import Network


def machines(read: Reader, network: Network, workers: Workers) -> Machines:
    """Return what the worker nodes have in common. Whether their types have it is for `infra.preflight`."""
    return Machines(
        zones=_zones(read, network),
        update_strategy=_update_strategy(read, workers),
        disk=_disk(read),
        placement_group=_placement_group(read),
        instance_store=read.boolean("instanceStore"),
        efa=_efa(read, workers),
    )


def _efa(read: Reader, workers: Workers) -> bool:
    if asked := read.boolean("efa"):
        _check_one_zone(read, "efa")
        if not workers.gpus:
            read.wrong("efa", "true", "is for NCCL, and workers without GPUs use gloo; set it to false")
    return asked


def _placement_group(read: Reader) -> bool:
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html#placement-groups-limitations-cluster
    if asked := read.boolean("placementGroup"):
        _check_one_zone(read, "placementGroup")
    return asked


def _check_one_zone(read: Reader, key: str) -> None:
    zones = str(read.config.get("workerZones", ""))
    if zones != "1" if zones.isdigit() else "," in zones:
        read.wrong(key, "true", f"needs one zone, and workerZones is {zones}; set it to 1 or to one name")


def _disk(read: Reader) -> Disk:
    def within(key: str, limits: range) -> int:
        return read.integer(key, limits.start, limits.stop - 1)

    gib, iops = within("diskGib", hardware.DISK_GIB), within("diskIops", hardware.DISK_IOPS)
    throughput = within("diskThroughput", hardware.DISK_THROUGHPUT)
    most = gib * hardware.DISK_IOPS_PER_GIB
    if iops > most and read.are_right("diskGib"):
        read.wrong("diskIops", iops, f"a gp3 disk of {gib} GiB has at most {most}; raise diskGib")
    least = throughput * hardware.DISK_IOPS_PER_THROUGHPUT
    if iops < least and read.are_right("diskIops"):
        read.wrong("diskThroughput", throughput, f"needs diskIops of {least} or more, which is {iops}")
    return Disk(gib, iops, throughput)


def _update_strategy(read: Reader, workers: Workers) -> str:
    asked = read.choice("updateStrategy", ("auto", "DEFAULT", "MINIMAL"))
    if asked != "auto":
        return asked
    return "MINIMAL" if workers.gpus else "DEFAULT"


def _zones(read: Reader, network: Network) -> int | tuple[str, ...]:
    key = "workerZones"
    text = read.text(key, r"\S.*", "a count of zones, or names with commas between them")
    if not text:  # a mistake that has been reported
        return 1
    names = tuple(name.strip() for name in text.split(","))
    asked = int(text) if text.isdecimal() else names
    if network.existing is None:
        _check_zones(read, asked, network)
    elif asked == 0:
        read.wrong(key, text, "must be 1 or more")
    # Which zones an existing VPC's subnets are in is for `infra.preflight`.
    if len(set(names)) != len(names):
        read.wrong(key, text, "must name each zone once")
    return asked


def _check_zones(read: Reader, asked: int | tuple[str, ...], network: Network) -> None:
    key, text, most = "workerZones", str(read.config["workerZones"]), network.zone_count
    if isinstance(asked, int):
        if not 1 <= asked <= most:
            read.wrong(key, text, f"must be from 1 to {most}, the number of availabilityZones")
    elif isinstance(network.zones, int):
        read.wrong(key, text, "zones can be named only if availabilityZones names zones too, these among them")
    elif strangers := [name for name in asked if name not in network.zones]:
        read.wrong(key, text, f"{', '.join(strangers)}: not among availabilityZones ({', '.join(network.zones)})")
