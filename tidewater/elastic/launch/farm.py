"""Processes that are forked from a zygote, each with its log and its exit code.

with Farm("tidewater.elastic.rehearsal.zygote", folder, os.environ) as farm:
    pid = farm.fork({"id": "a", "log": "/tmp/a.log", …})
    code = farm.wait("a", seconds=10)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

START_SECONDS = 300.0
"""A zygote imports torch, which takes long on a busy machine."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class FarmError(Exception):
    """The zygote does not answer, or has ended."""


class Farm:
    """A zygote and its forked processes. It is a context manager; the processes end with it."""

    def __init__(self, module: str, folder: Path, environment: Mapping[str, str], *, cwd: Path | None = None) -> None:
        self._module, self._cwd = module, cwd
        self._environment = {**environment, **_ONE_THREAD}
        self._log = folder / "zygote.log"
        self._zygote: subprocess.Popen[str]
        self._pids: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._ready = False
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", self._module],
                cwd=self._cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self._wait(lambda: self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the zygote and with it its processes, including stopped ones."""
        self._zygote.kill()
        self._zygote.wait()

    def fork(self, request: Mapping[str, Any]) -> int:
        """Request a process; return its process id."""
        assert self._zygote.stdin
        self._zygote.stdin.write(json.dumps(request) + "\n")
        self._zygote.stdin.flush()
        self._wait(lambda: request["id"] in self._pids)
        return self._pids[request["id"]]

    def code(self, request: str) -> int | None:
        """Return the exit code of the process of that request, None while it runs; negative for a signal."""
        return self._codes.get(request)

    def signal(self, request: str, number: signal.Signals) -> None:
        """Send a signal to the process of that request, unless it has ended."""
        if self.code(request) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[request], number)

    def wait(self, request: str, seconds: float) -> int:
        """Return the exit code of the process of that request once it has ended."""
        self._wait(lambda: request in self._codes, seconds)
        return self._codes[request]

    def pause(self, seconds: float) -> None:
        """Wait for a report of the zygote, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def _wait(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self._zygote.poll() is not None, seconds):
                raise FarmError(f"the zygote did not report in {seconds:g} s:\n{self._log.read_text()[-4000:]}")
            if not condition():
                raise FarmError(f"the zygote has ended:\n{self._log.read_text()[-4000:]}")

    def _listen(self) -> None:
        assert self._zygote.stdout
        for line in self._zygote.stdout:
            report = json.loads(line)
            with self._changed:
                if "started" in report:
                    self._pids[report["started"]] = report["pid"]
                elif "ended" in report:
                    self._codes[report["ended"]] = report["code"]
                else:
                    self._ready = True
                self._changed.notify_all()
        self._zygote.wait()  # it has closed its output, and may not have ended yet
        with self._changed:
            self._changed.notify_all()
