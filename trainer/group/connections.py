"""This process's TCP connections, ended from outside the library that uses them.

    before = listening()
    ...                             # gloo's device is made
    mine = listening() - before     # where gloo listens: told to the peers, whose own are learned
    sever({*mine, *theirs})         # what gloo has in flight fails at once

gloo gives a collective up when its time-out is over or a connection ends, and torch has no call that ends one earlier
(ProcessGroupGloo.abort leaves what is in flight alone). Until then it occupies one of the two threads that all
generations' collectives share, so two that wait for a frozen peer would hold up everybody for the whole time-out.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

End = tuple[str, int]
"""Of a connection: address and port, as the kernel writes them."""

_DESCRIPTORS = Path("/proc/self/fd")


def listening() -> frozenset[End]:
    """Where this process listens."""
    return frozenset(
        found.getsockname()[:2] for found in _sockets() if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def sever(ends: AbstractSet[End]) -> int:
    """End this process's connections that have one of ``ends`` at either side; how many.

    To their owners it looks as if the peer had ended them.
    """
    severed = 0
    for found in _sockets():
        with contextlib.suppress(OSError):  # not connected: it listens, or has ended meanwhile
            if ends & {found.getsockname()[:2], found.getpeername()[:2]}:
                found.shutdown(socket.SHUT_RDWR)
                severed += 1
    return severed


def _sockets() -> Iterator[socket.socket]:
    """Each TCP socket of this process, by a descriptor of its own, so that nobody closes it meanwhile."""
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed since it was listed
            if not stat.S_ISSOCK((_DESCRIPTORS / name).stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
