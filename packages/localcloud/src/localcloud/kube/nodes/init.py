"""Process 1 of a simulated host: assembles its root file system, then keeps its services running.

    python -I init.py /path/to/plan.json        # inside fresh mount, PID, UTS and IPC namespaces

The node's root is a folder of its own. The plan says what of the host is mounted into it, and what of that read-only;
then pivot_root makes the folder `/` and the host's root is unmounted, so that no path leads back to it. The services
are described by one JSON file each: a service starts when its file appears and stops when the file goes. A byte
written to the node's FIFO means "look again". A service that ends by itself starts again, and a line on stdout says how
often it has ended, and its last error. When this process dies, the kernel kills everything in the PID namespace and
drops the mounts: a power cut.

Uses nothing but the standard library, so that a node starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MS_BIND, MS_REC, MS_SHARED = 4096, 16384, 1 << 20
MNT_DETACH = 2
CLONE_NEWCGROUP = 0x02000000
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
SYS_MOUNT_SETATTR = 442  # the same number on amd64 and arm64; the kernel has it since 5.12
RESTART_SECONDS = 1.0
AFTER_SECONDS = 15.0
AFTER_POLL_SECONDS = 0.02
STOP_SECONDS = 3.0
TAIL_BYTES = 16384
ERROR_LINE = re.compile(r"^[EF]\d{4} |\blevel=(error|fatal|panic)\b")  # of Kubernetes' and containerd's logs
BROUGHT = Path("/run/localcloud")
CGROUP_ROOT = Path("sys/fs/cgroup")
NUMA_NODES = Path("/sys/devices/system/node")

# Name → major and minor number. Disks and the host's memory are not among them.
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "kmsg": (1, 11),
    "tty": (5, 0),
    "fuse": (10, 229),
}
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}

_libc = ctypes.CDLL(None, use_errno=True)


def set_up(plan: dict[str, Any]) -> None:
    """Make this namespace a host of its own, with the plan's folder as its root."""
    for folder in plan["joined"]:
        (Path(folder) / "cgroup.procs").write_text("0")
    _check(_libc.unshare(CLONE_NEWCGROUP), "unshare the cgroup namespace")
    _libc.sethostname(plan["hostname"].encode(), len(plan["hostname"]))
    root = Path(plan["root"])
    mount(str(root), str(root), flags=MS_BIND)  # pivot_root accepts nothing but a mount point
    mount("tmpfs", str(root / "run"), "tmpfs", options="mode=755")
    mount("proc", str(root / "proc"), "proc")
    mount("sysfs", str(root / "sys"), "sysfs")
    make_devices(root / "dev", plan["gpus"])
    bring_cgroups(root / CGROUP_ROOT, plan["cgroups"], plan["cgroup_links"])
    for source, target in plan["read_only"]:
        bind(source, root / target.lstrip("/"), read_only=True)
    for source, target in plan["read_write"]:
        bind(source, root / target.lstrip("/"))
    for lower, upper, work, target in plan["overlays"]:
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount("overlay", str(root / target.lstrip("/")), "overlay", options=options)
    enter(root)
    leave_cgroup_root(Path("/") / CGROUP_ROOT)
    override(plan["overrides"])
    show_cpus(plan["cpus"])
    mount("none", "/", flags=MS_REC | MS_SHARED)  # what is mounted for a pod has to reach it


def enter(root: Path) -> None:
    """Make `root` the root of this namespace, and unmount the old one."""
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), f"pivot_root to {root}")
    _check(_libc.umount2(b".", MNT_DETACH), "unmount the host's root")
    os.chdir("/")


def make_devices(folder: Path, gpus: int) -> None:
    """Mount a /dev with the devices that any container may use, and those of GPUs.

    Nothing is behind a GPU's device: it is another /dev/null. NVIDIA's own number could be that of a GPU of the host.
    """
    mount("tmpfs", str(folder), "tmpfs", options="mode=755")
    names = [*(f"nvidia{number}" for number in range(gpus)), *(["nvidiactl"] if gpus else [])]
    for name, (major, minor) in {**DEVICES, **dict.fromkeys(names, DEVICES["null"])}.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (folder / name).chmod(0o600 if name == "kmsg" else 0o666)
    for name, target in DEVICE_LINKS.items():
        (folder / name).symlink_to(target)
    (folder / "pts").mkdir()
    mount("devpts", str(folder / "pts"), "devpts", options="newinstance,ptmxmode=0666,mode=620")
    (folder / "shm").mkdir()
    mount("tmpfs", str(folder / "shm"), "tmpfs", options="mode=1777")


def bring_cgroups(target: Path, folders: list[list[str]], links: dict[str, str]) -> None:
    """Show the node its own cgroups as the roots of all hierarchies.

    Args:
        folders: The node's cgroup in each hierarchy, and the hierarchy's name; v2's only one has the name "".
        links: Symbolic links of v1, such as `cpu` for `cpu,cpuacct`.
    """
    if [name for _, name in folders] != [""]:
        mount("tmpfs", str(target), "tmpfs", options="mode=755")
    for folder, name in folders:
        bind(folder, target / name)
    for name, destination in links.items():
        (target / name).symlink_to(destination)


