"""The worker processes of one run, and what they have recorded.

    trial = Trial(setup, "undisturbed", min_workers=2)
    trial.start("worker-0"); trial.open(12); trial.wait_for(lambda: trial.records.last >= 12, "step 12")

A wait ends with Fallen when a worker ends that should not, and with Stuck when nothing happens for long.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tidewater.cli.rehearse.records import Event, Records
from tidewater.contract import env, rehearsal
from tidewater.contract.exit_codes import FINISHED, LEFT
from tidewater.elastic.launch.farm import Farm
from tidewater.elastic.launch.rules import as_a_shell_does

_POLL_SECONDS = 0.02
_LAST_LINES = 8
_BARE_PREPARED = "event=prepared "


@dataclass(frozen=True)
class Setup:
    """What all runs of a rehearsal have in common."""

    folder: Path
    farm: Farm
    command: Sequence[str]
    """The arguments of `launch.project`: folder, script, and its flags."""
    environment: Mapping[str, str]
    samples: int
    patience_seconds: float
    """A run in which nothing happens for this time is stuck."""


class Failure(Exception):
    """A run can't go on."""


class Fallen(Failure):
    """A worker has ended that should not, or with another exit code than it should."""

    def __init__(self, worker: str, code: int, lines: Sequence[str]) -> None:
        super().__init__(f"{worker} ended with exit code {code}")
        self.code, self.lines = code, lines


class Stuck(Failure):
    """Nothing has happened for long."""


class Trial:
    """The workers of one run."""

    def __init__(self, setup: Setup, name: str, *, min_workers: int) -> None:
        self._setup = setup
        self._folder = setup.folder / name
        self._folder.mkdir()
        orders = rehearsal.Orders(setup.samples)
        (self._folder / rehearsal.ORDERS).write_text(json.dumps(asdict(orders)))
        self._gate = 0
        self.open(0)
        self._environment = {
            **setup.environment,
            env.JOB: f"{setup.folder.name}-{name}",
            env.MIN_WORKERS: str(min_workers),
            env.CHECKPOINTS: str(self._folder / "checkpoints"),
            rehearsal.FOLDER: str(self._folder),
        }
        self._started: list[str] = []
        self._leaving: set[str] = set()
        self._read: dict[Path, int] = {}
        self._quiet_since, self._written = time.monotonic(), 0
        self.codes: dict[str, int] = {}
        """Exit codes of the workers that have ended."""
        self.records = Records()

    @property
    def alive(self) -> list[str]:
        """Return the workers that run."""
        return [worker for worker in self._started if worker not in self.codes]

    def start(self, *workers: str) -> None:
        """Start workers."""
        for worker in workers:
            self._log(worker).touch()
            checkpoints = ("--checkpoints", self._environment[env.CHECKPOINTS])
            request = {
                "id": self._id(worker),
                "log": str(self._log(worker)),
                "command": [*self._setup.command, *checkpoints],
                "environment": {**self._environment, env.WORKER: worker},
            }
            self._setup.farm.fork(request)
            self._started.append(worker)

    def open(self, step: int) -> None:
        """Let the workers make steps up to this one. It never closes again."""
        self._gate = max(self._gate, step)
        new = self._folder / f"{rehearsal.GATE}.new"
        new.write_text(str(self._gate))
        new.replace(self._folder / rehearsal.GATE)

    @property
    def gate(self) -> int:
        """Return the last step that may begin."""
        return self._gate

    def happened(self, text: str) -> None:
        """Remember what was done to the workers, after the last step that they may have made."""
        self.records.events.append(Event(self._gate, text))

    def send(self, worker: str, number: signal.Signals) -> None:
        """Send a signal to a worker."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._leaving.add(worker)
        self._setup.farm.signal(self._id(worker), number)

    def is_prepared(self, worker: str) -> bool:
        """Return whether a worker has built its model, and announces itself to the others now."""
        return _BARE_PREPARED in self._log(worker).read_text(errors="replace")

    def have_begun(self, workers: Collection[str], step: int) -> bool:
        """Return whether all these workers have begun this step, or a later one."""
        return all(self.records.step_of(worker) >= step for worker in workers)

    def wait_for(self, condition: Callable[[], bool], what: str, *, seconds: float | None = None) -> bool:
        """Wait until the condition holds. Return False after ``seconds``; without them raise Stuck in the end."""
        until = None if seconds is None else time.monotonic() + seconds
        self._quiet_since = self._quiet_since if seconds else time.monotonic()
        while not self._look() or not condition():
            if not self.alive:
                words = f"all workers have ended after step {self.records.last}"
                raise Stuck(f"{what} did not happen: {words}. A rehearsal needs all its steps")
            written = sum(self._read.values()) + sum(self._log(each).stat().st_size for each in self._started)
            if written != self._written:
                self._quiet_since, self._written = time.monotonic(), written
            if until is not None and time.monotonic() >= until:
                return False
            if time.monotonic() - self._quiet_since > self._setup.patience_seconds:
                words = f"{what} did not happen: for {self._setup.patience_seconds:g} s no worker has recorded anything"
                raise Stuck(f"{words}; their last lines: {' / '.join(self._lines(each, 1)[-1] for each in self.alive)}")
            time.sleep(_POLL_SECONDS)
        return True

    def end(self) -> None:
        """Kill what runs, and read the rest of the records."""
        for worker in self.alive:
            self._setup.farm.signal(self._id(worker), signal.SIGKILL)
        self._take()

    def _look(self) -> bool:
        """Read new records, and see who has ended. Raise Fallen."""
        self._take()
        for worker in self.alive:
            status = self._setup.farm.code(self._id(worker))
            if status is None:
                continue
            code = self.codes[worker] = as_a_shell_does(status)
            if code not in (FINISHED, LEFT, 137) or (code != FINISHED and worker not in self._leaving):
                raise Fallen(worker, code, self._lines(worker, _LAST_LINES))
        return True

    def _take(self) -> None:
        for process, record in rehearsal.read_whole(self._folder, self._read):
            self.records.add(process, record)

    def _id(self, worker: str) -> str:
        return f"{self._environment[env.JOB]}/{worker}"

    def _log(self, worker: str) -> Path:
        return self._folder / f"{worker}.log"

    def _lines(self, worker: str, count: int) -> Sequence[str]:
        lines = [line for line in self._log(worker).read_text(errors="replace").splitlines() if line.strip()]
        return lines[-count:] or [f"{worker} has written nothing"]
