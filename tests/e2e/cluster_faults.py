"""Faults of the cluster's own programs: processes of a pod that are frozen, and an API server that is killed.

    with frozen(processes_of(pod)):
        ...                             # the pod's processes stand still, its connections stay open

All processes of a one-machine cloud are processes of this machine, so they are found in /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.checkout import Checkout, wait_until
from tests.processes import is_alive


@dataclass(frozen=True)
class Process:
    """A process, as /proc has it."""

    pid: int
    command: tuple[str, ...]
    environment: dict[str, str]
    cgroups: str


def _processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since the folder was listed
                yield _read(folder)


def _read(folder: Path) -> Process:
    def words(file: str) -> list[str]:
        return (folder / file).read_bytes().decode(errors="replace").split("\0")[:-1]

    environment = dict(each.split("=", 1) for each in words("environ") if "=" in each)
    return Process(int(folder.name), tuple(words("cmdline")), environment, (folder / "cgroup").read_text())


def processes_of(pod: dict[str, Any]) -> list[int]:
    """Return the ids of the processes of a pod's containers."""
    group = f"/pod{pod['metadata']['uid']}/"
    return [each.pid for each in _processes() if group in each.cgroups and each.command[:1] != ("/pause",)]


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes with SIGSTOP within the block, and let them continue after it."""
    try:
        _send(signal.SIGSTOP, pids)
        yield
    finally:
        _send(signal.SIGCONT, pids)


def _send(number: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended, or the kubelet has killed it
            os.kill(pid, number)


def restart_api_server(checkout: Checkout) -> None:
    """Kill the cluster's API server, and start it again with the same arguments where it was.

    It becomes a process of the same namespaces, so it ends with the cloud, like all others.
    """
    place = str(checkout.state)
    ours = [each for each in _processes() if any(place in word for word in each.command)]
    old = next(each for each in ours if each.command[0].endswith("/kube-apiserver"))
    neighbour = next(each for each in ours if each.command[0].endswith("/etcd"))
    os.kill(old.pid, signal.SIGKILL)
    wait_until("the API server's end", lambda: not is_alive(old.pid))
    enter = ["nsenter", f"--target={neighbour.pid}", "--pid", "--net", "--mount", "--"]
    with Path(checkout.path, "kube-apiserver.log").open("a") as log:

        def started() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*enter, *old.command],
                env=old.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        new = started()

        def is_ready() -> bool:
            nonlocal new
            if new.poll() is not None:  # the last threads of the old one still held the port
                new = started()
            return checkout.run("kubectl get --raw /readyz", expect=None).status == 0

        wait_until("the new API server", is_ready)
