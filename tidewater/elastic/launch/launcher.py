"""One process per GPU: a worker with several GPUs consists of this launcher and the processes that it starts.

    python -m trainer.train --processes auto …      # in the pod digits-0 with 4 GPUs: digits-0/0 to digits-0/3

Each process is a member of the job by itself. A failure of one does not affect the others: only the lost process is
started again. The processes run the launcher's own command line. TIDEWATER_LOCAL_RANK tells them that they are not the
launcher. Each sees one GPU (as `cuda:0`), and all write to the same output.

On SIGTERM, SIGHUP or the first Ctrl-C all processes leave at the next step boundary; a second Ctrl-C kills them. They
are also killed when the launcher ends in any way. The launcher does not import torch, so it uses no GPU memory and
nothing blocks its signals. As process 1 of a container it reaps orphaned processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from tidewater.contract import env, exit_codes
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.launch.program import own_command
from tidewater.elastic.launch.signals import signals
from tidewater.elastic.observe.log import Log

QUICK_SECONDS = 60.0
"""A process that ends sooner than this after its start has failed quickly, and will probably do so again."""
MAX_QUICK_FAILURES = 3
"""Number of consecutive quick failures after which the launcher gives up and leaves the decision to its parent."""
BACK_OFF_SECONDS = 1.0
"""Wait before a process is started again; doubles with every quick failure."""
STOP_SECONDS = 30.0
"""Time between the launcher's own SIGTERM and SIGKILL. If another process sent SIGTERM, that process decides."""

_LAST_PORT = 65535
_INIT = 1
_ANSWER_SECONDS = 30.0


class Then(Enum):
    """What to do when a process has ended."""

    REST = "it has finished"
    RESTART = "it was lost: start it again"
    GIVE_UP = "a restart would give the same result: stop all processes"


@dataclass(frozen=True)
class Verdict:
    """The reaction to the end of one process."""

    then: Then
    quick_failures: int = 0
    """Number of consecutive quick failures, including this one."""
    wait_seconds: float = 0.0
    """Wait before the process is started again."""


def decide(code: int, *, ran_seconds: float, quick_failures: int, leaving: bool) -> Verdict:
    """Return what to do when a process has ended.

    A process that left as planned, although the launcher was not asked to stop, is started again too: its GPU is still
    here.

    Args:
        code: The exit code as a shell reports it; see tidewater/contract/exit_codes.py.
        ran_seconds: How long the process ran.
        quick_failures: Number of its consecutive quick failures before this end.
        leaving: Whether the launcher was asked to stop.
    """
    if leaving or code == exit_codes.FINISHED:
        return Verdict(Then.REST)
    if code == exit_codes.USAGE:
        return Verdict(Then.GIVE_UP)
    failures = quick_failures + 1 if ran_seconds < QUICK_SECONDS else 0
    if failures >= MAX_QUICK_FAILURES:
        return Verdict(Then.GIVE_UP, failures)
    return Verdict(Then.RESTART, failures, BACK_OFF_SECONDS * 2**failures)


def outcome(codes: Iterable[int]) -> int:
    """Return the worker's exit code: a failure if a process failed, otherwise LEFT if one left."""
    found = set(codes)
    failures = sorted(found - {exit_codes.FINISHED, exit_codes.LEFT})
    if failures:
        return exit_codes.USAGE if exit_codes.USAGE in failures else failures[0]
    return exit_codes.LEFT if exit_codes.LEFT in found else exit_codes.FINISHED


def as_a_shell_does(status: int) -> int:
    """Return the exit code for what `subprocess` reports: 128 + n for an end by signal n."""
    return 128 - status if status < 0 else status


def share(config: Config) -> Config:
    """Return the settings of this process. One that a launcher started has its own name and metrics port.

    Raise ConfigError if that port does not exist.
    """
    if config.local_rank is None:
        return config
    port = config.metrics_port + config.local_rank if config.metrics_port else 0
    if port > _LAST_PORT:
        raise ConfigError(
            f"--metrics-port is {config.metrics_port}, which makes {port} for process {config.local_rank}; "
            f"the last port is {_LAST_PORT}"
        )
    return replace(config, worker=f"{config.worker}/{config.local_rank}", metrics_port=port)


@dataclass(frozen=True)
class Plan:
    """The number of processes, and the GPUs for them."""

    processes: int
    gpus: Visible


def plan(processes: str, environ: Mapping[str, str]) -> Plan:
    """Return the plan for `--processes`: a number, or `auto` for one per GPU (one process if there is no GPU)."""
    if processes == "auto":
        found = visible_gpus(environ)
        return Plan(max(1, len(found.names)), found)
    return Plan(int(processes), visible_gpus(environ) if int(processes) > 1 else Visible((), "not determined"))


def launch(config: Config, planned: Plan) -> int:
    """Run the processes, each with this process's command line. Return the worker's exit code.

    Call it in the main thread. It restores the signal handlers before it returns.
    """
    log = Log(config.worker, debug=config.debug)
    log.event("launched", processes=planned.processes, gpus=len(planned.gpus.names), said_by=planned.gpus.source)
    size = {env.LOCAL_SIZE: str(planned.processes)}
    children = [
        _Child(rank, {env.LOCAL_RANK: str(rank), **size, **planned.gpus.only(rank)})
        for rank in range(planned.processes)
    ]
    return _Launcher(own_command(), children, log).run()


