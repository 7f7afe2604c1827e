"""The processes of a launcher in units: those that divide one model live and end together.

unit = Unit([Child(0, {…}), Child(1, {…})], folder)
unit.start(command, now)
unit.look(now)                  # the code with which it has ended, or None
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidewater.contract import env, exit_codes
from tidewater.elastic.launch.gpus import Gpu
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.launch.rules import Row, as_a_shell_does

LAST_SECONDS = 20.0
"""Time that the others of a unit have when the first one has ended as planned. They end at the same place."""


@dataclass
class Child:
    """One process, across its restarts."""

    rank: int
    environment: Mapping[str, str]
    gpu: Gpu | None
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Unit:
    """The processes of one member of the job: one, or those that divide one model."""

    children: Sequence[Child]
    folder: Path | None = None
    """Where the processes of a unit of several meet."""
    started: float = 0.0
    row: Row = field(default_factory=Row)
    due: float | None = 0.0
    """Monotonic time at which to start it; None if it is not to be started."""
    starts: int = 0
    code: int | None = None
    """The exit code of the process that has ended first. What the others end with is a consequence."""
    kill_at: float | None = None
    """Monotonic time at which to kill those that are left."""
    first: int = 0
    """The rank of that process."""

    @property
    def runs(self) -> bool:
        """Whether one of its processes runs."""
        return any(child.process for child in self.children)

    def start(self, command: Sequence[str], now: float) -> None:
        """Start its processes."""
        self.due, self.started, self.code, self.kill_at = None, now, None, None
        self.starts += 1
        for child in self.children:
            child.process = subprocess.Popen(
                command,
                env={**env.FIXED_HASHES, **os.environ, **child.environment, **self._meeting()},
                # In its own process group: a terminal's Ctrl-C goes only to the launcher, which forwards it once.
                process_group=0,
                preexec_fn=bound_to(os.getpid()),
            )

    def look(self, now: float) -> int | None:
        """Return the code with which it has just ended, or None. When a process has ended, the others have to."""
        if not self.runs:
            return None
        for child in self.children:
            status = child.process.poll() if child.process else None
            if status is not None:
                child.process = None
                self._ended(child, as_a_shell_does(status), now)
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self.send(signal.SIGKILL)
        return None if self.runs else self.code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its processes."""
        for child in self.children:
            if child.process:
                child.process.send_signal(number)

    def _ended(self, child: Child, code: int, now: float) -> None:
        if self.code is None:
            planned = code in (exit_codes.FINISHED, exit_codes.LEFT)
            self.code, self.first, self.kill_at = code, child.rank, now + LAST_SECONDS * planned

    def _meeting(self) -> dict[str, str]:
        """Return the variable with the file at which its processes meet: a new one, for those of this start only."""
        if self.folder is None:
            return {}
        return {env.LOCAL_MEETING: str(self.folder / f"{self.children[0].rank}-{self.starts}")}
