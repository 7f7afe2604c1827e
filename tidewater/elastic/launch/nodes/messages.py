"""What the launchers of a worker over several machines send each other: a JSON object per line.

data = encode(Ended(3, 137, 2))
message = decode(data)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Hello:
    """A further machine, to the first one: it is there, and none of its processes runs."""

    machine: int
    machines: int
    """Their number, as this one knows it."""
    shard: int
    """The number of processes of all of them, as this one knows it."""
    name: str
    """Of this machine, for the log."""
    limit: int
    """See ``launch.limit``."""


@dataclass(frozen=True)
class Ended:
    """A further machine, to the first one: the exit code that counts for its processes has become this one."""

    code: int
    first: int
    """The index of the process that has ended with it."""


@dataclass(frozen=True)
class Idle:
    """A further machine, to the first one: none of its processes runs any more."""

    limit: int
    """See ``launch.limit``."""


@dataclass(frozen=True)
class Start:
    """The first machine: start the processes."""

    meeting: int
    """Number of the keys at which they meet."""
    limit: int
    """See ``launch.limit``."""


@dataclass(frozen=True)
class Stop:
    """The first machine: kill the processes that are left after so many seconds; None: let them end by themselves."""

    seconds: float | None


@dataclass(frozen=True)
class Leave:
    """A further machine: it was asked to leave. The first machine: ask the processes to leave."""


@dataclass(frozen=True)
class End:
    """The first machine: the launcher ends with this code."""

    code: int
    reason: str = ""
    """What is wrong with the settings of a machine that is refused."""


@dataclass(frozen=True)
class Taken:
    """The first machine, to another one: a launcher with its number is there, so this one waits until that is lost."""

    name: str
    """Of the machine that is there."""


@dataclass(frozen=True)
class Ping:
    """Each machine, at intervals: it is there."""


Report = Ended | Idle | Leave
Order = Start | Stop | Leave | End
Message = Hello | Report | Order | Taken | Ping
_KINDS: tuple[type[Message], ...] = (Hello, Ended, Idle, Start, Stop, Leave, End, Taken, Ping)


def encode(message: Message) -> bytes:
    """Return the line of a message."""
    return json.dumps({type(message).__name__: asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of a line. Raise ValueError for another one."""
    try:
        ((name, fields),) = json.loads(line).items()
        return {kind.__name__: kind for kind in _KINDS}[name](**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no message of a launcher: {line[:80]!r}") from error
