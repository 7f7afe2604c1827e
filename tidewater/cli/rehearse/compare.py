"""What the comparisons have in common: findings, and the first differences between values of pieces.

for finding in exact.between_workers(book):
    print(finding.sentence)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tidewater.cli.rehearse.remedies import Seen, remedy, shown

MISSING = "absent"
_MOST = 4
"""Findings of one comparison: the first ones say what is wrong, and the rest follows from them."""


class Promise(Enum):
    """What the runtime promises, as the table says it."""

    TRAINS = "the script trains with one worker and with several"
    ALIKE = "all workers have the same state after every step"
    REPEATABLE = "the same run has the same result, bit for bit"
    SAMPLES = "every sample counts once per epoch"
    GOES_ON = "faults: the others go on, and the job is finished"
    HANDED_OVER = "a worker that joins, returns or resumes gets the whole state"
    LOSSES = "the losses are those of the run without faults"
    STATE = "the state is that of the run without faults"


@dataclass(frozen=True)
class Finding:
    """A promise that does not hold, or (``note``) something that is worth a look."""

    promise: Promise
    what: str
    """The tensor, attribute, sample or draw at fault."""
    where: str
    remedy: str
    note: bool = False

    @property
    def sentence(self) -> str:
        """Return the finding for a person."""
        return f"{self.what}: {self.where}"


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the pieces with different values, and the values. A draw that only one has is none."""
    for piece in sorted({**one, **other}):
        mine, theirs = one.get(piece, MISSING), other.get(piece, MISSING)
        if mine != theirs and not (piece.startswith("draws/") and MISSING in (mine, theirs)):
            yield piece, mine, theirs


def found(promise: Promise, piece: str, seen: Seen, where: str, values: tuple[str, str]) -> Finding:
    """Return the finding for a piece that differs.

    A number or a text in a variable may be for show only. Tensors, generators and other pieces are not.
    """
    whole = any(" " in value and not value.startswith("'") for value in values)
    note = piece.startswith("variable/") and not whole
    return Finding(promise, shown(piece), where, remedy(piece, seen, values[0]), note)


def first(findings: Iterator[Finding]) -> list[Finding]:
    """Return the first findings that are none of the notes, and the first notes."""
    every = list(findings)
    return [each for each in every if not each.note][:_MOST] + [each for each in every if each.note][:_MOST]
