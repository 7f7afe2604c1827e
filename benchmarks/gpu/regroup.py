"""One rank with NCCL after what goes wrong on a real fleet: its waits end, and its group is formed again soon.

    python -m benchmarks.gpu.regroup ghost cuda         # a peer that was there ends while the group connects
    python -m benchmarks.gpu.regroup behind cuda        # a sum behind a long kernel times out
    python -m benchmarks.gpu.regroup own cuda           # a sum with a longer time-out than the group's
    python -m benchmarks.gpu.regroup often cuda         # 200 groups, one after the other, leave nothing behind
    python -m benchmarks.gpu.regroup full cuda          # torch keeps all memory of the GPU but 50 MB

On the CPU, with gloo, a second process keeps the sums waiting, and memory isn't filled.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.elastic.workers import names
from benchmarks.gpu.one_rank import IDENTITY, Kernel, Other, Peer, form, kind_of, ones, opened, peers
from benchmarks.gpu.output import require, tell
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import rendezvous
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.rendezvous import MeetingStore
from tidewater.elastic.peer.server import PeerServer

SOON_SECONDS = 3.0
"""Limit for a group that is formed again."""
LONG_SECONDS, SHORT_SECONDS = 5.0, 1.0
"""Of a kernel, and of a time-out that ends before it."""
OWN_SECONDS = 3.0
"""Time-out of a group in which a sum with a longer one takes twice as long."""
OFTEN, WARM = 200, 20
MOST_MIB, MOST_HANDLES = 64, 4
LEFT_MIB = 50
MIB = 1 << 20


def ghost_process(port: int) -> None:
    """Be rank 1 up to the moment at which all are there, and end."""
    server = PeerServer(IDENTITY)
    server.start()
    print(server.port, flush=True)
    uuid, deadline = int(sys.stdin.readline()), time.monotonic() + 30
    keys = rendezvous.join(IDENTITY, Address(names.HOST, port), uuid, lambda: None, deadline)
    store = MeetingStore(keys, lambda: None, deadline)
    store.set("handles/1", json.dumps(f"nccl2:1:{uuid}:"))
    store.assemble(1, 2, lambda: False)
    os._exit(0)


def ghost(device: torch.device) -> None:
    """Form a group with a peer that ends while the group connects, and then one without it."""
    group = opened(device, "")
    command = [sys.executable, "-m", "benchmarks.gpu.regroup", "ghost-process", str(peers().port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    ports, uuid = (peers().port, int(process.stdout.readline())), secrets.randbits(48)
    print(uuid, file=process.stdin, flush=True)
    ended: list[float] = []

    def watch() -> None:
        process.wait()
        ended.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()

    def lost() -> None:
        if ended:
            raise GroupBroken("the ghost is gone")

    try:
        addresses = tuple(Address(names.HOST, port) for port in ports)
        group.form(uuid, 0, addresses, time.monotonic() + 30, peers_are_there=lost)
    except GroupBroken:
        found = time.monotonic()
    else:
        raise SystemExit("failed: a group with a process that has ended is not formed")
    watcher.join()
    spent = found - ended[0]
    tell("a peer ends while the group connects: until GroupBroken", who(group, device), [spent], "s")
    require(spent < SOON_SECONDS, f"connecting is given up within {SOON_SECONDS:g} s")
    again(group, device)
    group.close()


def behind(device: torch.device) -> None:
    """Let a sum behind a long kernel time out, and form the group again when the kernel has ended."""
    group = opened(device, "")
    with waiting(group, device) as other:
        other.delay(LONG_SECONDS if device.type == "cuda" else 1e9)
        begin = time.monotonic()
        with contextlib.suppress(GroupBroken):
            group.all_reduce(ones(device.type), timeout_seconds=SHORT_SECONDS)
        spent = time.monotonic() - begin
        tell(f"a sum behind a kernel of {LONG_SECONDS:g} s times out after", who(group, device), [spent], "s")
        require(SHORT_SECONDS <= spent < LONG_SECONDS - 1, f"it times out after {SHORT_SECONDS:g} s")
        if device.type == "cuda":
            torch.cuda.synchronize()  # the kernel itself can't be ended
        again(group, device)
    group.close()


def own(device: torch.device) -> None:
    """Let a sum take longer than the time-out of its group, with a time-out of its own."""
    group = opened(device, "", OWN_SECONDS)
    with waiting(group, device) as other:
        values = ones(device.type)
        begin = time.monotonic()
        other.delay(2 * OWN_SECONDS)
        group.all_reduce(values, timeout_seconds=30)
        spent = time.monotonic() - begin
        tell(f"a sum in a group with a time-out of {OWN_SECONDS:g} s takes", who(group, device), [spent], "s")
        require(spent > 1.5 * OWN_SECONDS, "the sum has lasted longer than the time-out of its group")
        require(bool((values == other.size).all()), "its result is right")
    group.close()


def often(device: torch.device) -> None:
    """Form a group many times. Memory, threads and open files must not grow."""
    group = opened(device, "")
    spent, before = [], dict[str, float]()
    for number in range(OFTEN):
        if number == WARM:
            before = usage(device)
        begin = time.monotonic()
        form(group, secrets.randbits(48), 0, (peers().port,))
        group.confirm()
        spent.append(time.monotonic() - begin)
    medians = [statistics.median(spent[first : first + WARM]) for first in range(WARM, OFTEN, WARM)]
    tell(f"form a group again and confirm, medians of {WARM}", who(group, device), medians, "s")
    for name, value in usage(device).items():
        grown = value - before[name]
        unit, most = ("MiB", MOST_MIB) if name.endswith("memory") else ("", MOST_HANDLES)
        tell(f"{name}: growth in {OFTEN - WARM} groups", who(group, device), [grown], unit)
        require(grown <= most, f"{name} does not grow by more than {most}")
    group.close()


def full(device: torch.device) -> None:
    """Form a group when torch has almost all memory of the device in its cache."""
    group = opened(device, "")
    if device.type == "cuda":
        fill(device)
        require(torch.cuda.mem_get_info(device)[0] < 2 * LEFT_MIB * MIB, "the memory of the GPU is full")
    again(group, device)
    group.close()


def fill(device: torch.device) -> None:
    """Let torch keep all memory of the device but about LEFT_MIB."""
    kept = []
    for size in (1024 * MIB, 32 * MIB):
        with contextlib.suppress(torch.OutOfMemoryError):
            while torch.cuda.mem_get_info(device)[0] > size + LEFT_MIB * MIB:
                kept.append(torch.empty(size, dtype=torch.uint8, device=device))


def usage(device: torch.device) -> dict[str, float]:
    """Return what a group may leave behind: memory in MiB, and numbers."""
    found = {
        "host memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "threads": float(len(list(Path("/proc/self/task").iterdir()))),
        "open files": float(len(list(Path("/proc/self/fd").iterdir()))),
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found["device memory"] = (total - free) / MIB
    return found


@contextlib.contextmanager
def waiting(group: Group, device: torch.device) -> Iterator[Other]:
    """Form a generation in which sums can be kept waiting."""
    other: Other = Kernel() if device.type == "cuda" else Peer(kind_of(group))
    other.form(group, uuid=1)
    yield other
    other.end()


def again(group: Group, device: torch.device) -> None:
    """Form the group again, in time, and sum."""
    begin = time.monotonic()
    form(group, secrets.randbits(48), 0, (peers().port,))
    spent = time.monotonic() - begin
    tell("form a group again afterwards", who(group, device), [spent], "s")
    require(spent < SOON_SECONDS, f"the group is formed again within {SOON_SECONDS:g} s")
    require(group.tally([7.0]) == [7.0], "its sum is right")


def who(group: Group, device: torch.device) -> str:
    """Return the name of what is measured."""
    return f"{kind_of(group)}, {'NCCL, one rank' if device.type == 'cuda' else 'gloo'}"


CHECKS: dict[str, Callable[[torch.device], None]] = {
    "ghost": ghost,
    "behind": behind,
    "own": own,
    "often": often,
    "full": full,
}


if __name__ == "__main__":
    if sys.argv[1] == "ghost-process":
        ghost_process(int(sys.argv[2]))
    else:
        CHECKS[sys.argv[1]](torch.device("cuda", 0) if sys.argv[2] == "cuda" else torch.device("cpu"))
