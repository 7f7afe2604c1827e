"""Ends TCP connections of this process from outside the library that uses them.

    before = listening()
    ...                             # create gloo's device
    mine = listening() - before     # where gloo listens; exchanged with the peers
    sever({*mine, *theirs})         # gloo's pending collectives fail at once

gloo ends a collective when it times out or a connection ends, and torch has no call that ends it earlier
(ProcessGroupGloo.abort does not affect pending collectives). Until then the collective occupies one of the two threads
that the collectives of all generations share. So two collectives that wait for a frozen peer would block all others for
the whole time-out.
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
"""One end of a connection: address and port, as the kernel writes them."""

_DESCRIPTORS = Path("/proc/self/fd")


def listening() -> frozenset[End]:
    """Return the addresses at which this process listens."""
    return frozenset(
        found.getsockname()[:2] for found in _sockets() if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def sever(ends: AbstractSet[End]) -> int:
    """End this process's connections that have one of ``ends`` on either side. Return their number.

    To the library it seems that the peer has closed them.
    """
    severed = 0
    for found in _sockets():
        with contextlib.suppress(OSError):  # not connected: it listens, or has been closed
            if ends & {found.getsockname()[:2], found.getpeername()[:2]}:
                found.shutdown(socket.SHUT_RDWR)
                severed += 1
    return severed


def _sockets() -> Iterator[socket.socket]:
    """Yield each TCP socket of this process, with a duplicated descriptor so that it stays open."""
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed since it was listed
            if not stat.S_ISSOCK((_DESCRIPTORS / name).stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
