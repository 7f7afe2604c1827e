"""Starts the workers, replaces lost ones, passes on their lines, and obeys signals and keys. `decide` decides.

    code = Crew(orders, etcd, output).run()

On SIGTERM, SIGHUP or the first Ctrl-C all workers leave at the next step boundary, and the last one saves the state. A
second Ctrl-C kills them. They are also killed when this process ends in any way. They leave too when their lines have
no reader any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidewater.cli.run.decide import Row, Then, decide, outcome
from tidewater.cli.run.etcd import Etcd
from tidewater.cli.run.output import Output, keyboard, worker_name
from tidewater.contract import env
from tidewater.contract.exit_codes import FAILED, FINISHED, KILLED, LEFT
from tidewater.contract.leaving import GRACE_SECONDS
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.launch.rules import as_a_shell_does
from tidewater.elastic.launch.signals import signals

_LAST_LINES = 12
_READ_BYTES = 65536
_WORDS = {KILLED: "was killed", LEFT: "left"}


@dataclass(frozen=True)
class Orders:
    """What to run. `metrics_port` is that of the first worker, the others have the next ones; 0: none."""

    command: Sequence[str]
    environment: Mapping[str, str]
    workers: int
    replace_seconds: float
    metrics_port: int = 0

    def environment_of(self, index: int) -> dict[str, str]:
        """Return the variables of a worker, as its pod would have them."""
        port = {env.METRICS_PORT: str(self.metrics_port + index)} if self.metrics_port else {}
        return {**self.environment, env.WORKER: worker_name(index), **port}


@dataclass
class _Worker:
    """One worker, across its replacements."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float | None = 0.0
    """Monotonic time at which to start it; None if it is not to be started."""
    rest: bytes = b""
    """A line that has no end yet."""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    @property
    def name(self) -> str:
        return worker_name(self.index)

    @property
    def output(self) -> int:
        """Return the descriptor of the output of a worker that runs."""
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.fileno()


