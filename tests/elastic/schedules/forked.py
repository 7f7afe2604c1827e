"""Many workers, forked from a zygote, each with its log, its ledger and its exit code.

with Farm(ZYGOTE, folder) as farm:
    job = Job(farm, folder, etcd)
    a = job.start("a", "--min-step-seconds", "0.01")
    a.wait_for_step(10); a.signal(signal.SIGKILL); assert a.wait() == -signal.SIGKILL
    job.book.refresh()
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.elastic.schedules.ledger import Book, Final
from tests.elastic.schedules.points import arm
from tests.elastic.workers import PATIENCE_SECONDS, Logged
from tests.farm import Farm
from tests.processes import state

ZYGOTE = "tests.elastic.schedules.zygote"

_STOP_SECONDS = 10.0
"""For a process to stop that has been about to send itself SIGSTOP; on a busy machine, too."""


class Forked(Logged):
    """One worker of a job."""

    def __init__(self, farm: Farm, job: Job, process: str, pid: int) -> None:
        self.folder = job.folder / process
        super().__init__(process, self.folder / "log")
        self._farm, self._job, self.pid = farm, job, pid
        self.frozen = False
        self.leaving = False
        self.killed = False

    def target(self, point: str) -> Path:
        """Return the folder of the process that is to be hit there."""
        return self.folder

    @property
    def last(self) -> Final | None:
        """Return the last step that this worker knows to be final."""
        self._job.book.refresh()
        return self._job.book.last.get(self.name)

    def poll(self) -> int | None:
        return self._farm.code(str(self.folder))

    def _note(self, number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self.frozen = True
        elif number == signal.SIGCONT:
            self.frozen = False
        elif number == signal.SIGTERM:
            self.leaving = True
        elif number == signal.SIGKILL:
            self.killed = True

    def has_sent_itself(self, number: signal.Signals, point: str) -> None:
        """Record the signal that it sent itself at that point.

        Wait until a stop takes effect: a stop after the thaw would last forever.
        """
        self._note(number)
        if number == signal.SIGSTOP:
            self.wait_for(lambda worker: worker.poll() is not None or state(worker.pid) == "T", _STOP_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and record what the worker is expected to do."""
        self._note(number)
        self._farm.signal(str(self.folder), number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        try:
            return self._farm.wait(str(self.folder), seconds)
        except AssertionError as error:
            raise AssertionError(f"{self.name} did not end in {seconds:g} s:\n{self.text()[-4000:]}") from error

    def wait_for_step(self, step: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until this worker knows a final step of at least that number."""
        self.wait_for(lambda worker: worker.last is not None and worker.last.step >= step, seconds)


class Job:
    """The workers of one job, their ledgers, their common command line arguments, and their kind of group."""

    def __init__(
        self,
        farm: Farm,
        folder: Path,
        etcd: str,
        *arguments: str,
        group: str = "reconfigured",
        inner_steps: int = 0,
    ) -> None:
        self.farm, self.folder, self._group, self.inner_steps = farm, folder, group, inner_steps
        folder.mkdir(parents=True, exist_ok=True)
        self.ledgers = folder / "ledgers"
        self.ledgers.mkdir(exist_ok=True)
        self.checkpoints = folder / "checkpoints"
        self.book = Book(self.ledgers)
        self.workers: list[Forked] = []
        # The name is unique even if the test runs twice with the same etcd.
        name = f"{folder.name}-{time.monotonic_ns():x}"
        self._arguments = ["--job", name, "--etcd", etcd, "--report-every", "1", *arguments]
        self._arguments += ["--sync-every", str(inner_steps)] if inner_steps else []

    def start(self, name: str, *arguments: str, netns: str = "", host: str = "127.0.0.1", **options: Any) -> Forked:
        """Start a worker. ``options``: see ``script.Options``; ``armed``: point and strike, see ``points.arm``."""
        worker = self.forked(f"{name}-{len(self.workers)}", arguments, netns, host, options)
        self.workers.append(worker)
        return worker

    def forked(self, process: str, arguments: Sequence[str], netns: str, host: str, options: dict[str, Any]) -> Forked:
        """Fork a process. See ``start``."""
        folder = self.folder / process
        folder.mkdir()
        for point, strike in options.pop("armed", {}).items():
            arm(folder, point, strike)
        where = ["--worker", process.partition(".")[0], "--host", host, "--checkpoints", str(self.checkpoints)]
        request = {
            "id": str(folder),
            "log": str(folder / "log"),
            "netns": netns,
            "argv": [*self._arguments, *where, *arguments],
            "options": {
                "folder": str(folder),
                "ledgers": str(self.ledgers),
                "process": process,
                "group": self._group,
                "inner_steps": self.inner_steps,
                **options,
            },
        }
        return Forked(self.farm, self, process, self.farm.fork(request))

    @property
    def living(self) -> list[Forked]:
        """Return the workers that have not ended, including frozen ones."""
        return [worker for worker in self.workers if worker.poll() is None]

    def tend(self) -> None:
        """Do what the workers' launchers do."""

    def wait_for_all(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all living workers have made two more steps together."""
        self.book.refresh()
        beyond = self.book.reached + 2

        def together() -> bool:
            lasts = [worker.last for worker in self.living]
            return all(last and last.step >= beyond and last.size == len(lasts) for last in lasts)

        deadline = time.monotonic() + seconds
        while not together():
            if time.monotonic() > deadline:
                raise AssertionError(f"the living workers do not train together after {seconds:g} s:\n{self.told()}")
            time.sleep(0.02)

    def told(self) -> str:
        """Return the ends of all logs, for an error message."""
        self.book.refresh()
        parts = []
        for worker in self.workers:
            last, code = self.book.last.get(worker.name), worker.poll()
            state = f"exit code {code}" if code is not None else "frozen" if worker.frozen else "lives"
            reached = f"step {last.step}, generation {last.generation}" if last else "no step"
            lines = [line for line in worker.text().splitlines() if "loss=" not in line and "_saved" not in line]
            parts.append("\n".join([f"--- {worker.name}: {state}, {reached}", *lines[-15:]]))
        return "\n".join(parts[-8:])

    def kill(self) -> None:
        """End all workers at once."""
        for worker in self.living:
            worker.signal(signal.SIGKILL)
        for worker in self.workers:
            worker.wait(30)
