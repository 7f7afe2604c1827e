"""Processes with some simulated members each: with many in one, they would wait for Python's lock.

with Hosts(url, processes(2)) as hosts:
    hosts.prepare(["m-0", "m-1"])
    hosts.join()
    number, at = hosts.together(2, deadline)        # when the last of them knew of their generation
    hosts.lose(["m-1"])
"""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness.command import TurnFailed
from benchmarks.membership.member import Member

_MEMBERS_OF_A_PROCESS = 8
_LOOK_SECONDS = 0.1
_SWITCH_SECONDS = 0.02
"""Threads that wait for Python's lock wake up so often. A worker has a process of its own, and few of them."""


@dataclass
class _Host:
    """What one process does; the methods that don't begin with `_` are what the benchmark asks it."""

    url: str
    members: dict[str, Member] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    _waiting: list[Member] = field(default_factory=list)

    def prepare(self, names: Sequence[str]) -> None:
        self._waiting = [Member(name, self.url, self.dead) for name in names]

    def join(self) -> None:
        self.members |= {member.name: member for member in self._waiting}
        _each(self._waiting, Member.join)
        self._waiting = []

    def lose(self, names: Sequence[str]) -> None:
        self.dead |= set(names)
        gone = [self.members.pop(name) for name in names if name in self.members]
        _each(gone, Member.lose)

    def break_off(self) -> None:
        _each(list(self.members.values()), Member.break_off)

    def together(self, size: int, deadline: float) -> tuple[int, float] | None:
        """Return number and time of the generation of `size` members that all know; None at the deadline."""
        while time.monotonic() < deadline:
            entered = [member.entered for member in self.members.values()]
            if all(each.size == size for each in entered):
                return max((each.number, each.at) for each in entered) if entered else (0, 0.0)
            time.sleep(_LOOK_SECONDS)
        return None

    def cpu(self) -> float:
        """Return the processor time of this process in seconds."""
        return time.process_time()


def processes(members: int) -> int:
    """Return the number of processes for so many members."""
    return math.ceil(members / _MEMBERS_OF_A_PROCESS)


def _each(members: Sequence[Member], do: Callable[[Member], None]) -> None:
    threads = [threading.Thread(target=do, args=(member,), daemon=True) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(url: str, commands: Connection) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # a collection would look through all of torch, which no member uses
    host = _Host(url)
    with contextlib.suppress(EOFError):
        while True:
            name, arguments = commands.recv()
            commands.send(getattr(host, name)(*arguments))
    os._exit(0)  # without waiting for the threads of the members


class Hosts:
    """The processes. They end with the context, or with this process."""

    def __init__(self, url: str, number: int) -> None:
        context = multiprocessing.get_context("forkserver")  # torch, which the peer server imports, is loaded once
        context.set_forkserver_preload(["benchmarks.membership.member"])
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(url, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def prepare(self, names: Sequence[str]) -> None:
        """Make members, which do nothing yet."""
        parts: list[list[str]] = [[] for _ in self._pipes]
        for name, part in zip(names, cycle(parts)):
            part.append(name)
        for pipe, part in zip(self._pipes, parts, strict=True):
            pipe.send(("prepare", (part,)))
        self._replies()

    def join(self) -> None:
        """Let all members that were made last join the job at the same time; return when they ask for a place."""
        self._ask("join")

    def lose(self, names: Sequence[str]) -> None:
        """End members as SIGKILL does, and let the sums of the others fail."""
        self._ask("lose", names)
        # Only then: a member that is to be lost would give the generation up too, and be in the next one.
        self._ask("break_off")

    def together(self, size: int, seconds: float) -> tuple[int, float]:
        """Wait until all members know of one generation of `size`. Return its number, and when (monotonic) they did.

        Raises:
            TurnFailed: They don't within `seconds`.
        """
        found = self._ask("together", size, time.monotonic() + seconds)
        if None in found:
            raise TurnFailed(f"no generation of {size} members everywhere within {seconds:.0f} s")
        return max(number for number, _ in found), max(at for _, at in found)

    def cpu(self) -> float:
        """Return the processor time of all members in seconds."""
        return float(sum(self._ask("cpu")))

    def _ask(self, name: str, *arguments: object) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((name, arguments))
        return self._replies()

    def _replies(self) -> list[Any]:
        try:
            return [pipe.recv() for pipe in self._pipes]
        except EOFError as error:
            raise TurnFailed("a process with members has ended") from error
