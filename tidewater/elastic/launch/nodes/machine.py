"""The launcher of one machine of a worker over several: it starts and ends its processes as the first machine says.

    code = run(config, Unit(children, folder), command, log)

The first machine decides (see ``starts``). A further one reports what becomes of its processes, and does what it gets
back. Without the first machine it kills its processes and waits for it: a start has all machines or none. A launcher
that is frozen or cut off notices, when it goes on, that the others have closed its connection.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from tidewater.contract import exit_codes
from tidewater.elastic.config import Config
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.launch import limit
from tidewater.elastic.launch.lifeline import reap_strangers
from tidewater.elastic.launch.nodes.link import Gate, Link, Mailbox
from tidewater.elastic.launch.nodes.lookup import Look, Lookup, calling, publishing
from tidewater.elastic.launch.nodes.messages import (
    End,
    Ended,
    Hello,
    Idle,
    Leave,
    Message,
    Order,
    Report,
    Start,
    Stop,
    Taken,
)
from tidewater.elastic.launch.nodes.starts import MACHINES_SECONDS, Orders, Starts
from tidewater.elastic.launch.signals import signals
from tidewater.elastic.launch.units import Unit
from tidewater.elastic.observe.log import Lasting, Log
from tidewater.elastic.peer.keyvalue import Place

_BEATS = 4
"""Pings in the time after which a machine that is silent is lost."""
_SAY_SECONDS = 30.0


def run(config: Config, unit: Unit, command: Sequence[str], log: Log) -> int:
    """Run the processes of this machine. Return the worker's exit code. Raise ConfigError for wrong settings."""
    kind = Further if config.shard_node else First
    return kind(config, unit, command, log).run()


class Machine(ABC):
    """The launcher of one machine."""

    def __init__(self, config: Config, unit: Unit, command: Sequence[str], log: Log) -> None:
        self.config, self.unit, self.log = config, unit, log
        self.mailbox = Mailbox()
        self.code: int | None = None
        """The exit code with which this launcher ends."""
        self.lookup = Lookup(config, self.look(), self.mailbox, log)
        self._command = command
        self._silent_seconds = config.heartbeat_seconds + config.peer_timeout_seconds
        self._waiting, self._waits_since = Lasting(log, "waiting"), time.monotonic()
        self._reported: int | None = None
        self._was_running = False
        self._interrupts = 0
        self._turned_at = time.monotonic()

    @property
    @abstractmethod
    def links(self) -> Collection[Link]:
        """The connections to other machines."""

    @abstractmethod
    def look(self) -> Look:
        """Return what looks for the other machines."""

    @abstractmethod
    def arrived(self, item: Any, now: float) -> None:
        """Take what the lookup has found."""

    @abstractmethod
    def heard(self, link: Link, message: Message, now: float) -> None:
        """Take a message of another machine."""

    @abstractmethod
    def parted(self, link: Link, now: float) -> None:
        """Go on without a machine that is lost."""

    @abstractmethod
    def report(self, report: Report, now: float) -> None:
        """Let the first machine know what has become of this one's processes, or that it was asked to leave."""

    @abstractmethod
    def turn(self, now: float) -> float | None:
        """Do what is due. Return the monotonic time of what is due next."""

    def run(self) -> int:
        """Return when no process runs and none is to be started."""
        with signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD) as wait:
            try:
                due = self._turn((), ())
                while self.code is None:
                    due = self._turn(*wait(due, [self.mailbox.fileno(), *(each.fileno() for each in self.links)]))
                for link in self.links:
                    link.finish()
                return self.code
            finally:
                self.unit.send(signal.SIGKILL)

    def obey(self, order: Order, place: Place | None, now: float) -> None:
        """Do what the first machine decides. ``place`` is where it serves the keys."""
        if isinstance(order, Start) and place and self.unit.limit:
            if order.limit:
                limit.note(self.unit.limit, order.limit)
            self._reported, self._was_running = None, True
            self.unit.start(self._command, now, str(place._replace(number=order.meeting)))
        elif isinstance(order, Stop) and self.unit.runs:
            self.unit.kill_at = None if order.seconds is None else now + order.seconds
        elif isinstance(order, Leave):
            self.unit.send(signal.SIGTERM)
        elif isinstance(order, End):
            if order.reason:
                raise ConfigError(order.reason)
            self.code = order.code

    def say_waits(self, names: str, now: float, **about: str | None) -> float:
        """Say what this machine waits for, when it has waited for a while. Return for how long it has."""
        waits = now - self._waits_since
        if waits > _SAY_SECONDS:
            self._waiting.say(reason="machines", waits_for=names, **about)
        return waits

    def waits_no_more(self, now: float) -> None:
        """Note that this machine has what it has waited for."""
        self._waits_since = now

    def _turn(self, numbers: Sequence[int], readable: Collection[int]) -> float | None:
        """Do all that there is to do. Return when to do it next."""
        now = time.monotonic()
        # One that was stopped itself doesn't blame the others.
        stood_still, self._turned_at = now - self._turned_at > self._silent_seconds / 2, now
        for link in list(self.links):
            for message in link.receive() if link.fileno() in readable else ():
                self.heard(link, message, now)
            link.heard_at = now if stood_still else link.heard_at
            link.beat(now, self._silent_seconds / _BEATS)
            if link.closed or now - link.heard_at > self._silent_seconds:
                link.close()
                self.parted(link, now)
        for item in self.mailbox.take():
            if isinstance(item, Exception):
                raise item
            self.arrived(item, now)
        for number in numbers:
            self._signalled(number, now)
        self._look_at_processes(now)
        due = [self.unit.kill_at, self.turn(now)]
        due.append(now + self._silent_seconds / _BEATS)
        reap_strangers({each.process.pid for each in self.unit.children if each.process})
        return min(each for each in due if each is not None)

    def _signalled(self, number: int, now: float) -> None:
        self._interrupts += number == signal.SIGINT
        if number == signal.SIGINT and self._interrupts > 1:
            self.unit.send(signal.SIGKILL)
        elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.report(Leave(), now)

    def _look_at_processes(self, now: float) -> None:
        if not self._was_running:
            return
        self.unit.look(now)
        if self.unit.code is not None and self.unit.code != self._reported:
            self._reported = self.unit.code
            first = self.config.shard_node * len(self.unit.children) + self.unit.first
            self.report(Ended(self.unit.code, first), now)
        if not self.unit.runs:
            self._was_running = False
            self.report(Idle(limit.known(self.unit.limit)), now)