def leave_cgroup_root(root: Path) -> None:
    """Move to a leaf and delegate all controllers: v2 allows processes in leaves only."""
    if not (root / "cgroup.controllers").exists():
        return
    (root / "system").mkdir()
    (root / "system" / "cgroup.procs").write_text("0")
    for controller in (root / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


def override(files: dict[str, str]) -> None:
    """Show other contents at these paths; a path that does not exist is left out."""
    for index, (path, content) in enumerate(files.items()):
        replacement = Path("/run") / f"override-{index}"
        replacement.write_text(content)
        if Path(path).exists():
            mount(str(replacement), path, flags=MS_BIND)


def show_cpus(count: int) -> None:
    """Show the kubelet so many CPUs, or the host's for 0.

    It counts the entries below a NUMA node, and reads the number of each out of its name. The entries here are those of
    the host's CPUs several times, with zeros before the number: a cgroup may be given no CPU that doesn't exist.
    https://github.com/google/cadvisor/blob/v0.52.1/utils/sysinfo/sysinfo.go
    """
    if not count or not NUMA_NODES.exists():
        return
    host, nodes = os.cpu_count() or 1, Path("/run/numa-nodes")
    for number in range(count):
        zeros = "0" * (number // host)
        topology = nodes / "node0" / f"cpu{zeros}{number % host}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{number}\n")
        (topology / "physical_package_id").write_text("0\n")
    mount(str(nodes), str(NUMA_NODES), flags=MS_BIND)


def bind(source: str, target: Path, *, read_only: bool = False) -> None:
    """Mount a folder or a file, with what is mounted below it, at another place; the target is made if needed."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, str(target), flags=MS_BIND | MS_REC)
    if read_only:
        attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
        done = _libc.syscall(
            SYS_MOUNT_SETATTR, AT_FDCWD, str(target).encode(), AT_RECURSIVE, attributes, len(attributes)
        )
        _check(done, f"make {target} read-only")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode())
    _check(done, f"mount {source or kind} on {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


@dataclass
class Service:
    """A service's description, and its process if it runs."""

    description: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    not_before: float = 0.0
    endings: int = 0


class Services:
    """Keeps the running processes equal to the described services."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._services: dict[str, Service] = {}

    def reconcile(self) -> float | None:
        """Start, restart and stop services; return when to look again (monotonic), or None."""
        wanted = self._read()
        for name in [name for name in self._services if name not in wanted]:
            _stop(self._services.pop(name).process)
        wake: float | None = None
        for name, description in wanted.items():
            service = self._services.setdefault(name, Service(description))
            if service.process is not None and service.process.poll() is None:
                continue
            now = time.monotonic()
            if service.process is not None:
                service.endings += 1
                print(ending(name, service.endings, service.process.returncode, description["log"]), flush=True)
                service.process, service.not_before = None, now + RESTART_SECONDS
            if now < service.not_before:
                wake = min(wake or service.not_before, service.not_before)
            else:
                service.process = _start(description)
        return wake

    def reap(self) -> None:
        """Reap orphans; the services' own processes are reaped by their Popen."""
        known = {service.process.pid for service in self._services.values() if service.process}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in known:
                return
            os.waitpid(found.si_pid, 0)

    def _read(self) -> dict[str, dict[str, Any]]:
        wanted = {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError):
                wanted[path.stem] = json.loads(path.read_text())
        return wanted


def ending(name: str, times: int, status: int, log: str) -> str:
    """Return the line about a service that has ended by itself."""
    with Path(log).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return f"{name} has ended {times} times, now with status {status}: {last_error(text)}"


def last_error(text: str) -> str:
    """Return the last line of a log that reports an error; its last line if none does."""
    lines = [line for line in reversed(text.splitlines()) if line.strip()]
    return next(filter(ERROR_LINE.search, lines), lines[0] if lines else "its log is empty")


def _start(description: dict[str, Any]) -> subprocess.Popen[bytes]:
    after = description.get("after")
    deadline = time.monotonic() + AFTER_SECONDS
    while after and not Path(after).exists() and time.monotonic() < deadline:
        time.sleep(AFTER_POLL_SECONDS)
    with Path(description["log"]).open("ab") as log:
        return subprocess.Popen(
            description["argv"],
            env={**os.environ, **description["env"]},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _stop(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve(folder: Path, fifo: Path) -> None:
    """Reconcile when a byte arrives, when a child ends, and when a restart is due."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # Opened for writing too: a FIFO without writers would be readable all the time.
    control = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    services = Services(folder)
    while True:
        wake = services.reconcile()
        services.reap()
        timeout = None if wake is None else max(0.0, wake - time.monotonic())
        for ready in select.select([reader, control], [], [], timeout)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(ready, 4096)


def main(plan_path: str) -> None:
    """Become the node."""
    plan = json.loads(Path(plan_path).read_text())
    set_up(plan)
    print(f"{plan['hostname']} runs", flush=True)
    serve(BROUGHT / "services", BROUGHT / "control")


if __name__ == "__main__":
    main(sys.argv[1])
