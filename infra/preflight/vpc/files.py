"""Whether an existing file system is as the stack needs it: it makes an access point there, and no mount target. Pure.

A node mounts it by the mount target of its own zone, which has the DNS name of the file system there.
https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-mount-cmd-dns-name.html

`look_up` asks AWS. The plug-in's function for mount targets returns one only, so their network interfaces are asked
for: https://docs.aws.amazon.com/efs/latest/ug/how-it-works.html
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pulumi_aws as aws

import settings
from infra.preflight.asking import Ask, or_none

FILE_SYSTEM = "aws:efs/getFileSystem:getFileSystem"
INTERFACES = "aws:ec2/getNetworkInterfaces:getNetworkInterfaces"
INTERFACE = "aws:ec2/getNetworkInterface:getNetworkInterface"

_ABSENT = re.compile(r"couldn't find resource|FileSystemNotFound|empty result|no matching")


@dataclass(frozen=True)
class Files:
    """What AWS says of the file system: whether the region has it, and the VPC and zones of its mount targets."""

    found: bool
    encrypted: bool = True
    vpcs: frozenset[str] = frozenset()
    """One at most: EFS allows mount targets in one VPC only."""
    zones: frozenset[str] = frozenset()


async def look_up(id_: str, ask: Ask) -> Files:
    """Return what AWS says of a file system."""
    found = await or_none(ask(FILE_SYSTEM, {"fileSystemId": id_}, aws.efs.GetFileSystemResult), _ABSENT)
    if found is None:
        return Files(found=False)
    theirs = [{"name": "description", "values": [f"EFS mount target for {id_} (*"]}]
    listed = await ask(INTERFACES, {"filters": theirs}, aws.ec2.GetNetworkInterfacesResult)
    each = [ask(INTERFACE, {"id": interface}, aws.ec2.GetNetworkInterfaceResult) for interface in listed.ids]
    interfaces = await asyncio.gather(*each)
    return Files(
        found=True,
        encrypted=bool(found.encrypted),
        vpcs=frozenset(interface.vpc_id for interface in interfaces),
        zones=frozenset(interface.availability_zone for interface in interfaces),
    )


def mistakes(stack: settings.Settings, files: Files | None) -> list[str]:
    """Return why nodes of the stack could not mount the file system."""
    if files is None:
        return []
    id_, network = stack.file_system, stack.network.existing
    if not files.found:
        return [f"fileSystemId = {id_}: {stack.region} has no such file system; correct it, or the region"]
    if network and files.vpcs and files.vpcs != {network.id}:
        there = ", ".join(sorted(files.vpcs))
        return [
            f"fileSystemId = {id_}: its mount targets are in {there}, and the stack is in {network.id}; name a file "
            "system with mount targets there"
        ]
    subnets = {each.zone: each.id for each in reversed(network.subnets)} if network else {}
    make = f"aws efs create-mount-target --file-system-id {id_} --security-groups GROUP --subnet-id"
    return [
        f"fileSystemId = {id_}: has no mount target in {zone}, so nodes there can't mount it; make one with a security "
        f"group that lets in NFS from the nodes: {make} {subnets[zone]}"
        for zone in sorted(subnets)
        if zone not in files.zones
    ]


def warnings(stack: settings.Settings, files: Files | None) -> list[str]:
    """Return what is less safe than a file system of the stack's."""
    if files is None or not files.found or files.encrypted:
        return []
    return [
        f"fileSystemId = {stack.file_system}: is not encrypted at rest; data and checkpoints are readable on its disks"
    ]
