"""Whether the FSx for Lustre file system is as the stack needs it: it mounts it, and makes nothing of it.

The plug-in has no function that reads one, so `look` asks with the `aws` that the kubeconfig starts. The rest is pure.
https://docs.aws.amazon.com/fsx/latest/APIReference/API_DescribeFileSystems.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import settings
from infra.preflight import login

KIND = "LUSTRE"
USABLE = ("AVAILABLE", "UPDATING")
"""https://docs.aws.amazon.com/fsx/latest/APIReference/API_FileSystem.html (Lifecycle)"""

_ABSENT = "FileSystemNotFound"


@dataclass(frozen=True)
class Lustre:
    """What FSx says of the file system: its description, empty if the region has none; or why it said nothing."""

    described: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def look(stack: settings.Settings, aws: login.Run) -> Lustre | None:
    """Return what FSx says; None if the stack names none."""
    if stack.lustre is None:
        return None
    try:
        ended = aws(login.command(stack, "fsx", "describe-file-systems", "--file-system-ids", stack.lustre.id))
        if ended.status == 0:
            return Lustre(next(iter(json.loads(ended.out)["FileSystems"]), {}))
    except (OSError, ValueError, KeyError) as error:
        return Lustre(error=str(error))
    return Lustre() if _ABSENT in ended.error else Lustre(error=ended.error.strip() or "it gave no answer")


def mistakes(stack: settings.Settings, found: Lustre | None) -> list[str]:
    """Return why nodes of the stack could not mount the file system."""
    if stack.lustre is None or found is None or found.error:
        return []
    id_, name, about = stack.lustre.id, stack.lustre.mount_name, found.described
    named, there = f"lustre.fileSystemId = {id_}: ", about.get("LustreConfiguration", {}).get("MountName")
    if not about:
        return [f"{named}{stack.region} has no such file system; correct it, or the region"]
    if (kind := about.get("FileSystemType")) != KIND:
        return [f"{named}is of the type {kind}; name one of the type {KIND}"]
    wrong = []
    if (state := about.get("Lifecycle")) not in USABLE:
        wrong.append(f"{named}is {state}, so nodes can't mount it; wait until it is AVAILABLE, or name another")
    if stack.network.existing and (vpc := about.get("VpcId")) != stack.network.existing.id:
        wrong.append(f"{named}is in {vpc}, and the stack is in {stack.network.existing.id}; name one that is there")
    if there != name:
        wrong.append(f"lustre.mountName = {name}: the mount name of {id_} is {there}; set it to that")
    return wrong


def warnings(found: Lustre | None) -> list[str]:
    """Return what could not be checked."""
    if found is None or not found.error:
        return []
    return [
        "the FSx for Lustre file system could not be checked. To have it checked, allow fsx:DescribeFileSystems to "
        f"`aws`, with which the cluster's kubeconfig logs in. The error: {found.error}"
    ]
