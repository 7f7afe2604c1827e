"""The starts of a worker over several machines: what the launcher of the first machine decides for all of them.

    starts = Starts(2, log.event)
    starts.joined(0, 0, now); orders = starts.joined(1, 0, now)     # [(0, Start(…)), (1, Start(…))]
    orders = starts.ended(1, 137, 2, now)                           # [(0, Stop(0.0)), (1, Stop(0.0))]
    orders = starts.idle(0, 0, now) + starts.idle(1, 0, now)
    orders = starts.turn(later)                                     # they start again

The end of one process is the end of all, and counts as it does in one launcher (see ``units`` and ``rules``). A machine
that is lost ends all processes too, and is no failure that counts: they start again when it is back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidewater.contract import exit_codes
from tidewater.elastic.launch.limit import least
from tidewater.elastic.launch.nodes.messages import End, Leave, Order, Start, Stop
from tidewater.elastic.launch.rules import Row, Then, decide
from tidewater.elastic.launch.units import killed_at, says_more

MACHINES_SECONDS = 3600.0
"""Longest wait for other machines. After it the launcher ends, so that it can be started elsewhere."""
_NUMBER_BITS = 62

Orders = list[tuple[int, Order]]
"""Each with the machine that it is for."""


@dataclass
class Starts:
    """The machines of one worker. Times are monotonic seconds."""

    machines: int
    """Their number."""
    say: Callable[..., Any]
    """Logs an event with its fields."""
    result: int | None = None
    """The code with which all launchers end."""
    names: dict[int, str] = field(default_factory=dict)
    """Those of the machines that have been there."""
    _limits: dict[int, int] = field(default_factory=dict)
    """Of the machines that are there."""
    _running: set[int] = field(default_factory=set)
    """The machines with processes that run."""
    _fit: int = 0
    """The limit with which they were started."""
    _began: float = 0.0
    _code: int | None = None
    """The exit code that counts for all processes of this start; see ``units``."""
    _first: int = 0
    """The index of the process with that code."""
    _kill_at: float | None = None
    _lost: bool = False
    """Whether a lost machine has ended this start."""
    _row: Row = field(default_factory=Row)
    _due: float = 0.0
    """When to start them."""
    _leaving: bool = False
    _waits_since: float | None = None

    @property
    def absent(self) -> list[str]:
        """The names of the machines for which the others wait."""
        if self._running or self.result is not None:
            return []
        missing = (each for each in range(self.machines) if each not in self._limits)
        return [self.names.get(each) or f"machine {each}" for each in missing]

    @property
    def wakes_at(self) -> float | None:
        """When ``turn`` has something to do; None if only another event can lead to that."""
        return None if self._running or self.absent else self._due

    def joined(self, machine: int, limit: int, now: float) -> Orders:
        """Note that a machine is there, and none of its processes runs. ``limit``: see ``launch.limit``."""
        orders = self.lost(machine, now) if machine in self._limits else []
        self._limits[machine] = limit
        return orders + (self.turn(now) if self.result is None else [(machine, End(self.result))])

    def lost(self, machine: int, now: float) -> Orders:
        """Note that a machine is lost, with its processes. Those of the others end."""
        del self._limits[machine]
        ran = now - self._began if machine in self._running else None
        self.say("machine_lost", machine=self.names.get(machine), number=machine, seconds=ran)
        if machine not in self._running:
            return []
        self._running.discard(machine)
        # A process of another machine may have seen that before, and ended with an error.
        if self._code in (None, exit_codes.FAILED):
            self._lost, self._code, self._kill_at = True, None, now
        return self._stop(now) + self._settle(now)

    def ended(self, machine: int, code: int, first: int, now: float) -> Orders:
        """Note the exit code that counts for the processes of a machine, and the index of the process with it."""
        if machine in self._running and not self._lost and says_more(self._code, code):
            self._code, self._first, self._kill_at = code, first, killed_at(code, now)
        return self._stop(now)

    def idle(self, machine: int, limit: int, now: float) -> Orders:
        """Note that none of a machine's processes runs any more."""
        self._limits[machine] = limit
        if machine not in self._running:
            return []
        self._running.discard(machine)
        return self._settle(now)

    def leave(self) -> Orders:
        """Let all processes leave, and start none any more."""
        if self._leaving or self.result is not None:
            return []
        self._leaving = True
        return [(each, Leave()) for each in self._running] if self._running else self.end(exit_codes.LEFT)

    def turn(self, now: float) -> Orders:
        """Start the processes if that is due, and end after a wait that is too long."""
        if not self.absent:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since > MACHINES_SECONDS:
            reason = f"{', '.join(self.absent)} did not come in {MACHINES_SECONDS:g} s"
            self.say("worker_given_up", code=exit_codes.UNCONNECTED, reason=reason)
            return self.end(exit_codes.UNCONNECTED)
        if self._running or self.absent or self.result is not None or now < self._due:
            return []
        self._running, self._began, self._fit = set(self._limits), now, least(self._limits.values())
        self._code, self._kill_at, self._lost = None, None, False
        order = Start(secrets.randbits(_NUMBER_BITS), self._fit)
        return [(each, order) for each in sorted(self._running)]

    def end(self, code: int) -> Orders:
        """End all launchers that are there."""
        self.result = code
        return [(each, End(code)) for each in self._limits]

    def _stop(self, now: float) -> Orders:
        """Return the orders that end the processes that are left. Each machine has set a time of its own before."""
        if self._code is None and not self._lost:
            return []
        seconds = None if self._kill_at is None else max(0.0, self._kill_at - now)
        return [(each, Stop(seconds)) for each in sorted(self._running)]

    def _settle(self, now: float) -> Orders:
        """Decide what follows when no process runs any more."""
        if self._running:
            return []
        if self._lost or self._code is None:
            self._due = now
            return self.end(exit_codes.KILLED) if self._leaving else []
        ran, learned = now - self._began, least(self._limits.values()) != self._fit
        verdict = decide(self._code, ran_seconds=ran, row=self._row, leaving=self._leaving, learned=learned)
        self._row, about = verdict.row, {"process": self._first, "code": self._code}
        if verdict.then is Then.RESTART:
            self._due = now + verdict.wait_seconds
            self.say("process_lost", **about, seconds=ran, again_in=float(verdict.wait_seconds))
            return []
        if verdict.then is not Then.REST:
            self.say("process_given_up", **about, failures=max(verdict.row.quick, verdict.row.machine))
        return self.end(self._code)
