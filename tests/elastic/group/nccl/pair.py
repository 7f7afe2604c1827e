"""Two ranks in one process.

with pair([Double(cpu, 20.0), Double(cpu, 20.0)]) as both:
    assert both.form() == ["", ""]
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.elastic.alone import form_alone
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.backend import Backend
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.siblings import Siblings
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

SECONDS = 60.0


class Pair:
    """Their groups."""

    def __init__(self, groups: Sequence[Group], addresses: tuple[Address, ...]) -> None:
        self.groups, self._addresses = groups, addresses

    def form(self) -> list[str]:
        """Form a group of all, and sum. Return the error of each; empty if there is none."""
        uuid, errors = secrets.randbits(40), [""] * len(self.groups)

        def one(rank: int) -> None:
            try:
                self.groups[rank].form(uuid, rank, self._addresses, time.monotonic() + SECONDS)
                self.groups[rank].confirm()
            except GroupBroken as error:
                errors[rank] = str(error)

        threads = [threading.Thread(target=one, args=[rank]) for rank in range(len(self.groups))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


@contextmanager
def pair(backends: Sequence[Backend], siblings: Sequence[Siblings | None] = (None, None)) -> Iterator[Pair]:
    """Yield ranks that have been alone, as the trainer's have been when they join."""
    servers = [PeerServer(Identity(b"secret")) for _ in backends]
    groups = [Group(*each) for each in zip(backends, servers, siblings, strict=True)]
    for server, group in zip(servers, groups, strict=True):
        server.start()
        form_alone(group)
    yield Pair(groups, tuple(Address("127.0.0.1", server.port) for server in servers))
    for group in groups:
        group.close()
    for server in servers:
        server.close()
