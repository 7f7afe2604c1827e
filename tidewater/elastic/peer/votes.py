"""How members send one another what they say about the membership (see ``membership.votes``).

    taken = send(me, heartbeat.silent, peer, {"w-1-3c": text}, turn=1, seconds=3)       # the client's part
    votes = of(request); connection.sendall(answers(votes, taken))                      # that of the peer's server

The request has all votes; the answer is a byte for each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping

from tidewater.elastic.membership.rules import Seat
from tidewater.elastic.peer import handshake
from tidewater.elastic.peer.handshake import Identity

_YES, _NO = b"1", b"0"


def send(
    me: Identity, silent: Callable[[], Collection[str]], peer: Seat, votes: Mapping[str, str], turn: int, seconds: float
) -> Collection[str] | None:
    """Send votes, by the ids of their members. Return the ids of those that the peer has taken; None if it has not
    answered within ``seconds``, or before ``silent`` returned its id. See ``membership.votes.Send``."""

    def check() -> None:
        if peer.id in silent():
            raise TimeoutError

    until = time.monotonic() + seconds
    try:
        check()
        with handshake.connect(me, peer.address, seconds=seconds, check=check) as connection:
            connection.sendall(json.dumps({"votes": votes, "turn": turn}).encode() + b"\n")
            found = handshake.exactly(connection, len(votes), until, check)
    except OSError:
        return None
    return [each for each, answer in zip(votes, found, strict=True) if answer == _YES[0]]


def of(request: Mapping[str, object]) -> dict[str, str]:
    """Return the votes of a request."""
    votes = request["votes"]
    return {each: str(says) for each, says in votes.items()} if isinstance(votes, dict) else {}


def answers(votes: Mapping[str, str], taken: Collection[str]) -> bytes:
    """Return the answer to votes, if those of these members were taken."""
    return b"".join(_YES if each in taken else _NO for each in votes)
