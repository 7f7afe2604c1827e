"""Workers of several forked processes that divide a model, for the schedules of faults.

arena = DividedArena(farm, folder, etcd, "reconfigured")
arena.play(schedule(17))

A fault strikes one process of a worker, a planned leave all of them. The test is their launcher, with its code: see
``launch.units``.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from tests.elastic.schedules.arena import Arena
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.points import CHECKPOINT
from tests.elastic.workers import PATIENCE_SECONDS
from tests.farm import Farm
from tidewater.contract import exit_codes
from tidewater.elastic.launch import units

PARTS = 2
_SIGNALLED = 128


class _Process:
    """One of them, as its launcher has it."""

    def __init__(self, part: Forked) -> None:
        self.poll, self.send_signal = part.poll, part.signal


class Unit(Forked):
    """The processes of one worker."""

    def __init__(self, farm: Farm, job: Job, parts: list[Forked]) -> None:
        super().__init__(farm, job, parts[0].name, parts[0].pid)
        self.parts = parts
        children: Any = [units.Child(index, {}, None, _Process(part)) for index, part in enumerate(parts)]  # type: ignore[arg-type]
        self._unit = units.Unit(children)
        self._ended: int | None = None
        self._victim = parts[len(job.workers) % len(parts)]

    def poll(self) -> int | None:
        """Return how the worker has ended, as the process with its code has. End the others as the launcher does."""
        code = self._unit.look(time.monotonic())
        if code is not None:
            self._ended = code if code == exit_codes.LEFT or code <= _SIGNALLED else _SIGNALLED - code
        return self._ended

    def target(self, point: str) -> Path:
        """Return the folder of the process that is to be hit there."""
        return self._aimed_at(point).folder

    def _aimed_at(self, point: str) -> Forked:
        """Return the process that can be hit there: only the first one takes and writes checkpoints."""
        return self.parts[0] if point in CHECKPOINT else self._victim

    def has_sent_itself(self, number: signal.Signals, point: str) -> None:
        """Record it. A leave is that of all processes."""
        self._note(number)
        struck = self._aimed_at(point)
        for part in self.parts:
            if part is not struck and number == signal.SIGTERM:
                part.signal(number)
        if number == signal.SIGSTOP:
            struck.has_sent_itself(number, point)

    def signal(self, number: signal.Signals) -> None:
        """Kill or freeze one process. Send all other signals to all."""
        self._note(number)
        one = number in (signal.SIGKILL, signal.SIGSTOP)
        for part in [self._victim] if one else self.parts:
            part.signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        deadline = time.monotonic() + seconds
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, f"{self.name} did not end in {seconds:g} s:\n{self.text()[-4000:]}"
            time.sleep(0.01)
        return code

    def text(self) -> str:
        return "\n".join(Forked.text(part) for part in self.parts)


class DividedJob(Job):
    """A job of such workers."""

    def start(self, name: str, *arguments: str, netns: str = "", host: str = "127.0.0.1", **options: Any) -> Forked:
        """Start the processes of a worker. ``armed``: see ``Unit.target``."""
        process, meeting = f"{name}-{len(self.workers)}", self.folder / f"meeting-{len(self.workers)}"
        given = ("--processes", str(PARTS), "--shard", str(PARTS), *arguments)
        armed = options.pop("armed", {})
        victim = len(self.workers) % PARTS
        parts = []
        for index in range(PARTS):
            mine = {at: how for at, how in armed.items() if index == (0 if at in CHECKPOINT else victim)}
            own = {**options, "armed": mine, "part": (index, PARTS), "meeting": str(meeting)}
            parts.append(self.forked(f"{process}.{index}" if index else process, given, netns, host, own))
        self.workers.append(Unit(self.farm, self, parts))
        return self.workers[-1]

    def tend(self) -> None:
        for worker in self.workers:
            worker.poll()


class DividedArena(Arena):
    """Keeps such a job running."""

    kind_of_job = DividedJob

    def flags(self, number: int) -> tuple[str, ...]:
        """Return none: a divided model can't have ``--data-workers`` yet."""
        return ()
