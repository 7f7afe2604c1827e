"""Several ranks in threads of one process, with real groups that meet over loopback.

with several("reconfigured", 3) as ranks:
    ranks.form()
    results = ranks.all(lambda rank: ranks.groups[rank].tally([1.0]))
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

from tests.elastic.group.kinds import KINDS, patient
from tests.elastic.workers import SECRET
from tidewater.elastic.addresses import Address
from tidewater.elastic.group.group import Group
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

R = TypeVar("R")
GROUP_SECONDS = 60.0
FORM_SECONDS = 60.0


class Ranks:
    """The groups of all ranks, and their servers."""

    def __init__(self, groups: Sequence[Group], servers: Sequence[PeerServer]) -> None:
        self.groups, self.servers = groups, servers

    def form(self) -> int:
        """Begin a generation of all ranks. Return its unique number."""
        uuid = secrets.randbits(40)
        addresses = tuple(Address("127.0.0.1", server.port, str(rank)) for rank, server in enumerate(self.servers))
        self.all(lambda rank: self.groups[rank].form(uuid, rank, addresses, time.monotonic() + FORM_SECONDS))
        return uuid

    def all(self, do: Callable[[int], R]) -> list[R]:
        """Let all ranks do this at once. Return their results, or raise what the first of them has raised."""
        with ThreadPoolExecutor(len(self.groups)) as pool:
            return list(pool.map(do, range(len(self.groups))))

    def ends(self, do: Callable[[int], object]) -> list[Exception | None]:
        """Let all ranks do this at once. Return what each has raised.

        After an error all others are interrupted, as by the coordinator: gloo may miss the end of a connection.
        """

        def caught(rank: int) -> Exception | None:
            try:
                do(rank)
            except Exception as error:
                for group in self.groups:
                    group.interrupt("a peer is lost")
                return error
            return None

        return self.all(caught)


@contextlib.contextmanager
def several(kind: str, size: int) -> Iterator[Ranks]:
    """Open the groups of that many ranks, and close them at the end. Each has been in a group of one."""
    with pytest.MonkeyPatch.context() as environment:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setenv(name, "lo")
        servers = [PeerServer(Identity(SECRET, str(rank))) for rank in range(size)]
        groups = []
        for server in servers:
            server.start()
            groups.append(patient(KINDS[kind]("127.0.0.1", torch.device("cpu"), GROUP_SECONDS, server)))
            alone = (Address("127.0.0.1", server.port, "0"),)
            groups[-1].form(secrets.randbits(40), 0, alone, time.monotonic() + FORM_SECONDS)
        yield Ranks(groups, servers)
        for group in groups:
            group.close()
        for server in servers:
            server.close()