class First(Machine):
    """The launcher of the first machine, which decides for all."""

    def __init__(self, config: Config, unit: Unit, command: Sequence[str], log: Log) -> None:
        super().__init__(config, unit, command, log)
        self._starts = Starts(config.shard_nodes, log.event, names={0: config.worker})
        self._gate: Gate | None = None
        self._links: dict[int, Link] = {}

    @property
    def links(self) -> Collection[Link]:
        """The connections to further machines."""
        return self._links.values()

    def look(self) -> Look:
        """Return what lets the other machines find this one."""
        return publishing(self.config, self.mailbox)

    def arrived(self, item: Any, now: float) -> None:
        """Take the gate of this machine, another machine that has come, or the end of the job."""
        if isinstance(item, End):
            self._carry(self._starts.end(item.code) if self._starts.absent else [], now)
        elif isinstance(item, Gate):
            self._gate = item
            self._carry(self._starts.joined(0, limit.known(self.unit.limit), now), now)
        else:
            self._welcome(item[0], item[1], now)

    def heard(self, link: Link, message: Message, now: float) -> None:
        """Take a report of another machine."""
        self._noted(next(each for each, known in self._links.items() if known is link), message, now)

    def parted(self, link: Link, now: float) -> None:
        """Go on without a machine that is lost."""
        machine = next(each for each, known in self._links.items() if known is link)
        del self._links[machine]
        self._carry(self._starts.lost(machine, now), now)

    def report(self, report: Report, now: float) -> None:
        """Take the report of this machine."""
        self._noted(0, report, now)

    def turn(self, now: float) -> float | None:
        """Start the processes if that is due. Look for the machines that are missing."""
        self._carry(self._starts.turn(now), now)
        self.code = self._starts.result
        absent = self._starts.absent
        self.lookup.want(bool(absent))
        if absent:
            names = ", ".join(each for each in absent if each != self.config.worker) or "etcd"
            self.say_waits(names, now, error=self.lookup.trouble or None)
        else:
            self.waits_no_more(now)
        return self._starts.wakes_at

    def _welcome(self, hello: Hello, link: Link, now: float) -> None:
        """Let a machine take part, unless its settings are wrong. One with a number that is taken comes again."""
        mine, theirs = (self.config.shard_nodes, self.config.shard), (hello.machines, hello.shard)
        if mine != theirs or not 0 < hello.machine < hello.machines:
            reason = (
                f"--shard-nodes and --shard are {theirs} on machine {hello.machine}, {hello.name}, and {mine} on the "
                f"first machine of {self.config.replica}, {self.config.worker}: give all machines the same"
            )
            link.send(End(exit_codes.USAGE, reason))
            link.finish()
        elif hello.machine in self._links:
            link.send(Taken(self._starts.names[hello.machine]))
            link.close()
        else:
            self.log.event("machine_joined", machine=hello.name, number=hello.machine)
            self._links[hello.machine], self._starts.names[hello.machine] = link, hello.name
            self._carry(self._starts.joined(hello.machine, hello.limit, now), now)

    def _noted(self, machine: int, message: Message, now: float) -> None:
        if isinstance(message, Ended):
            self._carry(self._starts.ended(machine, message.code, message.first, now), now)
        elif isinstance(message, Idle):
            self._carry(self._starts.idle(machine, message.limit, now), now)
        elif isinstance(message, Leave):
            self._carry(self._starts.leave(), now)

    def _carry(self, orders: Orders, now: float) -> None:
        """Carry out the orders."""
        for machine, order in orders:
            if machine == 0:
                self.obey(order, self._gate.place if self._gate else None, now)
            elif machine in self._links:
                self._links[machine].send(order)


