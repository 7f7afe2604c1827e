"""One rank with NCCL: form, sum, wait for the device, abort in the middle of a long kernel, form again.

    python -m benchmarks.gpu.one_rank cuda reconfigured
    python -m benchmarks.gpu.one_rank cpu restarted         # with gloo and a second process that keeps it waiting

On the CPU there is no kernel that a sum could wait for. There a second process has rank 1 and begins its part late, or
not at all.
"""

from __future__ import annotations

import functools
import secrets
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

import torch

from benchmarks.elastic.workers import names, old_torch
from benchmarks.gpu.output import NOT_CHECKED, require, tell
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

IDENTITY = Identity(b"of this benchmark")
FORM_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0
MEGABYTES = {"cuda": 100, "cpu": 1}
SUMS = 5
LATE_SECONDS = 1.0
LONG_SECONDS = 10.0
"""Duration of the kernel during which the group is aborted."""
ABORT_AFTER_SECONDS = 0.5
BROKEN_SECONDS = 5.0
"""Limit for the abort: half of what the kernel would take."""


class Other(ABC):
    """What a sum of this rank has to wait for."""

    size: int

    @abstractmethod
    def form(self, group: Group, uuid: int) -> None:
        """Form a generation with `group`."""

    @abstractmethod
    def delay(self, seconds: float) -> None:
        """Let the next sum take at least so long."""

    @abstractmethod
    def end(self) -> None:
        """Return when nothing is left of it."""


class Kernel(Other):
    """Work on the device's stream, before the sum."""

    size = 1

    def __init__(self) -> None:
        cuda: Any = torch.cuda  # torch's function has no annotations
        self._sleep = cuda._sleep
        self._sleep(1000)
        torch.cuda.synchronize()
        cycles = 10**8
        begin = time.monotonic()
        self._sleep(cycles)
        torch.cuda.synchronize()
        self._cycles_per_second = cycles / (time.monotonic() - begin)

    def form(self, group: Group, uuid: int) -> None:
        """Form a generation of one."""
        form(group, uuid, 0, (peers().port,))

    def delay(self, seconds: float) -> None:
        """Keep the stream busy."""
        if seconds:
            self._sleep(int(seconds * self._cycles_per_second))

    def end(self) -> None:
        """Wait for the stream."""
        torch.cuda.synchronize()


