"""Processes of tests and benchmarks: started, sent signals to with all that they have started, and looked at.

process = Process("agent-0", ["torchrun", …], environment, folder)
process.signal(signal.SIGKILL)      # the agent and its worker at once, as when a machine loses its power
process.end()
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tidewater.elastic.launch.lifeline import bound_to

HOST = "127.0.0.1"
END_SECONDS = 5.0
PATIENCE_SECONDS = 180.0
"""Far beyond what anything here takes, even on a machine that is busy with other things."""
POLL_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
T = TypeVar("T")


class Process:
    """One process of ours with its log. It is killed when this one ends in any way."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                list(argv),
                env={**os.environ, **environment},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=bound_to(os.getpid()),
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def tree(self) -> list[int]:
        """Pids of the process and of all that descend from it; empty when it has ended."""
        return [] if self.exit_code is not None else [self._child.pid, *descendants(self._child.pid)]

    def signal(self, number: signal.Signals, *, whole_tree: bool = True) -> None:
        """Send a signal to the process, and to its descendants if `whole_tree`."""
        pids = self.tree()
        for pid in pids if whole_tree else pids[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or None if it still runs after `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(seconds)
        return None

    def end(self) -> None:
        """Kill the whole tree, frozen or not. Safe to call again."""
        self.signal(signal.SIGKILL)
        self.wait(END_SECONDS)

    def last_lines(self, count: int = 12) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def descendants(pid: int) -> list[int]:
    """Pids of a process's children, their children and so on."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        mine = children.get(todo.pop(), [])
        found += mine
        todo += mine
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time that the processes have used so far, without ended ones."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat(pid)[11:13])
    return ticks / _TICKS


def eventually(ask: Callable[[], T], *errors: type[Exception], seconds: float = PATIENCE_SECONDS) -> T:
    """Return the answer once there is one, for what another process or thread does; these errors are none."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(*errors):
            if answer := ask():
                return answer
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(POLL_SECONDS)


def wait_for_port(port: int, seconds: float) -> bool:
    """Return whether something listens there within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def state(pid: int) -> str:
    """Return the letter of proc(5), the third field of /proc/PID/stat; empty once the process is gone."""
    try:
        return _stat(pid)[0]
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Return whether a process runs or could; one that merely waits to be reaped doesn't."""
    return state(pid) not in ("", "Z")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, from the state on (the third of proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
