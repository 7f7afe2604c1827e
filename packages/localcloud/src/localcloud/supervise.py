"""Starts and stops the processes of one cloud.

    supervisor = Supervisor(instance)
    supervisor.spawn("etcd-demo", ["etcd", "--data-dir", "..."], netns=True)
    supervisor.stop("etcd-demo")

Each process leads a session of its own. Nothing is recorded on disk: when the daemon dies, the kernel ends everything
in its PID namespace (see `namespace`), so no later daemon has to find these processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcloud.errors import ProcessFailed
from localcloud.host import environment
from localcloud.instance import Instance
from localcloud.namespace import NETNS_DIR

POLL_SECONDS = 0.02
KILL_SECONDS = 5.0
LAST_LINES = 15


@dataclass(frozen=True)
class Process:
    """A process that the supervisor started."""

    name: str
    child: subprocess.Popen[bytes]
    log: Path

    @property
    def runs(self) -> bool:
        """Return whether the process runs."""
        return self.child.poll() is None

    def signal(self, number: int) -> None:
        """Signal the process and its group, if it still runs."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)

    def wait(self, deadline: float) -> None:
        """Return when the process has ended, or at `deadline` on the monotonic clock."""
        while self.runs and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


class Supervisor:
    """Owns the processes of one instance; every method is safe to call from any thread."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._logs = instance.state / "logs"
        self._processes: dict[str, Process] = {}
        self._lock = threading.Lock()

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        netns: bool = False,
    ) -> Process:
        """Start `argv` detached under `name`; its output is appended to `state/logs/<name>.log`.

        Args:
            env: The whole environment; `environment.of_host` when None.
            netns: Run inside the cloud's network namespace.

        Raises:
            ProcessFailed: A running process has this name, or the program can't be executed.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ProcessFailed(f"process name {name!r} is not a file name: use letters, digits, '.', '_' and '-'")
        if self.alive(name):
            raise ProcessFailed(f"process {name} runs already: stop it first")
        log = self._logs / f"{name}.log"
        prefix = ["nsenter", f"--net={NETNS_DIR / self._instance.netns}", "--"] if netns else []
        process = Process(name, _popen(name, [*prefix, *map(str, argv)], env, log), log)
        with self._lock:
            self._processes[name] = process
        return process

    def stop(self, name: str, grace_seconds: float = 5) -> None:
        """TERM the process group, KILL it after `grace_seconds`, and reap; no error if it has ended already."""
        process = self.find(name)
        if process is not None:
            self._end([process], grace_seconds)

    def kill(self, name: str) -> None:
        """KILL at once, without a chance to clean up."""
        self.stop(name, grace_seconds=0)

    def alive(self, name: str) -> bool:
        """Return whether the process started as `name` runs."""
        process = self.find(name)
        return process is not None and process.runs

    def find(self, name: str) -> Process | None:
        """The process started as `name` and not stopped since, running or not."""
        with self._lock:
            return self._processes.get(name)

    def names(self) -> list[str]:
        """The names of the processes that were not stopped, in order."""
        with self._lock:
            return sorted(self._processes)

    def last_lines(self, name: str, count: int = LAST_LINES) -> str:
        """The end of a process's log, for error messages."""
        process = self.find(name)
        log = process.log if process else self._logs / f"{name}.log"
        with contextlib.suppress(OSError):
            return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
        return ""

    def stop_all(self, grace_seconds: float = 3) -> list[str]:
        """End every process, all within one deadline.

        Returns:
            The names of those that were still running.
        """
        with self._lock:
            found = list(self._processes.values())
        running = sorted(process.name for process in found if process.runs)
        self._end(found, grace_seconds)
        return running

    def _end(self, processes: Sequence[Process], grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        for process in processes if grace_seconds > 0 else ():
            process.signal(signal.SIGTERM)
        for process in processes:
            process.wait(deadline)
            process.signal(signal.SIGKILL)
        for process in processes:
            process.wait(time.monotonic() + KILL_SECONDS)
        with self._lock:
            for process in processes:
                if self._processes.get(process.name) is process:
                    del self._processes[process.name]


def _popen(name: str, command: list[str], env: Mapping[str, str] | None, log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command,
                env=environment.of_host(os.environ) if env is None else env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessFailed(f"process {name} can't be started: {error}; is {command[0]} installed?") from error
