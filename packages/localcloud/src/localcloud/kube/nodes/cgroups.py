"""The cgroups of one node: a folder per hierarchy under the instance's own, removed as a whole.

Works with both layouts: hierarchies of cgroup v1, each at /sys/fs/cgroup/NAME, and the one of v2 at /sys/fs/cgroup.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

CGROUP_ROOT = Path("/sys/fs/cgroup")
V2_HYBRID = "unified"  # where v2 is mounted in addition to v1; it has no controllers, only `devices` needs it
DEATH_SECONDS = 5.0
POLL_SECONDS = 0.02


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """Where cgroups can be made: v1's hierarchies, or the root of v2."""
    if (root / "cgroup.controllers").exists():
        return [root]
    found = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink() and path.name != V2_HYBRID]
    return sorted(path for path in found if (path / "cgroup.procs").exists())


def create(name: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Make the cgroup `name` (`lc-1f2e3d/i-0abc`) everywhere.

    Returns:
        Its folder in every hierarchy. The node's init joins them and, with v2, moves on to a leaf of its own.
    """
    made = []
    for hierarchy in hierarchies(root):
        unified = (hierarchy / "cgroup.controllers").exists()
        parent = hierarchy
        for part in Path(name).parts:
            if unified:
                _delegate(parent)
            folder = parent / part
            folder.mkdir(exist_ok=True)
            if not unified:
                _inherit_cpuset(parent, folder)
            parent = folder
        made.append(parent)
    return made


def create_v2(name: str, root: Path = CGROUP_ROOT) -> Path | None:
    """Make the cgroup `name` in the hierarchy of v2; None if v2 is not mounted."""
    for hierarchy in (root, root / V2_HYBRID):
        if (hierarchy / "cgroup.controllers").exists():
            (hierarchy / name).mkdir(parents=True, exist_ok=True)
            return hierarchy / name
    return None


def for_init(name: str, root: Path = CGROUP_ROOT) -> dict[str, Any]:
    """The part of init's plan about the cgroup `name`: what it joins, what the node sees of it, and v1's links."""
    pairs = [[str(path / name), str(path.relative_to(root)).strip(".")] for path in hierarchies(root)]
    joined = [folder for folder, _ in pairs]
    if (root / V2_HYBRID / name).is_dir():
        joined.append(str(root / V2_HYBRID / name))
    links = {path.name: str(path.readlink()) for path in root.iterdir() if path.is_symlink()}
    return {"joined": joined, "cgroups": pairs, "cgroup_links": links}


def folders(name: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """The cgroup and what is below it, in every hierarchy, innermost first."""
    candidates = [root / name, *(path / name for path in root.iterdir() if path.is_dir() and not path.is_symlink())]
    found = {Path(folder) for candidate in candidates for folder, _, _ in os.walk(candidate)}
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def processes(name: str, root: Path = CGROUP_ROOT) -> set[int]:
    """The pids in the cgroup and below."""
    found: set[int] = set()
    for folder in folders(name, root):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return found


def destroy(name: str, root: Path = CGROUP_ROOT) -> None:
    """Kill what is left in the cgroup, wait until it is dead, and remove the folders."""
    deadline = time.monotonic() + DEATH_SECONDS
    while (pids := processes(name, root)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    for folder in folders(name, root):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _inherit_cpuset(parent: Path, folder: Path) -> None:
    """v1 makes a cpuset empty, and no process can join an empty one."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def _delegate(folder: Path) -> None:
    """v2: let children of `folder` have every controller that it has."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
