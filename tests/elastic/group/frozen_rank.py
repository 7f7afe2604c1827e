"""Two ranks; one freezes while the other waits for it: python frozen_rank.py GROUP_TIMEOUT_SECONDS [unnoticed]

Prints a line for each event at the waiting rank. With "unnoticed" its connections are not ended, so that its sums last
as they do when gloo doesn't notice the end of a connection.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import Any

import torch

from tests.elastic.group import kinds
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.gloo import Gloo
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.launch.lifeline import bound_to
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

UUID = 7
COLLECTIVES = 5
"""More than gloo has threads."""


def form(group: Group, uuid: int, rank: int, ports: list[int]) -> None:
    group.form(uuid, rank, tuple(Address("127.0.0.1", port) for port in ports), time.monotonic() + 60)


def alone(timeout_seconds: float) -> Group:
    """Return a group of this rank."""
    peers = PeerServer(Identity(b"secret"))
    peers.start()
    group = kinds.patient(open_group("127.0.0.1", torch.device("cpu"), timeout_seconds, peers))
    form(group, secrets.randbits(40), 0, [peers.port])
    return group


def port_of(group: Group) -> int:
    """Return the port of the peer server."""
    assert group._peers
    return group._peers.port


def meet(rank: int, pipe: Connection, timeout_seconds: float) -> Group:
    """Return the group of both ranks."""
    group = alone(timeout_seconds)
    pipe.send(port_of(group))
    ports = [pipe.recv()]
    ports.insert(rank, port_of(group))
    form(group, UUID, rank, ports)
    group.confirm()
    return group


def freeze(group: Group) -> None:
    """Freeze until the process is killed."""
    group.check()
    os.kill(os.getpid(), signal.SIGSTOP)


def go_on(group: Group, peer: int, timeout_seconds: float) -> None:
    """Wait for the frozen peer, abandon it, and continue with a successor, which is in this process, too."""
    os.waitpid(peer, os.WUNTRACED)
    begun: list[Any] = [group.begin(torch.ones(3)) for _ in range(COLLECTIVES)]
    threading.Timer(0.3, group.interrupt, ["lost"]).start()
    try:
        group.complete(begun[:1], timeout_seconds=1000)
    except GroupBroken as error:
        print("gave up:", error)
    both = group, alone(timeout_seconds)

    def sum_up(rank: int) -> list[float]:
        group = both[rank]
        form(group, UUID + 1, rank, [port_of(each) for each in both])
        value = torch.ones(3)
        for _ in range(COLLECTIVES):
            group.all_reduce(value, timeout_seconds=60)
        return value.tolist()

    with ThreadPoolExecutor(2) as pool:
        print("went on:", *pool.map(sum_up, range(2)))
    group.begin(torch.ones(3))
    group.close()
    assert isinstance(group._backend, Gloo)
    print("left in flight:", sum(not work.is_completed() for work in begun) + len(group._backend.left_in_flight()))


def main() -> None:
    seconds = float(sys.argv[1])
    if "unnoticed" in sys.argv:
        Gloo.abort = lambda self: None  # type: ignore[method-assign]
    mine, its = Pipe()
    ends_with_this = bound_to(os.getpid())  # not before it: the end of the peer's connections ends the sums
    peer = os.fork()
    if peer:
        go_on(meet(0, mine, seconds), peer, seconds)
    else:
        ends_with_this()
        freeze(meet(1, its, seconds))


if __name__ == "__main__":
    main()
