"""Volumes of FSx for Lustre: the folder of a file system, which is there as long as the file system is.

Like mount.lustre, the driver asks no AWS endpoint: it knows the file system by its DNS name and its mount name.
https://github.com/kubernetes-sigs/aws-fsx-csi-driver (pkg/driver/node.go)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from localcloud.kube.csi.volume import InvalidVolume, NotMountable
from localcloud.kube.rpc import Message

ATTRIBUTES = {"dnsname": r"fs-[0-9a-f]{8,18}\.fsx\.[a-z0-9-]+\.amazonaws\.com", "mountname": r"[A-Za-z0-9_-]{1,8}"}


def finder(root: Path) -> Callable[[Message], Path]:
    """Return what finds the directories of volumes below `root`, the directory of all file systems."""

    def find(request: Message) -> Path:
        given: dict[str, str] = dict(request.volume_context)
        for name, pattern in ATTRIBUTES.items():
            if not re.fullmatch(pattern, given.get(name, "")):
                raise InvalidVolume(f"{name} is not provided, or is none of a file system: {given.get(name, '')!r}")
        host, mount_name = (given[name] for name in ATTRIBUTES)
        source = root / host.partition(".")[0] / mount_name
        if not source.is_dir():
            raise NotMountable(
                f"mount.lustre: mount {host}@tcp:/{mount_name} failed: No such file or directory. Is the MGS "
                f"specification correct? Is '{mount_name}' the filesystem name? There is no such file system"
            )
        return source

    return find
