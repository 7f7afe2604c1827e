"""The cgroups of one node: a folder per hierarchy under the instance's own, removed as a whole.

    create("lc-1f2e3d/i-0abc")
    destroy("lc-1f2e3d/i-0abc")
    check("lc-check-1")         # whether nodes can have cgroups here

Works with both layouts: hierarchies of cgroup v1, each at /sys/fs/cgroup/NAME, and the one of v2 at /sys/fs/cgroup.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from localcloud.errors import KernelFeature
from localcloud.host import devices
from localcloud.host.rights import ELSEWHERE

CGROUP_ROOT = Path("/sys/fs/cgroup")
V2_HYBRID = "unified"  # where v2 is mounted in addition to v1; it has no controllers, only `devices` needs it
REQUIRED_V2 = frozenset(("cpu", "cpuset", "memory", "pids"))
REQUIRED_V1 = REQUIRED_V2 | {"cpuacct", "devices"}
OUTSIDE = 0  # how v2 lists a process outside of the reader's PID namespace; a signal to 0 goes to the own group
JOIN = 'for folder; do echo 0 > "$folder/cgroup.procs" || exit 1; done'
DEATH_SECONDS = 5.0
POLL_SECONDS = 0.02


def is_v2(root: Path = CGROUP_ROOT) -> bool:
    """Return whether the controllers are those of v2."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """Where cgroups can be made: v1's hierarchies, or the root of v2."""
    if is_v2(root):
        return [root]
    found = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink() and path.name != V2_HYBRID]
    return sorted(path for path in found if (path / "cgroup.procs").exists())


def create(name: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Make the cgroup `name` (`lc-1f2e3d/i-0abc`) everywhere.

    Returns:
        Its folder in every hierarchy. The node's init joins them and, with v2, moves on to a leaf of its own.

    Raises:
        OSError: The kernel refuses a folder, or a controller that nodes need.
    """
    made = []
    for hierarchy in hierarchies(root):
        unified = is_v2(hierarchy)
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
        if is_v2(hierarchy):
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
    """The pids in the cgroup and below; v2's list can have `OUTSIDE`, which is no pid."""
    found: set[int] = set()
    for folder in folders(name, root):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return found


def kill(name: str, root: Path = CGROUP_ROOT) -> None:
    """Kill what is in the cgroup and below, with v2 also the processes of other PID namespaces."""
    for folder in folders(name, root):
        with contextlib.suppress(FileNotFoundError):
            if (folder / "cgroup.kill").exists():
                (folder / "cgroup.kill").write_text("1")
    for pid in processes(name, root) - {OUTSIDE}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def destroy(name: str, root: Path = CGROUP_ROOT) -> None:
    """Kill what is left in the cgroup, wait until it is dead, and remove the folders."""
    deadline = time.monotonic() + DEATH_SECONDS
    while processes(name, root) and time.monotonic() < deadline:
        kill(name, root)
        time.sleep(POLL_SECONDS)
    for folder in folders(name, root):
        with contextlib.suppress(OSError):
            folder.rmdir()


def check(name: str, root: Path = CGROUP_ROOT) -> None:
    """Make a cgroup as a node's, below one as an instance's, join it, restrict its devices, and remove both.

    Raises:
        KernelFeature: Something is missing or refused.
    """
    if lacking := _lacking(root):
        raise KernelFeature(f"{root} lacks the cgroup controllers {', '.join(lacking)}: {_remedy(root)}")
    inner = f"{name}/node"
    try:
        made = create(inner, root)
        if is_v2(root) and (lacking := _lacking(made[0])):
            raise KernelFeature(f"cgroups below {root} don't get {', '.join(lacking)}: {ELSEWHERE}")
        v2 = create_v2(inner, root)
        _join([*made, *([v2] if v2 is not None and v2 not in made else [])])
        if v2 is not None:
            devices.restrict(v2)
    except OSError as error:
        raise KernelFeature(refused(error, root)) from error
    finally:
        destroy(name, root)
    if left := folders(name, root):
        raise KernelFeature(f"the cgroup {left[0]} was made but can't be removed: {ELSEWHERE}")


def refused(error: OSError, root: Path) -> str:
    """Return the sentence about a cgroup that the kernel refuses."""
    known = {
        errno.EROFS: f"{root} is read-only",
        errno.EBUSY: f"the cgroup at {root} has processes of its own, so cgroups below it get no controllers",
        errno.EOPNOTSUPP: f"the cgroup at {root} has processes of its own, so cgroups below it take none",
    }
    reason = known.get(error.errno or 0, f"cgroups can't be made below {root}")
    return f"{reason}, as in a container ({error}): {ELSEWHERE}"


def _lacking(folder: Path) -> list[str]:
    """Return the required controllers that aren't there: in v2 in a cgroup, in v1 among the hierarchies."""
    if is_v2(folder):
        return sorted(REQUIRED_V2 - {*(folder / "cgroup.controllers").read_text().split()})
    there = {controller for hierarchy in hierarchies(folder) for controller in hierarchy.name.split(",")}
    return sorted(REQUIRED_V1 - there)


def _remedy(root: Path) -> str:
    if is_v2(root):
        return f"the kernel's command line may have switched them off (`cgroup_disable`); else {ELSEWHERE}"
    return f"mount them there, or start the machine with cgroup v2; {ELSEWHERE}"


def _join(made: list[Path]) -> None:
    """Have a process join all of these cgroups, and end."""
    done = subprocess.run(["sh", "-c", JOIN, "sh", *made], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KernelFeature(f"a process can't join a cgroup ({done.stderr.strip()}): {ELSEWHERE}")


def _inherit_cpuset(parent: Path, folder: Path) -> None:
    """v1 makes a cpuset empty, and no process can join an empty one."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def _delegate(folder: Path) -> None:
    """v2: let children of `folder` have every controller that it has; nodes need the required ones."""
    for controller in (folder / "cgroup.controllers").read_text().split():
        try:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            if controller in REQUIRED_V2:
                raise
