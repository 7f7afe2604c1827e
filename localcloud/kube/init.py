"""Process 1 of a simulated host: sets up its private file system, then keeps its services running.

    python -I init.py /path/to/plan.json        # inside fresh mount, PID, UTS and IPC namespaces

The plan says which folders to bring along, what to mount where, and where the services are described: one JSON file
each, started when it appears and stopped when it goes. A byte written to the node's FIFO says "look again". When this
process dies, however it dies, the kernel kills everything in the PID namespace and drops the mounts: a power cut.

Runs by itself with nothing but the standard library, so that a node starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MS_BIND, MS_REC, MS_SHARED = 4096, 16384, 1 << 20
MNT_DETACH = 2
RESTART_SECONDS = 1.0
AFTER_SECONDS = 15.0
AFTER_POLL_SECONDS = 0.02
STOP_SECONDS = 3.0
RUN = Path("/run")
BROUGHT = RUN / "localcloud"

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source or kind} on {target}: {os.strerror(number)}")


def set_up(plan: dict[str, Any]) -> None:
    """Make this namespace look like a host of its own."""
    for folder in plan["cgroups"]:
        (Path(folder) / "cgroup.procs").write_text("0")
    _libc.sethostname(plan["hostname"].encode(), len(plan["hostname"]))
    # Copies of others' mounted network namespaces would keep those alive after their owner has deleted them.
    _detach_below(RUN / "netns")
    # A mount may hide where these folders are, so they are held open across it.
    brought = {name: os.open(path, os.O_PATH) for name, path in plan["folders"].items()}
    mount("none", "/", flags=MS_REC | MS_SHARED)
    mount("tmpfs", str(RUN), "tmpfs", options="mode=755")
    for name, descriptor in brought.items():
        bind(f"/proc/self/fd/{descriptor}", BROUGHT / name)
        os.close(descriptor)
    for folder in plan["private"]:
        _overlay(folder)
    for source, target in plan["binds"]:
        bind(source, Path(target))
    for index, (path, content) in enumerate(plan["overrides"].items()):
        replacement = RUN / f"override-{index}"
        replacement.write_text(content)
        if Path(path).exists():
            mount(str(replacement), path, flags=MS_BIND)


def bind(source: str, target: Path) -> None:
    """Mount a folder at another place, which is made if it isn't there."""
    target.mkdir(parents=True, exist_ok=True)
    mount(source, str(target), flags=MS_BIND)


def _overlay(folder: str) -> None:
    """Keep the host's files readable under `folder`, and what is written there to ourselves."""
    layers = RUN / "overlay" / folder.strip("/").replace("/", "-")
    upper, work = layers / "upper", layers / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    mount("overlay", folder, "overlay", options=f"lowerdir={folder},upperdir={upper},workdir={work}")


def _detach_below(folder: Path) -> None:
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((p for p in points if p == str(folder) or p.startswith(f"{folder}/")), reverse=True):
        _libc.umount2(point.encode(), MNT_DETACH)


@dataclass
class Service:
    """A service as it is wanted, and its process if it runs."""

    description: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    not_before: float = 0.0


class Services:
    """Keeps the running processes equal to the described services."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._services: dict[str, Service] = {}

    def reconcile(self) -> float | None:
        """Start, restart and stop; returns when to look again (monotonic), or None."""
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
                service.process, service.not_before = None, now + RESTART_SECONDS
            if now < service.not_before:
                wake = min(wake or service.not_before, service.not_before)
            else:
                service.process = _start(description)
        return wake

    def reap(self) -> None:
        """Collect orphans that the kernel gave to us, but leave services' own processes to their Popen."""
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
    """Reconcile on every word from outside, every death of a child, and when a restart is due."""
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
    node = BROUGHT / "node"
    serve(node / "services", node / "control")


if __name__ == "__main__":
    main(sys.argv[1])
