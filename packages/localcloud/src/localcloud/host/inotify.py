"""How many inotify instances and watches a cloud needs, and how many there are.

The kernel limits both per user, and a node's programs are root's. Beyond the limit a kubelet ends with "too many open
files", which doesn't name inotify. Counted on Debian 12 with cgroup v2: kubelet 6, containerd 1 and kube-proxy 1 per
node, and containerd's shim 2 per pod. With v1 a shim has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localcloud.errors import KernelFeature

LIMITS = Path("/proc/sys/fs/inotify")
DESCRIPTOR = "anon_inode:inotify"
NODES, PODS = 3, 12
"""The size that a start checks for: that of the stack that `make up` deploys."""
INSTANCES_PER_NODE, INSTANCES_PER_POD = 8, 2
WATCHES_PER_NODE, WATCHES_PER_POD = 200, 40
SPARE = 2
"""The remedy names this many times the need, so that the next cluster doesn't need another one."""


@dataclass(frozen=True)
class Amount:
    """A number of inotify instances, and of watches in them."""

    instances: int
    watches: int


def needed(*, v2: bool) -> Amount:
    """Return what a cloud of `NODES` nodes and `PODS` pods needs."""
    per_pod = INSTANCES_PER_POD if v2 else 0
    return Amount(
        NODES * INSTANCES_PER_NODE + PODS * per_pod,
        NODES * WATCHES_PER_NODE + PODS * WATCHES_PER_POD,
    )


def limits(folder: Path = LIMITS) -> Amount:
    """Return the kernel's limits for one user."""
    return Amount(*(int((folder / f"max_user_{kind}").read_text()) for kind in ("instances", "watches")))


def used(proc: Path = Path("/proc")) -> Amount:
    """Return what root's processes have now."""
    instances = watches = 0
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if process.stat().st_uid == 0:
                for descriptor in _instances(process):
                    instances += 1
                    watches += (process / "fdinfo" / descriptor).read_text().count("\ninotify ")
    return Amount(instances, watches)


def check(limit: Amount, now: Amount, need: Amount) -> None:
    """Raise if the limits leave no room for what a cloud needs.

    Raises:
        KernelFeature: The message has the `sysctl` command that helps.
    """
    for kind, most, have, more in (
        ("instances", limit.instances, now.instances, need.instances),
        ("watches", limit.watches, now.watches, need.watches),
    ):
        if have + more > most:
            name = f"fs.inotify.max_user_{kind}"
            raise KernelFeature(
                f"{name} is {most}, root's processes use {have}, and a cloud with {NODES} nodes and {PODS} pods needs "
                f"{more} more, else its kubelets end with 'too many open files': run "
                f"`sysctl -w {name}={SPARE * (have + more)}`, and write it to a file in /etc/sysctl.d to keep it"
            )


def _instances(process: Path) -> Iterator[str]:
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed
            if str(descriptor.readlink()) == DESCRIPTOR:
                yield descriptor.name
