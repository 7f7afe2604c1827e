"""Which call to AWS meets a fault, and which fault: decided here, done by `proxy`.

plan = Plan(Fault.THROTTLED, skip=12)
plan.next(call)          # None for reading calls and twelve changing ones; Met(THROTTLED) for the next and its repeats
plan.struck              # the calls that have met the fault
"""

from __future__ import annotations

import enum
import hashlib
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from localcloud.aws.requests import operations, sigv4
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.received import Received

READING = ("Assume", "BatchGet", "Describe", "Get", "Head", "List", "Lookup", "Search", "Simulate")
"""What the operations that change nothing begin with."""

_CHANCE = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{7,}")
"""Tokens, IDs and the ends of automatic names, which are others in each run."""

_PARTS = re.compile(rb"[&,{}\[\]<>\s]+")
"""What is between the parameters of a form and the members of JSON or XML. Their order differs from run to run."""


class Fault(enum.Enum):
    """What becomes of a call and of all its repeats by the same client."""

    THROTTLED = "refused, since there were too many calls"
    FAILED = "refused, by an error inside AWS"
    UNANSWERED = "done, but the answer comes after the client has given up"


@dataclass(frozen=True)
class Call:
    """One request to AWS.

    Attributes:
        same: equal in the repeats that an SDK makes of a call.
        alike: equal for the call in its place in another run, too.
    """

    service: str
    operation: str
    same: str
    alike: str

    @property
    def changes(self) -> bool:
        """Return whether the call changes something."""
        return not self.operation.startswith(READING)

    def __str__(self) -> str:
        """Return its name as policies have it."""
        return f"{self.service}:{self.operation}"


def call_of(request: Received, account: str) -> Call | None:
    """Return the call that a request is; None if it isn't signed, or is for no known operation."""
    try:
        signature = sigv4.parse(request)
        if signature is None:
            return None
        operation = operations.identify(request, signature.service, signature.region, account)
    except (sigv4.MalformedSignature, Refused):
        return None
    target = f"{request.method} {request.path}?{request.query} {request.headers.get('x-amz-target', '')}".encode()
    text = target + b"\n" + request.body
    alike = hashlib.sha256(b"\n".join(sorted(_PARTS.split(_CHANCE.sub(b"", text))))).hexdigest()
    return Call(operation.service, operation.name, hashlib.sha256(text).hexdigest(), alike)


@dataclass(frozen=True)
class Met:
    """What a call meets: a fault, for the first time or as a repeat."""

    fault: Fault
    repeat: bool = False


class Plan:
    """One fault, and the calls that meet it in one run of a command.

    Args:
        skip: how many changing calls pass before.
        most: how many calls meet it. Several do if a client goes on with others when one has failed.

    Attributes:
        struck: the calls that have met it, in their order.
    """

    def __init__(self, fault: Fault, skip: int = 0, most: int = 1) -> None:
        self.fault = fault
        self.struck: list[Call] = []
        self._skip = skip
        self._most = most
        self._spared: set[str] = set()
        self._lock = threading.Lock()

    def __str__(self) -> str:
        """Return what the calls met."""
        return f"{', '.join(map(str, self.struck))}: {self.fault.value}"

    def spare(self, calls: Iterable[Call]) -> None:
        """Let these calls pass, and those that are alike."""
        self._spared.update(call.alike for call in calls)

    def next(self, call: Call) -> Met | None:
        """Return what this call meets, or None."""
        with self._lock:
            if any(call.same == each.same for each in self.struck):
                return Met(self.fault, repeat=True)
            if not call.changes or call.alike in self._spared or len(self.struck) == self._most:
                return None
            if self._skip:
                self._skip -= 1
                return None
            self.struck.append(call)
            self._spared.add(call.alike)
            return Met(self.fault)