class Peer(Other):
    """A second process with rank 1."""

    size = 2

    def __init__(self, kind: str) -> None:
        command = [sys.executable, "-m", "benchmarks.gpu.one_rank", "peer", kind, str(peers().port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self._ports = (peers().port, int(self._process.stdout.readline()))

    def form(self, group: Group, uuid: int) -> None:
        """Form a generation of two."""
        self._tell(f"form {uuid}")
        form(group, uuid, 0, self._ports)

    def delay(self, seconds: float) -> None:
        """Let the peer begin late, or not at all."""
        if seconds < LONG_SECONDS:
            self._tell(f"sum {seconds}")

    def end(self) -> None:
        """End the peer."""
        self._process.communicate(timeout=TIMEOUT_SECONDS)

    def _tell(self, command: str) -> None:
        assert self._process.stdin
        print(command, file=self._process.stdin, flush=True)


@functools.cache
def peers() -> PeerServer:
    """Return the server of this process, at which the ranks meet."""
    server = PeerServer(IDENTITY)
    server.start()
    return server


def peer(kind: str, port: int) -> None:
    """Be rank 1 and do what the lines of the standard input say."""
    group = opened(torch.device("cpu"), kind)
    print(peers().port, flush=True)
    for line in sys.stdin:
        command, value = line.split()
        if command == "form":
            form(group, int(value), 1, (port, peers().port))
        else:
            time.sleep(float(value))
            group.all_reduce(ones("cpu"))
    group.close()


def opened(device: torch.device, kind: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Group:
    """Return a group of the kind that the trainer uses with this torch, or with an older one.

    It has been formed alone once, as the trainer does before it joins: only then can torch tell two ranks apart.
    """
    if kind == "restarted":
        old_torch.pretend()
    group = open_group(names.HOST, device, timeout_seconds, peers())
    form(group, secrets.randbits(48), 0, (peers().port,))
    return group


def kind_of(group: Group) -> str:
    """Return how the trainer forms this group again: ``reconfigured`` or ``restarted``."""
    return type(group._backend).__name__.lower()


def form(group: Group, uuid: int, rank: int, ports: tuple[int, ...]) -> None:
    """Join a generation."""
    addresses = tuple(Address(names.HOST, port) for port in ports)
    group.form(uuid, rank, addresses, time.monotonic() + FORM_SECONDS)


def ones(device: str) -> torch.Tensor:
    """Return what is summed."""
    return torch.ones(MEGABYTES[device] << 18, device=device)


def right(group: Group, other: Other, device: str) -> bool:
    """Return whether a sum of ones is the number of ranks, also when read on the device right after the sum."""
    values = ones(device)
    other.delay(0.0)
    group.all_reduce(values)
    return bool((values == other.size).all())


def waits(group: Group, other: Other, device: str) -> float:
    """Return how long a sum took when its values came LATE_SECONDS late."""
    values = ones(device)
    begin = time.monotonic()
    other.delay(LATE_SECONDS)
    group.complete([group.begin(values)])
    return time.monotonic() - begin


def aborted(group: Group, other: Other, device: str) -> float | None:
    """Interrupt a sum that can't end yet. Return the seconds until it raised GroupBroken; None if it didn't."""
    values = ones(device)
    other.delay(LONG_SECONDS)
    work = group.begin(values)
    at = time.monotonic() + ABORT_AFTER_SECONDS
    interrupter = threading.Timer(ABORT_AFTER_SECONDS, group.interrupt, ["the check interrupts it"])
    interrupter.start()
    try:
        group.complete([work])
    except GroupBroken:
        return time.monotonic() - at
    else:
        return None
    finally:
        interrupter.join()


def broken(group: Group) -> bool:
    """Return whether the group says that it is unusable."""
    try:
        group.check()
    except GroupBroken:
        return True
    return False


def main(device: str, kind: str) -> int:
    """Run the check. Return an exit code."""
    group = opened(torch.device(device, 0) if device == "cuda" else torch.device(device), kind)
    found = kind_of(group)
    if found != kind:
        print(f"torch {torch.__version__} can't give a group of this library new peers")
        group.close()
        return NOT_CHECKED
    other: Other = Kernel() if device == "cuda" else Peer(kind)
    who = f"{found}, {'NCCL, one rank' if device == 'cuda' else 'gloo, two ranks'}"

    begin = time.monotonic()
    other.form(group, uuid=1)
    tell("form a group", who, [time.monotonic() - begin], "s")
    spent = []
    for _ in range(SUMS):
        begin = time.monotonic()
        require(right(group, other, device), "a sum of ones is the number of ranks")
        spent.append(time.monotonic() - begin)
    tell(f"sum of {MEGABYTES[device]} MB", who, spent, "s")

    late = waits(group, other, device)
    tell(f"a sum whose values come after {LATE_SECONDS:g} s is complete after", who, [late], "s")
    require(late > 0.9 * LATE_SECONDS, "complete returns when the values are there, not when the sum is enqueued")

    seconds = aborted(group, other, device)
    require(seconds is not None, "an interrupted sum raises GroupBroken")
    tell("interrupt in the middle of a sum, until GroupBroken", who, [seconds or 0.0], "s")
    require((seconds or 0.0) < BROKEN_SECONDS, f"an interrupted sum ends within {BROKEN_SECONDS:g} s")
    require(broken(group), "after an interruption the group says that it is broken")

    if device == "cuda":
        torch.cuda.synchronize()  # an aborted kernel may still be running, and isn't part of forming the group
    begin = time.monotonic()
    other.form(group, uuid=2)
    tell("form a group again after the interruption", who, [time.monotonic() - begin], "s")
    require(not broken(group), "a group that was formed again isn't broken")
    require(right(group, other, device), "after it was formed again, a sum of ones is the number of ranks")
    other.end()
    group.close()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2]))