@dataclass
class _Child:
    """One process, across its restarts."""

    rank: int
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    quick_failures: int = 0
    due: float | None = 0.0
    """Monotonic time at which to start it; None if it is not to be started."""


@dataclass
class _Launcher:
    """Starts, watches and stops the processes. `decide` and `outcome` make all decisions."""

    command: Sequence[str]
    children: Sequence[_Child]
    log: Log
    leaving: bool = False
    interrupts: int = 0
    kill_at: float | None = None
    codes: list[int] = field(default_factory=list)
    """Exit codes of the processes that are not started again."""
    given_up: int | None = None
    """The exit code that made the launcher stop all processes."""

    def run(self) -> int:
        """Return when no process runs and none is to be started."""
        with signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD) as wait:
            while True:
                self._start_those_due()
                if not any(child.process or child.due is not None for child in self.children):
                    return outcome(self.codes) if self.given_up is None else self.given_up
                numbers, _ = wait(self._next_wake(), ())
                for number in numbers:
                    self._obey(number)
                self._look_at_each()
                _reap_strangers({child.process.pid for child in self.children if child.process})
                if self.kill_at is not None and time.monotonic() >= self.kill_at:
                    self.kill_at = None
                    self._send(signal.SIGKILL)

    def _next_wake(self) -> float | None:
        """Return the next monotonic time at which something is due."""
        return min(
            (at for at in (self.kill_at, *(child.due for child in self.children)) if at is not None), default=None
        )

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.due is not None and child.due <= now:
                child.due, child.started = None, now
                child.process = subprocess.Popen(
                    self.command,
                    env={**env.FIXED_HASHES, **os.environ, **child.environment},
                    # In its own process group: a terminal's Ctrl-C goes only to the launcher, which forwards it once.
                    process_group=0,
                    preexec_fn=bound_to(os.getpid()),
                )

    def _obey(self, number: int) -> None:
        """Forward SIGINT and SIGHUP as SIGTERM: on SIGINT, Python would stop within a step, with a traceback."""
        if number == signal.SIGINT:
            self.interrupts += 1
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._stop(signal.SIGKILL if self.interrupts > 1 else signal.SIGTERM)

    def _look_at_each(self) -> None:
        for child in self.children:
            status = child.process.poll() if child.process else None
            if status is not None:
                child.process = None
                self._ended(child, as_a_shell_does(status))

    def _ended(self, child: _Child, code: int) -> None:
        ran = time.monotonic() - child.started
        verdict = decide(code, ran_seconds=ran, quick_failures=child.quick_failures, leaving=self.leaving)
        child.quick_failures = verdict.quick_failures
        if verdict.then is Then.RESTART:
            child.due = time.monotonic() + verdict.wait_seconds
            self.log.event(
                "process_lost", process=child.rank, code=code, seconds=ran, again_in=float(verdict.wait_seconds)
            )
            return
        self.codes.append(code)
        if verdict.then is Then.GIVE_UP:
            self.given_up = code
            self.log.event("process_given_up", process=child.rank, code=code, failures=verdict.quick_failures)
            self.kill_at = time.monotonic() + STOP_SECONDS
            self._stop(signal.SIGTERM)

    def _stop(self, how: signal.Signals) -> None:
        """Start nothing any more. Processes that waited to be started count as left."""
        self.leaving = True
        for child in self.children:
            if child.due is not None:
                child.due = None
                self.codes.append(exit_codes.LEFT)
        self._send(how)

    def _send(self, how: signal.Signals) -> None:
        for child in self.children:
            if child.process:
                child.process.send_signal(how)


def _reap_strangers(ours: set[int]) -> None:
    """Reap orphans: process 1 inherits those of its container, and they stay zombies until it waits for them."""
    while os.getpid() == _INIT:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:  # one of our own processes has just ended: `poll` must see it first
            return
        os.waitpid(ended.si_pid, 0)


@dataclass(frozen=True)
class Visible:
    """The GPUs as CUDA_VISIBLE_DEVICES names them, and the source of this information."""

    names: tuple[str, ...]
    source: str

    def only(self, rank: int) -> dict[str, str]:
        """Return the variable that shows process `rank` only one of them, as `cuda:0`; none if there is no GPU.

        NCCL can still reach the GPUs of the other processes.
        """
        return {"CUDA_VISIBLE_DEVICES": self.names[rank % len(self.names)]} if self.names else {}


def visible_gpus(environ: Mapping[str, str], nodes: Path = Path("/dev")) -> Visible:
    """Return the GPUs, without torch, which would take seconds and GPU memory.

    They are found by CUDA_VISIBLE_DEVICES, nvidia-smi or the device nodes, in this order.
    NVIDIA_VISIBLE_DEVICES is no help: images set it to `all` even if there is no GPU.
    """
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        end = next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))  # as CUDA reads it
        return Visible(tuple(names[:end]), f"CUDA_VISIBLE_DEVICES={chosen}")
    listed = _nvidia_smi(environ)
    if listed is not None:
        return Visible(_numbered(sum(line.startswith("GPU ") for line in listed.splitlines())), "nvidia-smi -L")
    found = [node for node in nodes.glob("nvidia[0-9]*") if node.name.removeprefix("nvidia").isdecimal()]
    return Visible(_numbered(len(found)), f"{nodes}/nvidia*")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _nvidia_smi(environ: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
