"""Records as workers write them, and books of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidewater.cli.rehearse.records import Event, Records
from tidewater.contract.rehearsal import Begun, Final, Scored, Sketch

EPSILON = 2.0**-23


def final(
    step: int, pieces: Mapping[str, str] | None = None, *, loss: float = 1.0, rank: int = 0, generation: int = 1
) -> Final:
    """Return the record of a step of two epochs of four steps."""
    return Final(step, step // 4, generation, 2, rank, loss, 4, pieces or {}, {})


def near(step: int, loss: float, sums: Sequence[float], pieces: Mapping[str, str] | None = None) -> Final:
    """Return the record of a step with one tensor."""
    sketch = Sketch(2.0, EPSILON, tuple(sums))
    return Final(step, 0, 1, 2, 0, loss, 4, pieces or {}, {"model/w": sketch})


def begun(
    step: int, samples: Sequence[int], *, rank: int = 0, generation: int = 1, pieces: Mapping[str, str] | None = None
) -> Begun:
    """Return the record of a step that begins."""
    return Begun(step, generation, rank, tuple(samples), pieces or {})


def scored(step: int, score: float = 0.5, pieces: Mapping[str, str] | None = None) -> Scored:
    """Return the record of an evaluation of 100 samples."""
    return Scored(step, score, 100, pieces or {})


def recorded(*records: tuple[str, Begun | Final | Scored], events: Sequence[Event] = ()) -> Records:
    """Return the records of these workers' records."""
    made = Records(events=[*events])
    for worker, record in records:
        made.add(f"{worker}.4711", record)
    return made
