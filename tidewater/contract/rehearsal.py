"""What a worker of `tidewater rehearse` writes into the rehearsal's folder, and what it reads there.

    TIDEWATER_REHEARSAL           the folder; without it, the runtime records nothing
    folder/orders.json            Orders, before the workers start
    folder/gate                   number of the last step that may begin; a worker waits in its loss function
    folder/WORKER.PID.records     one JSON line for each record

Records are flat, so that a program without torch compares them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FOLDER = "TIDEWATER_REHEARSAL"
ORDERS = "orders.json"
GATE = "gate"
SUFFIX = ".records"


@dataclass(frozen=True)
class Orders:
    """What all workers of a rehearsal do in the same way."""

    samples: int
    """The data set is sampled down to this number; 0: to a third of what the steps use, plus one."""


@dataclass(frozen=True)
class Sketch:
    """Some numbers from which the distance of two tensors can be estimated."""

    norm: float
    """Root of the sum of squares."""
    epsilon: float
    """Of the tensor's type: the relative distance of two neighbouring numbers. 0 for whole numbers."""
    sums: tuple[float, ...]
    """Sums over parts of the tensor, with signs that depend on the place only."""


@dataclass(frozen=True)
class Begun:
    """A worker begins to make a step, before its first pass and before the gate."""

    step: int
    generation: int
    rank: int
    samples: tuple[int, ...]
    """What this worker contributes to the step if this generation applies it."""
    pieces: Mapping[str, str] = field(default_factory=dict)
    """The state after the step before, if it is not the one that this worker has made itself, and ``on_step`` of that
    step is not still to come."""


@dataclass(frozen=True)
class Final:
    """A worker has learned that a step is final; the state is as after it."""

    step: int
    epoch: int
    generation: int
    size: int
    rank: int
    """-1 if the worker took no part in the step."""
    loss: float
    batch_size: int
    pieces: Mapping[str, str]
    """Each piece of the state by its name: a number or a short text as it is, of others a digest."""
    sketches: Mapping[str, Sketch]


@dataclass(frozen=True)
class Scored:
    """An evaluation has ended, and ``on_evaluation`` was called; the state is as after both."""

    step: int
    score: float
    samples: int
    """Of the validation data."""
    pieces: Mapping[str, str]


@dataclass(frozen=True)
class Read:
    """A sample was read, by a worker or by a process that prepares its data."""

    what: str
    digest: str


Record = Begun | Final | Scored | Read


class Writer:
    """Appends records to the file of one process. Each is complete in the file when ``write`` returns."""

    def __init__(self, folder: Path, worker: str) -> None:
        name = f"{worker.replace('/', '-')}.{os.getpid()}{SUFFIX}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: Record) -> None:
        """Append a record."""
        os.write(self._file, encoded(record))


def encoded(record: Record) -> bytes:
    """Return a record as a line."""
    return json.dumps([type(record).__name__, asdict(record)]).encode() + b"\n"


def decoded(line: bytes) -> Record:
    """Return the record of a line."""
    kind, values = json.loads(line)
    if kind == "Begun":
        return Begun(**{**values, "samples": tuple(values["samples"])})
    if kind == "Read":
        return Read(**values)
    if kind == "Scored":
        return Scored(**values)
    sketches = values.pop("sketches").items()
    return Final(**values, sketches={name: Sketch(**{**each, "sums": tuple(each["sums"])}) for name, each in sketches})


def read_whole(folder: Path, done: dict[Path, int]) -> Sequence[tuple[str, Record]]:
    """Return the records that were added since the last call, each with the name of its process.

    Args:
        folder: Of the rehearsal.
        done: Bytes that were read of each file; is updated.
    """
    found: list[tuple[str, Record]] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with path.open("rb") as file:
            file.seek(done.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        done[path] = done.get(path, 0) + len(whole)
        found += [(path.name.removesuffix(SUFFIX), decoded(line)) for line in whole.splitlines()]
    return found
