"""Masters, parameter servers and workers that are forked from a zygote, each with its log and its exit code.

with Farm(ZYGOTE, folder, ENVIRONMENT) as farm:
    worker = fork(farm, "worker", log, ["--job", "mnist", …])
    worker.kill()
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from pathlib import Path

from tests import programs
from tests.elastic.workers import PATIENCE_SECONDS
from tests.farm import Farm

ZYGOTE = "packages.elasticdl.tests.processes.zygote"
ENVIRONMENT = {**programs.ENVIRON, "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""The zygote forks before gRPC is used."""

_NUMBERS = itertools.count(1)


def fork(farm: Farm, kind: str, log: Path, argv: Sequence[str], points: Path | None = None) -> Forked:
    """Fork a process: a master, ps or worker with a command line."""
    name = f"{kind}-{next(_NUMBERS)}"
    request = {"id": name, "kind": kind, "log": str(log), "argv": list(argv), "points": str(points or "")}
    farm.fork(request)
    return Forked(farm, name, log)


class Forked:
    """One process."""

    def __init__(self, farm: Farm, name: str, log: Path) -> None:
        self._farm, self.name, self.log = farm, name, log

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs, negative for a signal."""
        return self._farm.code(self.name)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._farm.signal(self.name, number)

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return the exit code once the process has ended."""
        try:
            return self._farm.wait(self.name, seconds)
        except AssertionError as error:
            raise AssertionError(f"{self.name} did not end in {seconds:g} s:\n{self.text()[-4000:]}") from error

    def text(self) -> str:
        """Return the log, which processes of the same name share."""
        return self.log.read_text() if self.log.exists() else ""
