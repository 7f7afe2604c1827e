"""Checks that a cloud can start on this machine; each failure is one line with its remedy.

    check_machine()     # `localcloud check`: before anything is installed or built
    check(instance)     # `localcloud start`: all of it

Standard library only.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from localcloud import tools
from localcloud.errors import CloudError, DiskFull, NotRoot, PortInUse
from localcloud.host import cgroups, inotify, rights
from localcloud.instance import Instance

FREE_BYTES = 2 * 1024**3
HOST_TOOLS = ("ip", "nsenter", "unshare", "mount", "umount", "containerd", "runc", "nft", "conntrack")


def check(instance: Instance) -> None:
    """Raise for the first thing that prevents a start.

    Raises:
        CloudError: One of the kinds of `localcloud.errors`.
    """
    check_root(os.geteuid())
    check_tools()
    check_machine()
    check_disk(shutil.disk_usage(instance.state).free, instance.state)
    check_port(instance)


def check_machine() -> None:
    """Raise for the first thing that this machine lacks and that no installation brings.

    It needs no program: what it can't try without `ip` or `nft` is tried again by the start.

    Raises:
        NotRoot: The user isn't root.
        MissingRight: Root lacks a capability.
        KernelFeature: Namespaces, mounts, networks, cgroups or inotify.
    """
    check_root(os.geteuid())
    rights.check_capabilities(Path("/proc/self/status").read_text())
    rights.check_kernel(Path("/proc/filesystems").read_text(), rights.refusal)
    cgroups.check(f"lc-check-{os.getpid()}")
    inotify.check(inotify.limits(), inotify.used(), inotify.needed(v2=cgroups.is_v2()))


def check_root(uid: int) -> None:
    """Check for root: nodes are made of namespaces, mounts and cgroups."""
    if uid != 0:
        raise NotRoot("localcloud needs root to make namespaces, mounts and cgroups: run it with sudo, or as root")


def check_tools() -> None:
    """Check for the programs of Debian's packages, and for what `LOCALCLOUD_TOOLS` must hold."""
    missing = [tool for tool in HOST_TOOLS if shutil.which(tool) is None]
    if missing:
        raise CloudError(f"missing on PATH: {', '.join(missing)}: run `make up`, which installs their packages")
    tools.check()


def check_disk(free_bytes: int, state: Path) -> None:
    """Check for free space: on a full disk, etcd and containerd fail with unrelated errors."""
    if free_bytes < FREE_BYTES:
        raise DiskFull(
            f"{state} has {free_bytes / 1024**3:.1f} GiB free, localcloud needs {FREE_BYTES // 1024**3}: "
            "free some, or choose another disk with --state"
        )


def check_port(instance: Instance) -> None:
    """Check that the port is free; it may be in a stack's configuration, so another one is not chosen silently."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", instance.port))
        except OSError as error:
            raise PortInUse(
                f"port {instance.port} on 127.0.0.1 is in use by another process: stop it, "
                f"or change the port in {instance.state}/instance.json"
            ) from error
