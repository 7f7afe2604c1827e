"""One process per GPU: a worker with several GPUs consists of this launcher and the processes that it starts.

    python -m trainer.train --processes auto …      # in the pod digits-0 with 4 GPUs: digits-0/0 to digits-0/3

Each process is a member of the job by itself. A failure of one does not affect the others: only the lost process is
started again. If its GPU fails again and again, it is left out, and the others go on. With ``--shard P``, each P
processes are one member, which divide a model among them: the loss of one is that of all P, which are started again
(see ``units``). With ``--shard-nodes K`` these are on K machines, with a launcher each (see ``nodes``).

The processes run the launcher's own command line. TIDEWATER_LOCAL_RANK tells them that they are not the launcher. Each
sees one GPU (as `cuda:0`), and all write to the same output.

On SIGTERM, SIGHUP or the first Ctrl-C all processes leave at the next step boundary; a second Ctrl-C kills them. They
are also killed when the launcher ends in any way. The launcher does not import torch, so it uses no GPU memory and
nothing blocks its signals. As process 1 of a container it reaps orphaned processes.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidewater.contract import env, exit_codes, leaving
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch.gpus import Visible, visible_gpus
from tidewater.elastic.launch.lifeline import reap_strangers
from tidewater.elastic.launch.nodes import machine
from tidewater.elastic.launch.program import own_command
from tidewater.elastic.launch.rules import Then, decide, outcome, too_few_left
from tidewater.elastic.launch.signals import signals
from tidewater.elastic.launch.units import Child, Unit
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.metrics import serve_left_out

STOP_SECONDS = float(leaving.GRACE_SECONDS)
"""Time between the launcher's own SIGTERM and SIGKILL. If another process sent SIGTERM, that process decides."""

_LAST_PORT = 65535
_ONE = "1"
"""The default of ``--processes``."""


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
    if config.shard_nodes > 1:
        return replace(config, worker=config.replica, machine=config.worker, metrics_port=port)
    alone = config.shard > 1 and config.members == 1
    name = config.worker if alone else f"{config.worker}/{config.local_rank // config.shard}"
    return replace(config, worker=name, metrics_port=port)


@dataclass(frozen=True)
class Plan:
    """The number of processes, and the GPUs for them."""

    processes: int
    gpus: Visible


def plan(processes: str, environ: Mapping[str, str], shard: int = 1, nodes: int = 1) -> Plan:
    """Return the plan for `--processes`: a number, or `auto` for one per GPU (one process if there is no GPU).

    With `--shard P` they are at least P, or the part of these that is on one of several machines (``nodes``). Raise
    ConfigError if P doesn't divide their number, or if they are more than that part.
    """
    shard //= nodes
    if processes == "auto":
        found = visible_gpus(environ)
        planned = Plan(max(shard, len(found.gpus)), found)
    else:
        number = shard if processes == _ONE else int(processes)
        planned = Plan(number, visible_gpus(environ) if number > 1 else Visible((), "not determined"))
    if planned.processes % shard:
        raise ConfigError(
            f"--shard is {shard}, which doesn't divide the {planned.processes} processes of this worker (--processes "
            f"{processes}): give --processes a multiple of it"
        )
    if nodes > 1 and planned.processes != shard:
        raise ConfigError(
            f"--processes is {processes}, which is {planned.processes} here, and with --shard-nodes {nodes} a machine "
            f"has the {shard} processes of one worker: leave it out"
        )
    return planned


def launch(config: Config, planned: Plan) -> int:
    """Run the processes, each with this process's command line. Return the worker's exit code.

    Call it in the main thread. It restores the signal handlers before it returns.
    """
    log = Log(config.worker, debug=config.debug)
    about = {"machine": config.shard_node, "machines": config.shard_nodes} if config.shard_nodes > 1 else {}
    gpus, source = len(planned.gpus.gpus), planned.gpus.source
    log.event("launched", processes=planned.processes, gpus=gpus, said_by=source, **about)
    size = {env.LOCAL_SIZE: str(planned.processes)}
    children = [
        Child(rank, {env.LOCAL_RANK: str(rank), **size, **planned.gpus.only(rank)}, planned.gpus.of(rank))
        for rank in range(planned.processes)
    ]

    def stand_in(child: Child, code: int) -> None:
        """Serve metrics where those of the process were."""
        own = share(replace(config, local_rank=child.rank))
        gpu = child.gpu.uuid or child.gpu.name if child.gpu else ""
        try:
            serve_left_out(own.metrics_port, job=own.job, worker=own.worker, gpu=gpu, code=code)
        except ConfigError as error:
            log.event("metrics_not_served", process=child.rank, reason=str(error))

    with contextlib.ExitStack() as stack:
        divide = config.shard > 1
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewater-"))) if divide else None
        if config.shard_nodes > 1:
            return machine.run(config, Unit(children, place), own_command(), log)
        units = [Unit(children[at : at + config.shard], place) for at in range(0, len(children), config.shard)]
        return _Launcher(own_command(), units, log, stand_in).run()


