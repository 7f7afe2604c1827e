"""Removes what one cloud left on the host. A clean stop leaves nothing; a crash leaves mounts, namespaces and cgroups.

    sweep(instance)   # ["network namespace lc-1f2e3d", "2 cgroups", ...]

Everything is found by the instance's own names (namespaces, link, nft table and cgroup `lc-<id>`, mounts under its
state and run directories), never by a program's name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from localcloud.host import cgroups
from localcloud.instance import Instance
from localcloud.namespace import NETNS_DIR

DEATH_SECONDS = 5.0
POLL_SECONDS = 0.05


def sweep(instance: Instance) -> list[str]:
    """Remove every trace on the host; what keeps another trace in use goes first.

    Returns:
        What was found and removed, each as one phrase; empty when the host was clean.
    """
    done = _kill_inhabitants(instance)
    done += _unmount(instance)
    done += _remove_cgroups(instance)
    done += _remove_namespaces(instance)
    done += _remove_link(instance)
    done += _remove_rules(instance)
    if instance.run_dir.exists():
        shutil.rmtree(instance.run_dir, ignore_errors=True)
        done.append(f"directory {instance.run_dir}")
    return done


def namespaces(instance: Instance) -> list[Path]:
    """Return the network namespaces of the cloud and of its nodes."""
    return sorted(NETNS_DIR.glob(f"{instance.netns}*"))


def mounts(instance: Instance, table: str) -> list[str]:
    """Return the mount points in a /proc/mounts table that are ours, innermost first."""
    ours = (f"{instance.state}/", f"{instance.run_dir}/")
    points = [
        re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[1]) for line in table.splitlines()
    ]
    return sorted((point for point in points if point.startswith(ours)), key=len, reverse=True)


def _kill_inhabitants(instance: Instance) -> list[str]:
    """Kill all processes in our namespaces and cgroups, including those that localcloud didn't start."""
    killed: set[int] = set()
    deadline = time.monotonic() + DEATH_SECONDS
    while inhabitants := _inhabitants(instance):
        cgroups.kill(instance.cgroup)
        for pid in inhabitants - {cgroups.OUTSIDE}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= inhabitants
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    return [f"{len(killed)} processes of nodes and pods"] if killed else []


def _inhabitants(instance: Instance) -> set[int]:
    found = cgroups.processes(instance.cgroup)
    ours = set()
    for path in namespaces(instance):
        with contextlib.suppress(OSError):
            ours.add(path.stat().st_ino)
    for entry in Path("/proc").glob("[0-9]*") if ours else ():
        with contextlib.suppress(OSError):
            if (entry / "ns/net").stat().st_ino in ours:
                found.add(int(entry.name))
    return {pid for pid in found if pid == cgroups.OUTSIDE or (pid != os.getpid() and _living(pid))}


def _living(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _unmount(instance: Instance) -> list[str]:
    points = mounts(instance, Path("/proc/self/mounts").read_text())
    for point in points:
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    return [f"{len(points)} mounts"] if points else []


def _remove_cgroups(instance: Instance) -> list[str]:
    found = cgroups.folders(instance.cgroup)
    cgroups.destroy(instance.cgroup)
    return [f"{len(found)} cgroups"] if found else []


def _remove_namespaces(instance: Instance) -> list[str]:
    done = []
    for path in namespaces(instance):
        subprocess.run(["ip", "netns", "delete", path.name], capture_output=True, check=False)
        done.append(f"network namespace {path.name}")
    return done


def _remove_link(instance: Instance) -> list[str]:
    removed = subprocess.run(["ip", "link", "delete", instance.veth], capture_output=True, check=False)
    return [f"network interface {instance.veth}"] if removed.returncode == 0 else []


def _remove_rules(instance: Instance) -> list[str]:
    """Remove this cloud's nft table from the host. It protects the link, so the link is removed first."""
    delete = ["nft", "delete", "table", "inet", instance.netns]
    removed = subprocess.run(delete, capture_output=True, check=False)
    return [f"nft table {instance.netns}"] if removed.returncode == 0 else []
