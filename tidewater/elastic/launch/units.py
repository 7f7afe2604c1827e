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

from tidewater.contract import env, exit_codes, leaving
from tidewater.elastic.launch import limit
from tidewater.elastic.launch.gpus import Gpu
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.launch.rules import Row, as_a_shell_does

LAST_SECONDS = float(leaving.GRACE_SECONDS)
"""Time that the others of a unit have when the first one has ended as planned. They end at the same place, but one of
them may still write a checkpoint."""
MOMENT_SECONDS = 5.0
"""Time that they have when it has ended with an error: perhaps only because it has lost one of them, which is about to
end with the code that says why."""


def says_more(known: int | None, code: int) -> bool:
    """Return whether this exit code of a process is that of all, where ``known`` was so far."""
    planned = (exit_codes.FINISHED, exit_codes.LEFT)
    return known is None or known == exit_codes.FAILED != code or (known in planned and code not in planned)


def killed_at(code: int, now: float) -> float | None:
    """Return when to kill those that are left after a process has ended with the code of all; None: never."""
    # When the job has finished, another process may still have work of the script's own, such as an export.
    limits = {exit_codes.FINISHED: None, exit_codes.LEFT: LAST_SECONDS, exit_codes.FAILED: MOMENT_SECONDS}
    seconds = limits.get(code, 0.0)
    return None if seconds is None else now + seconds


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
    """The exit code of the process that has ended first. What the others end with is a consequence, unless it
    says more: another failure than an error, or any failure where that process has ended as planned."""
    kill_at: float | None = None
    """Monotonic time at which to kill those that are left."""
    killed: bool = False
    """Whether those that were left have been killed. What a killed process ends with says nothing."""
    first: int = 0
    """The rank of the process with that code."""
    fit: int = 0
    """Samples that were known to fit in its memory when it was started; 0: any number."""

    @property
    def runs(self) -> bool:
        """Whether one of its processes runs."""
        return any(child.process for child in self.children)

    @property
    def learned(self) -> bool:
        """Whether a process has noted since the start that fewer samples fit in its memory."""
        return limit.known(self.limit) != self.fit

    def start(self, command: Sequence[str], now: float, meeting: str = "") -> None:
        """Start its processes. ``meeting`` is where they meet those of other machines."""
        self.fit = limit.known(self.limit)
        self.due, self.started, self.code, self.kill_at, self.killed = None, now, None, None, False
        self.starts += 1
        for child in self.children:
            child.process = subprocess.Popen(
                command,
                env={**env.FIXED_HASHES, **os.environ, **child.environment, **self._meeting(meeting)},
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
        if not any(child.process for child in self.children):
            self.kill_at = None
            return self.code
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at, self.killed = None, True
            self.send(signal.SIGKILL)
        return None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its processes."""
        for child in self.children:
            if child.process:
                child.process.send_signal(number)

    def _ended(self, child: Child, code: int, now: float) -> None:
        if self.killed or not says_more(self.code, code):
            return
        self.code, self.first = code, child.rank
        self.kill_at = killed_at(code, now)

    def _meeting(self, place: str) -> dict[str, str]:
        """Return the variables with the place at which its processes meet, a new one for those of this start only, and
        with the file of ``limit``."""
        if self.folder is None:
            return {}
        meeting = place or str(self.folder / f"{self.children[0].rank}-{self.starts}")
        return {env.LOCAL_MEETING: meeting, env.LOCAL_LIMIT: str(self.limit)}

    @property
    def limit(self) -> Path | None:
        """The file of ``limit`` of its processes."""
        return self.folder / f"{self.children[0].rank}-limit" if self.folder else None
