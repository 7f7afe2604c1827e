"""Processes that are forked from a zygote, each with its log and its exit code.

with Farm(folder) as farm:
    worker = farm.fork("worker", log, ["--job", "mnist", …])
    worker.kill()
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.trainer.workers import CHECKOUT, PATIENCE_SECONDS

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # the zygote forks before gRPC is used
}


class Farm:
    """A zygote and its forked processes. It is a context manager; the processes end with it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "zygote.log"
        self._zygote: subprocess.Popen[str]
        self._pids: dict[str, int] = {}
        self.codes: dict[str, int] = {}
        """Exit codes by request, of processes that have ended; negative for a signal."""
        self._requests = 0
        self._ready = False
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.elasticdl.processes.zygote"],
                cwd=CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait(lambda: self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the zygote and with it its processes."""
        self._zygote.kill()
        self._zygote.wait()

    def fork(self, kind: str, log: Path, argv: Sequence[str], points: Path | None = None) -> Forked:
        """Fork a process: a master, ps or worker with a command line."""
        assert self._zygote.stdin
        self._requests += 1
        name = f"{kind}-{self._requests}"
        request = {"id": name, "kind": kind, "log": str(log), "argv": list(argv), "points": str(points or "")}
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        self.wait(lambda: name in self._pids)
        return Forked(self, name, self._pids[name], log)

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds that a report of the zygote brings about."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self._zygote.poll() is not None, seconds):
                raise AssertionError(f"the zygote did not report in {seconds:g} s:\n{self._log.read_text()[-4000:]}")
            if not condition():
                raise AssertionError(f"the zygote has ended:\n{self._log.read_text()[-4000:]}")

    def pause(self, seconds: float) -> None:
        """Wait for a report of the zygote, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def _listen(self) -> None:
        assert self._zygote.stdout
        for line in self._zygote.stdout:
            report = json.loads(line)
            with self._changed:
                if "started" in report:
                    self._pids[report["started"]] = report["pid"]
                elif "ended" in report:
                    self.codes[report["ended"]] = report["code"]
                else:
                    self._ready = True
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


class Forked:
    """One process."""

    def __init__(self, farm: Farm, name: str, pid: int, log: Path) -> None:
        self._farm, self.name, self.pid, self.log = farm, name, pid, log

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs, negative for a signal."""
        return self._farm.codes.get(self.name)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return the exit code once the process has ended."""
        try:
            self._farm.wait(lambda: self.name in self._farm.codes, seconds)
        except AssertionError as error:
            raise AssertionError(f"{self.name} did not end in {seconds:g} s:\n{self.text()[-4000:]}") from error
        return self._farm.codes[self.name]

    def text(self) -> str:
        """Return the log, which processes of the same name share."""
        return self.log.read_text() if self.log.exists() else ""
