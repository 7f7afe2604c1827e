"""Checks that a cloud can start on this machine; each failure is one line with its remedy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from localcloud import tools
from localcloud.errors import CloudError, DiskFull, KernelFeature, NotRoot, PortInUse
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
    check_disk(shutil.disk_usage(instance.state).free, instance.state)
    check_port(instance)
    check_kernel(instance, Path("/proc/filesystems").read_text())


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


def check_kernel(instance: Instance, filesystems: str) -> None:
    """Try overlay mounts, network namespaces, veth pairs and nft once each."""
    if "\toverlay\n" not in filesystems and _fails(["modprobe", "overlay"]):
        raise KernelFeature("the kernel has no overlay file system: load it (`modprobe overlay`) or use another kernel")
    probe = f"{instance.netns}-probe"
    try:
        if _fails(["ip", "netns", "add", probe]):
            raise KernelFeature("network namespaces can't be made here: run on a host or VM that allows `ip netns add`")
        inside = ["ip", "netns", "exec", probe]
        if _fails([*inside, "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]):
            raise KernelFeature("the kernel has no veth interfaces: load them (`modprobe veth`) or use another kernel")
        if _fails([*inside, "nft", "add", "table", "inet", "probe"]):
            raise KernelFeature("the kernel has no nftables: load it (`modprobe nf_tables`) or use another kernel")
    finally:
        subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)


def _fails(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode != 0
    except OSError:
        return True
