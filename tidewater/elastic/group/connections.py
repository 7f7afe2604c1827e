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
from typing import Any

End = tuple[str, int]
"""One end of a connection: address and port, written in the same way on all machines."""

_DESCRIPTORS = Path("/proc/self/fd")


def listening() -> frozenset[End]:
    """Return the addresses at which this process listens."""
    return frozenset(
        _end(found.getsockname()) for found in _sockets() if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    )


def sever(ends: AbstractSet[End]) -> int:
    """End this process's connections that have one of ``ends`` on either side. Return their number.

    To the library it seems that the peer has closed them.
    """
    severed = 0
    for found in _sockets():
        with contextlib.suppress(OSError):  # not connected: it listens, or has been closed
            if ends & {_end(found.getsockname()), _end(found.getpeername())}:
                found.shutdown(socket.SHUT_RDWR)
                severed += 1
    return severed


def _end(place: tuple[Any, ...]) -> End:
    # An IPv6 address may have the name of its interface, which differs between machines; and a socket for both kinds
    # of addresses writes IPv4 addresses as IPv6.
    return str(place[0]).partition("%")[0].removeprefix("::ffff:"), int(place[1])


def _sockets() -> Iterator[socket.socket]:
    """Yield each TCP socket of this process, with a duplicated descriptor so that it stays open."""
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed since it was listed
            if not stat.S_ISSOCK((_DESCRIPTORS / name).stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                    yield found