class Crew:
    """All workers of a run."""

    def __init__(self, orders: Orders, etcd: Etcd, output: Output) -> None:
        self._orders = orders
        self._etcd = etcd
        self._output = output
        self._workers = [_Worker(index) for index in range(orders.workers)]
        self._row = Row()
        self._codes: list[int] = []
        """Exit codes of the workers that are not replaced."""
        self._given_up: int | None = None
        """The exit code with which all workers were stopped."""
        self._stopping = False
        self._interrupts = 0
        self._kill_at: float | None = None
        self._closed: set[int] = set()
        """Descriptors that have nothing to read any more: a worker may close its output before it ends."""

    def run(self) -> int:
        """Return the exit code of the run when no worker runs and none is to be started."""
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        with keyboard() as keys, signals(*watched) as wait:
            if keys is not None:
                self._output.note("a digit kills that worker, and another one takes its place; Ctrl-C: all leave")
            try:
                while True:
                    self._start_those_due()
                    if not any(worker.process or worker.due is not None for worker in self._workers):
                        return outcome(self._codes) if self._given_up is None else self._given_up
                    numbers, readable = wait(self._next_wake(), self._descriptors(keys))
                    if keys in readable:
                        keys = self._press(keys)
                    self._pass_on(readable)
                    for number in numbers:
                        self._obey(number)
                    self._look_at_each()
                    self._look_at_etcd()
                    if self._output.gone and not self._stopping:
                        self._stop()
                    self._kill_late_ones()
            finally:
                self._send(signal.SIGKILL)

    def _next_wake(self) -> float | None:
        times = (self._kill_at, *(worker.due for worker in self._workers))
        return min((at for at in times if at is not None), default=None)

    def _descriptors(self, keys: int | None) -> list[int]:
        outputs = {worker.output for worker in self._workers if worker.process} - self._closed
        return [*outputs, *([] if keys is None else [keys])]

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.due is None or worker.due > now:
                continue
            worker.due, worker.started, worker.rest = None, now, b""
            worker.last.clear()
            worker.process = subprocess.Popen(
                self._orders.command,
                env=self._orders.environment_of(worker.index),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # In its own process group: a terminal's Ctrl-C goes only to this process, which forwards it once.
                process_group=0,
                preexec_fn=bound_to(os.getpid()),
            )
            os.set_blocking(worker.output, False)
            self._closed.discard(worker.output)
            self._output.note(f"{worker.name} has started: pid {worker.process.pid}")

    def _press(self, keys: int | None) -> int | None:
        """Kill the workers with the digits that were pressed. Return None when the terminal is gone."""
        assert keys is not None
        pressed = b""
        with contextlib.suppress(OSError):
            pressed = os.read(keys, _READ_BYTES)
        for key in pressed.decode(errors="replace"):
            for worker in self._workers:
                if worker.process and key == str(worker.index):
                    self._output.note(f"key {key}: {worker.name}, pid {worker.process.pid}, is killed")
                    os.kill(worker.process.pid, signal.SIGKILL)
        return keys if pressed else None

    def _pass_on(self, readable: Sequence[int]) -> None:
        for worker in self._workers:
            if worker.process and worker.output in readable:
                self._read(worker)
        self._output.flush()

    def _read(self, worker: _Worker) -> bool:
        """Print what a worker has written. Return whether there may be more."""
        try:
            found = os.read(worker.output, _READ_BYTES)
        except BlockingIOError:
            return False
        if not found:
            self._closed.add(worker.output)
        *lines, worker.rest = (worker.rest + found).split(b"\n")
        for line in lines:
            self._print(worker, line)
        return bool(found)

    def _print(self, worker: _Worker, line: bytes) -> None:
        text = line.decode(errors="replace").removesuffix("\r")
        worker.last.append(text)
        self._output.line(worker.name, text)

    def _obey(self, number: int) -> None:
        self._interrupts += number == signal.SIGINT
        if number == signal.SIGINT and self._interrupts > 1:
            self._send(signal.SIGKILL)
        elif number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and not self._stopping:
            self._stop()

    def _stop(self) -> None:
        """Let all workers leave, and start none any more. Those that waited to be started count as left."""
        self._stopping = True
        self._kill_at = time.monotonic() + GRACE_SECONDS
        self._codes += [LEFT for worker in self._workers if worker.due is not None]
        self._start_no_more()
        self._send(signal.SIGTERM)
        waited = ", ".join(worker.name for worker in self._workers if worker.process)
        if waited:
            self._output.note(
                f"waiting up to {GRACE_SECONDS:g} s for {waited} to finish the step, save the state and leave; "
                "Ctrl-C again kills them"
            )

    def _start_no_more(self) -> None:
        for worker in self._workers:
            worker.due = None

    def _look_at_each(self) -> None:
        for worker in self._workers:
            if worker.process and os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                # What it has started itself. Its number can't be another process's yet: it was not waited for.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.process.pid, signal.SIGKILL)
                self._ended(worker, as_a_shell_does(worker.process.wait()))

    def _ended(self, worker: _Worker, code: int) -> None:
        assert worker.process is not None
        assert worker.process.stdout is not None
        while self._read(worker):
            pass
        if worker.rest:
            self._print(worker, worker.rest)
        worker.process.stdout.close()
        worker.process = None
        ending = self._stopping or FINISHED in self._codes
        ran = time.monotonic() - worker.started
        verdict = decide(code, ran_seconds=ran, row=self._row, ending=ending)
        self._row = verdict.row
        words = f"{worker.name} {_WORDS.get(code, 'has finished' if code == FINISHED else f'failed, exit code {code}')}"
        if verdict.then is Then.REPLACE:
            worker.due = time.monotonic() + self._orders.replace_seconds
            self._output.note(f"{words}; another {worker.name} starts in {self._orders.replace_seconds:g} s")
            return
        self._codes.append(code)
        if verdict.then is Then.GIVE_UP:
            self._give_up(code, "\n".join([f"{words}, and so would another one; its last lines:", *worker.last]))
            return
        self._output.note(words)
        if code == FINISHED:
            self._start_no_more()

    def _give_up(self, code: int, why: str) -> None:
        self._given_up = code
        self._output.note(why)
        self._stop()

    def _look_at_etcd(self) -> None:
        if not self._stopping and FINISHED not in self._codes and self._etcd.end:
            self._give_up(FAILED, self._etcd.end)

    def _kill_late_ones(self) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            late = ", ".join(worker.name for worker in self._workers if worker.process)
            self._output.note(f"killed, since {GRACE_SECONDS} s have passed: {late}")
            self._send(signal.SIGKILL)

    def _send(self, how: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process:
                # Popen.send_signal would reap a worker that has just ended, before `_look_at_each` sees it.
                os.kill(worker.process.pid, how)
