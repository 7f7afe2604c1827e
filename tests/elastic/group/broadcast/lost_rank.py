"""Three ranks in processes; one is killed during a broadcast: python lost_rank.py source|holder|newcomer

For each chunk at which it is killed, prints what the survivors have after that, and after a broadcast of their own.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

import torch

from tests.elastic.group import kinds
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import broadcast
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

ROLES = ("source", "holder", "newcomer")
CHUNKS = 5
SECONDS = 60.0


def tensors(rank: int) -> list[torch.Tensor]:
    """Return two tensors that fill 4 chunks and a part of another one."""
    number = float(ROLES[rank] != "newcomer")
    return [torch.full((broadcast.CHUNK * 3 // 4,), number), torch.full((broadcast.CHUNK * 5 // 16,), number)]


def meet(group: Group, rank: int, uuid: int, ports: list[int]) -> None:
    addresses = tuple(Address("127.0.0.1", port) for port in ports)
    group.form(uuid, rank, addresses, time.monotonic() + SECONDS)


def kill_at(group: Group, number: int) -> None:
    """Let this process end when it has begun with the chunk of this number."""
    begin, left = group.broadcast, number

    def killed(*given: Any) -> Any:
        nonlocal left
        work = begin(*given)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return work

    group.broadcast = killed  # type: ignore[assignment, method-assign]


def part(rank: int, pipe: Connection, victim: int, number: int) -> None:
    """Be a rank. Send what it has at last."""
    torch.set_num_threads(1)
    peers = PeerServer(Identity(b"secret"))
    peers.start()
    group = kinds.patient(open_group("127.0.0.1", torch.device("cpu"), SECONDS, peers))
    meet(group, 0, secrets.randbits(40), [peers.port])
    pipe.send(peers.port)
    uuid, ports = pipe.recv()
    mine = tensors(rank)
    size, keeps = broadcast.size_of(mine), ROLES[rank] == "holder"
    if rank == victim:
        kill_at(group, number)
    meet(group, rank, uuid, ports)
    said = "went through"
    try:
        group.confirm()  # a rank that is lost while another one still connects to it costs that one minutes in gloo
        broadcast.run(group, 0, size, None if keeps else mine)
        group.confirm()
    except GroupBroken:
        said = "broke"
    if ROLES[rank] != "newcomer":
        said += ", kept" if all(bool((each == 1).all()) for each in mine) else ", DAMAGED"
    survivors = [each for each in range(len(ROLES)) if each != victim]
    meet(group, survivors.index(rank), uuid + 1, [ports[each] for each in survivors])
    broadcast.run(group, 0, size, None if keeps and victim else mine)
    group.confirm()
    said += ", has it" if all(bool((each == 1).all()) for each in mine) else ", LACKS IT"
    pipe.send(said)
    pipe.recv()  # no rank closes its connections before the others have finished
    os._exit(0)


def lose(victim: int, number: int) -> list[str]:
    """Return what the survivors say."""
    pipes, processes = [], []
    for rank in range(len(ROLES)):
        mine, its = Pipe()
        ends_with_this = bound_to(os.getpid())
        process = os.fork()
        if not process:
            ends_with_this()
            part(rank, its, victim, number)
        pipes.append(mine)
        processes.append(process)
    ports, uuid = [pipe.recv() for pipe in pipes], secrets.randbits(40)
    for pipe in pipes:
        pipe.send((uuid, ports))
    survivors = [pipe for rank, pipe in enumerate(pipes) if rank != victim]
    said = [str(pipe.recv()) if pipe.poll(2 * SECONDS) else "SILENT" for pipe in survivors]
    for pipe in survivors:
        pipe.send(None)
    for process in processes:
        os.waitpid(process, 0)
    return said


if __name__ == "__main__":
    broadcast.CHUNK = 1 << 18
    for chunk in range(CHUNKS):
        print("; ".join(lose(ROLES.index(sys.argv[1]), chunk)), flush=True)