class Further(Machine):
    """The launcher of another machine, which does what the first one says."""

    def __init__(self, config: Config, unit: Unit, command: Sequence[str], log: Log) -> None:
        super().__init__(config, unit, command, log)
        self._link: Link | None = None
        self._leaving = False
        self._killed = False
        """Whether its processes were killed while they were leaving."""
        self._taken = ""
        """Why the first machine doesn't let this one take part; empty if it does, or hasn't been found."""

    @property
    def links(self) -> Collection[Link]:
        """The connection to the first machine, if there is one."""
        return [self._link] if self._link else []

    def look(self) -> Look:
        """Return what connects this machine with the first one."""

        def hello() -> Hello:
            config = self.config
            known = limit.known(self.unit.limit)
            return Hello(config.shard_node, config.shard_nodes, config.shard, config.worker, known)

        return calling(self.config, hello)

    def arrived(self, item: Any, now: float) -> None:
        """Take the connection to the first machine, or the end of the job."""
        if isinstance(item, End):
            self.code = item.code
        elif self._link:
            item.close()
        else:
            self._link = item

    def heard(self, link: Link, message: Message, now: float) -> None:
        """Do what the first machine says."""
        self._leaving = self._leaving or isinstance(message, Leave)
        if isinstance(message, Taken):
            self._taken = (
                f"{message.name} is there with --shard-node {self.config.shard_node}, which this machine has too"
            )
            return
        self._taken = ""
        self.waits_no_more(now)
        if isinstance(message, Order):
            self.obey(message, link.place, now)

    def parted(self, link: Link, now: float) -> None:
        """Kill the processes: those of the other machines end, too."""
        if not self._taken:
            self.log.event("machine_lost", machine=self.config.replica, number=0)
        self._link, self._killed = None, self.unit.runs and self._leaving
        if self.unit.runs:
            self.unit.kill_at = now

    def report(self, report: Report, now: float) -> None:
        """Send it to the first machine."""
        self._leaving = self._leaving or isinstance(report, Leave)
        if self._link:
            self._link.send(report)

    def turn(self, now: float) -> float | None:
        """Look for the first machine, if it is missing."""
        is_missing = self._link is None and not self.unit.runs
        self.lookup.want(is_missing and not self._leaving)
        error = self._taken or self.lookup.trouble or None
        if self.unit.runs:
            self.waits_no_more(now)
        if is_missing and self._leaving:
            self.code = exit_codes.KILLED if self._killed else exit_codes.LEFT
        elif is_missing and self.say_waits(self.config.replica, now, error=error) > MACHINES_SECONDS:
            reason = self._taken or f"the first machine of {self.config.replica} did not come in {MACHINES_SECONDS:g} s"
            self.log.event("worker_given_up", code=exit_codes.UNCONNECTED, reason=reason)
            self.code = exit_codes.UNCONNECTED
        return None
