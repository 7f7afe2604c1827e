"""Hands a large state over to a newcomer, with the trainer's code, and broadcasts the same bytes with torch, in turns.

python transfer.py MEGABYTES RUNS        # prints {"peer": [seconds, …], "plain": [seconds, …], "memory": [ratio, …]}

``memory`` is the most memory that the newcomer has used for its model, its optimizer and the hand-over, divided by the
size of the state.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import secrets
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.elastic.workers import names
from tidewater.elastic.addresses import Address
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.membership.rules import Generation, Member
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer
from tidewater.elastic.session.handover import Exchange, synchronise
from tidewater.elastic.session.state import State
from tidewater.elastic.training import Training

SECRET = b"of this benchmark"
PARAMETERS = 16
MEGABYTE = 1 << 20
_COPIES = 3
"""A parameter and its two moments."""
_SECONDS = 60.0


def main(megabytes: int, runs: int) -> None:
    """Measure and print."""
    torch.optim.Adam([torch.zeros(1)])  # imports what would otherwise count as the newcomer's memory
    found: dict[str, list[float]] = {"peer": [], "plain": [], "memory": []}
    for _ in range(runs):
        context = multiprocessing.get_context("fork")
        pipes, processes = [], []
        for rank in range(2):
            mine, its = context.Pipe()
            processes.append(context.Process(target=be, args=(rank, its, megabytes * MEGABYTE), daemon=True))
            processes[-1].start()
            pipes.append(mine)
        ports, uuid = [pipe.recv() for pipe in pipes], secrets.randbits(40)
        for pipe in pipes:
            pipe.send((uuid, ports))
        _, measured = (pipe.recv() for pipe in pipes)
        for name, value in measured.items():
            found[name].append(value)
        for process in processes:
            process.kill()
            process.join()
    print(json.dumps(found))


def be(rank: int, parent: Connection, size: int) -> None:
    """Be the worker that has the state, or the newcomer. Send what was measured."""
    torch.set_num_threads(1)
    server = PeerServer(Identity(SECRET, str(rank)))
    server.start()
    group = open_group(names.HOST, torch.device("cpu"), _SECONDS, server)
    _form(group, 0, secrets.randbits(40), [server.port])
    parent.send(server.port)
    uuid, ports = parent.recv()
    before = _resident("VmRSS")
    state = made(size, trained=not rank)
    _form(group, rank, uuid, ports)
    members = tuple(Member(str(each), str(each), names.HOST, port, "", 0) for each, port in enumerate(ports))
    worker: Any = SimpleNamespace(group=group, state=state, server=server)
    exchange = Exchange(lambda: None, lambda tree, load: load(tree), "mend", 10)
    _reset_peak()
    group.confirm()
    begin = time.monotonic()
    synchronise(worker, Generation(2, uuid, members, "joined"), rank, exchange, Log("", stream=io.StringIO()))
    found = {"peer": time.monotonic() - begin, "memory": (_resident("VmHWM") - before) / size}
    found["plain"] = plain(group, size)
    group.confirm()
    parent.send(found)
    parent.recv()


def made(size: int, *, trained: bool) -> State:
    """Return a state of about this size, with Adam's moments if it has been trained."""
    number = size // PARAMETERS // _COPIES // 4
    model = nn.ParameterList([nn.Parameter(torch.rand(number)) for _ in range(PARAMETERS)])
    optimizer = torch.optim.Adam(model.parameters())
    training = Training(model, optimizer, TensorDataset(torch.zeros(1)), lambda model, batch: batch)
    state = State(training, "kind", torch.amp.GradScaler("cpu", enabled=False))
    if trained:
        for parameter in model.parameters():
            parameter.grad = torch.rand(number)
        state.optimizers.step(1.0)
        state.begin("", 1)
        state.present, state.step, state.applied_in = True, 1, 1
    return state


def plain(group: Group, size: int) -> float:
    """Return the seconds of a broadcast of as many bytes, received into new memory as most of a state is."""
    values = torch.rand(size // 4) if group.rank == 0 else torch.empty(size // 4)
    group.confirm()
    begin = time.monotonic()
    given = dist.BroadcastOptions()
    given.rootRank, given.timeout = 0, timedelta(seconds=_SECONDS)
    group._backend.pg.broadcast([values], given).wait()
    return time.monotonic() - begin


def _form(group: Group, rank: int, uuid: int, ports: list[int]) -> None:
    addresses = tuple(Address(names.HOST, port, str(each)) for each, port in enumerate(ports))
    group.form(uuid, rank, addresses, time.monotonic() + _SECONDS)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM


def _resident(field: str) -> int:
    """Return a figure of this process's memory in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
