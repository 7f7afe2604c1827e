"""Starts and stops the processes of one cloud, and finds those that an earlier daemon left behind.

    supervisor = Supervisor(instance)
    supervisor.spawn("etcd-demo", ["etcd", "--data-dir", "..."], netns=True)
    supervisor.stop("etcd-demo")

Each process leads a session of its own and is recorded with its start time under `state/processes/`, because a pid
alone may since have been given to somebody else: a pid is only ever signalled while its start time is the recorded one.
"""

from __future__ import annotations

import contextlib
import json
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
from localcloud.instance import Instance

POLL_SECONDS = 0.02
KILL_SECONDS = 5.0
LAST_LINES = 15


@dataclass(frozen=True)
class Process:
    """A process we started: `started` is its start time in clock ticks since boot, field 22 of /proc/PID/stat."""

    name: str
    pid: int
    started: int
    log: Path


class Supervisor:
    """Owns the processes of one instance; every method is safe to call from any thread."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._records = instance.state / "processes"
        self._logs = instance.state / "logs"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        netns: bool = False,
        log: Path | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start `argv` detached under `name`.

        Args:
            env: The whole environment; ours when None.
            netns: Run inside the cloud's network namespace.
            log: Where output is appended; `state/logs/<name>.log` when None.

        Raises:
            ProcessFailed: The name is taken by a living process, or the program can't be executed.
        """
        self._check(name)
        log = log or self._logs / f"{name}.log"
        prefix = ["nsenter", f"--net=/run/netns/{self._instance.netns}", "--"] if netns else []
        child = _popen(name, [*prefix, *map(str, argv)], env, cwd, log)
        process = Process(name, child.pid, _start_time(child.pid) or 0, log)
        with self._lock:
            self._children[child.pid] = child
        _write_record(self._record(name), process)
        return process

    def _check(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ProcessFailed(f"process name {name!r} is not a file name: use letters, digits, '.', '_' and '-'")
        if self.alive(name):
            raise ProcessFailed(f"process {name} runs already: stop it first")
        self._records.mkdir(parents=True, exist_ok=True)

    def stop(self, name: str, grace_seconds: float = 5) -> None:
        """TERM the process group, KILL what is left of it after `grace_seconds`, and reap; no error if it is gone."""
        process = self._read(self._record(name))
        if process is None:
            return
        self._end(process, time.monotonic() + grace_seconds)
        self._forget(process)

    def kill(self, name: str) -> None:
        """KILL at once, without a chance to clean up."""
        self.stop(name, grace_seconds=0)

    def alive(self, name: str) -> bool:
        """Whether the process recorded as `name` runs."""
        process = self._read(self._record(name))
        return process is not None and self._runs(process)

    def find(self, name: str) -> Process | None:
        """The process recorded as `name`, running or not."""
        return self._read(self._record(name))

    def names(self) -> list[str]:
        """The names recorded, in order."""
        return sorted(path.stem for path in self._records.glob("*.json"))

    def last_lines(self, name: str, count: int = LAST_LINES) -> str:
        """The end of a process's log, for error messages."""
        process = self._read(self._record(name))
        log = process.log if process else self._logs / f"{name}.log"
        with contextlib.suppress(OSError):
            return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
        return ""

    def sweep(self, grace_seconds: float = 3) -> list[str]:
        """End every recorded process, all within one deadline.

        Returns:
            The names of those that were still running.
        """
        found = [process for path in self._records.glob("*.json") if (process := self._read(path))]
        running = [process for process in found if self._runs(process)]
        for process in running:
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        for process in running:
            self._end(process, deadline)
        for process in found:
            self._forget(process)
        return sorted(process.name for process in running)

    def _end(self, process: Process, deadline: float) -> None:
        if self._runs(process) and time.monotonic() < deadline:
            _signal_group(process.pid, signal.SIGTERM)
        self._wait(process, deadline)
        if self._runs(process):
            _signal_group(process.pid, signal.SIGKILL)
            self._wait(process, time.monotonic() + KILL_SECONDS)

    def _wait(self, process: Process, deadline: float) -> None:
        while self._runs(process) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _runs(self, process: Process) -> bool:
        with self._lock:
            child = self._children.get(process.pid)
        if child is not None:
            return child.poll() is None
        return process.started != 0 and _start_time(process.pid) == process.started

    def _forget(self, process: Process) -> None:
        with self._lock:
            self._children.pop(process.pid, None)
        self._record(process.name).unlink(missing_ok=True)

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    @staticmethod
    def _read(path: Path) -> Process | None:
        try:
            record = json.loads(path.read_text())
            return Process(path.stem, int(record["pid"]), int(record["started"]), Path(record["log"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _popen(
    name: str, command: list[str], env: Mapping[str, str] | None, cwd: Path | None, log: Path
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command,
                env=None if env is None else dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessFailed(f"process {name} can't be started: {error}; is {command[0]} installed?") from error


def _write_record(path: Path, process: Process) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"pid": process.pid, "started": process.started, "log": str(process.log)}))
    temporary.replace(path)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _start_time(pid: int) -> int | None:
    """Start time of a process that isn't a zombie, else None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
