"""Faults of the cluster's own programs: processes of a pod that are frozen, and a control plane's that are killed.

    with frozen(processes_of(pod)):
        ...                             # the pod's processes stand still, its connections stay open

All processes of a one-machine cloud are processes of this machine, so they are found in /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
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
    cgroups: str


def _processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since the folder was listed
                yield _read(folder)


def _read(folder: Path) -> Process:
    def words(file: str) -> list[str]:
        return (folder / file).read_bytes().decode(errors="replace").split("\0")[:-1]

    return Process(int(folder.name), tuple(words("cmdline")), (folder / "cgroup").read_text())


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


def kill(checkout: Checkout, program: str) -> None:
    """Kill a program of the cluster's control plane, which the cloud then starts again."""
    place = str(checkout.state)
    ours = [each for each in _processes() if any(place in word for word in each.command)]
    (found,) = [each.pid for each in ours if each.command[0].endswith(f"/{program}")]
    os.kill(found, signal.SIGKILL)
    wait_until(f"the end of {program}", lambda: not is_alive(found))


def restart_api_server(checkout: Checkout) -> None:
    """Kill the cluster's API server; return when the one that the cloud starts in its place is ready."""
    kill(checkout, "kube-apiserver")
    wait_until("the new API server", lambda: checkout.run("kubectl get --raw /readyz", expect=None).status == 0)