@dataclass
class _Launcher:
    """Starts, watches and stops the processes. `rules` makes all decisions."""

    command: Sequence[str]
    units: Sequence[Unit]
    log: Log
    stand_in: Callable[[Child, int], None]
    """Called with each process that is left out, and its exit code."""
    leaving: bool = False
    interrupts: int = 0
    kill_at: float | None = None
    codes: list[int] = field(default_factory=list)
    """Exit codes of the units that are not started again, without those that were left out."""
    left_out: list[int] = field(default_factory=list)
    given_up: int | None = None
    """The exit code that made the launcher stop all processes."""

    def run(self) -> int:
        """Return when no process runs and none is to be started."""
        with signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD) as wait:
            while True:
                self._start_those_due()
                if not any(unit.runs or unit.due is not None for unit in self.units):
                    return outcome(self.codes) if self.given_up is None else self.given_up
                numbers, _ = wait(self._next_wake(), ())
                for number in numbers:
                    self._obey(number)
                self._look_at_each()
                reap_strangers({each.process.pid for unit in self.units for each in unit.children if each.process})
                if self.kill_at is not None and time.monotonic() >= self.kill_at:
                    self.kill_at = None
                    self._send(signal.SIGKILL)

    def _next_wake(self) -> float | None:
        """Return the next monotonic time at which something is due."""
        times = [self.kill_at, *(at for unit in self.units for at in (unit.due, unit.kill_at))]
        return min((at for at in times if at is not None), default=None)

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for unit in self.units:
            if unit.due is not None and unit.due <= now:
                unit.start(self.command, now)

    def _obey(self, number: int) -> None:
        """Forward SIGINT and SIGHUP as SIGTERM: on SIGINT, Python would stop within a step, with a traceback."""
        if number == signal.SIGINT:
            self.interrupts += 1
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._stop(signal.SIGKILL if self.interrupts > 1 else signal.SIGTERM)

    def _look_at_each(self) -> None:
        for unit in self.units:
            code = unit.look(time.monotonic())
            if code is not None:
                self._ended(unit, code)

    def _ended(self, unit: Unit, code: int) -> None:
        ran = time.monotonic() - unit.started
        verdict = decide(code, ran_seconds=ran, row=unit.row, leaving=self.leaving, learned=unit.learned)
        unit.row = verdict.row
        if verdict.then is Then.RESTART:
            unit.due = time.monotonic() + verdict.wait_seconds
            self.log.event(
                "process_lost", process=unit.first, code=code, seconds=ran, again_in=float(verdict.wait_seconds)
            )
        elif verdict.then is Then.LEAVE_OUT:
            self._leave_out(unit, code)
        else:
            self.codes.append(code)
        if verdict.then is Then.GIVE_UP:
            self.log.event("process_given_up", process=unit.first, code=code, failures=verdict.row.quick)
            self._give_up(code)

    def _leave_out(self, unit: Unit, code: int) -> None:
        """Go on without a unit, if enough are left."""
        self.left_out.append(code)
        units, gpu = len(self.units), next(each.gpu for each in unit.children if each.rank == unit.first)
        self.log.event(
            "process_left_out",
            process=unit.first,
            code=code,
            failures=unit.row.machine,
            gpu=gpu.name if gpu else None,
            uuid=gpu.uuid if gpu else None,
            bus_id=gpu.bus_id if gpu else None,
            left=units - len(self.left_out),
            of=units,
        )
        ends_with = too_few_left(self.left_out, units)
        if ends_with is None:
            for child in unit.children:
                self.stand_in(child, code)
            return
        reason = f"{units - len(self.left_out)} of {units} processes are left, fewer than half"
        self.log.event("worker_given_up", code=ends_with, reason=reason)
        self._give_up(ends_with)

    def _give_up(self, code: int) -> None:
        self.given_up = code
        self.kill_at = time.monotonic() + STOP_SECONDS
        self._stop(signal.SIGTERM)

    def _stop(self, how: signal.Signals) -> None:
        """Start nothing any more. Processes that waited to be started count as left."""
        self.leaving = True
        for unit in self.units:
            if unit.due is not None:
                unit.due = None
                self.codes.append(exit_codes.LEFT)
        self._send(how)

    def _send(self, how: signal.Signals) -> None:
        for unit in self.units:
            unit.send(how)
