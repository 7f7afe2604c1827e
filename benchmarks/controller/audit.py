"""Counts the API calls of one user, from the API server's audit log.

    tail = Tail(Path("audit.log"), "bench-tidewater")
    tail.take()                                     # Counter({Call("create", "pods"): 2000, ...}), since the last take

The metrics of the API server (`apiserver_request_total`) don't name the client, so the log counts instead. It is
written for the users of the controllers only, without bodies, which costs the API server a few microseconds a call.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WATCH = "watch"
LEASES = "leases"
OTHER = "other paths"
"""In place of a resource, for discovery and the like."""


@dataclass(frozen=True)
class Call:
    """A kind of calls."""

    verb: str
    resource: str
    """With its subresource: `pods`, `pytorchjobs/status`."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def call_of(event: Mapping[str, Any], user: str) -> Call | None:
    """Return the call that an audit event reports; None if it is another user's, or the end of a watch."""
    if event["user"]["username"] != user:
        return None
    verb = event["verb"]
    if event["stage"] != ("ResponseStarted" if verb == WATCH else "ResponseComplete"):
        return None
    reference = event.get("objectRef", {})
    parts = [reference[key] for key in ("resource", "subresource") if reference.get(key)]
    return Call(verb, "/".join(parts) or OTHER)


def working(calls: Counter[Call]) -> Counter[Call]:
    """Return the calls that are neither watches nor about the Lease."""
    return Counter({call: n for call, n in calls.items() if call.verb != WATCH and call.resource != LEASES})


class Tail:
    """Reads what the log has got since it was last read."""

    def __init__(self, log: Path, user: str) -> None:
        self._log, self._user = log, user
        self._position = log.stat().st_size if log.exists() else 0

    def take(self) -> Counter[Call]:
        """Return the calls since the last time, or since this object was made."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        found = (call_of(json.loads(line), self._user) for line in whole.splitlines())
        return Counter(call for call in found if call is not None)
