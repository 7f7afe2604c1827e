"""What the comparisons have in common: findings, and the first differences between values of pieces.

for finding in exact.between_workers(run):
    print(finding.sentence)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tidewater.cli.rehearse.remedies import Seen, remedy, shown

MISSING = "absent"
_MOST = 4
"""Findings of one comparison: the rest mostly follows from them."""


class Promise(Enum):
    """What the runtime promises, as the table says it."""

    TRAINS = "the script trains with one worker and with several"
    ALIKE = "all workers have the same state after every step"
    REPEATABLE = "the same run has the same result, bit for bit"
    SAMPLES = "every sample counts once per epoch"
    GOES_ON = "faults: the others go on, and the job is finished"
    HANDED_OVER = "a worker that joins, returns or resumes gets the whole state"
    LOSSES = "the losses and scores are those of the run without faults"
    STATE = "the state is that of the run without faults"


@dataclass(frozen=True)
class Finding:
    """A promise that does not hold, or (``note``) something that is worth a look."""

    promise: Promise
    piece: str
    """The name of the tensor, attribute, sample or draw at fault, or a few words."""
    where: str
    remedy: str
    note: bool = False

    @property
    def what(self) -> str:
        """Return what is at fault, for a person."""
        return shown(self.piece)

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
    return Finding(promise, piece, where, remedy(piece, seen, values[0]), note)


def first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings to show: what may be a cause before what follows from it, and the notes at the end."""
    by_piece: dict[str, Finding] = {}
    for finding in findings:
        by_piece.setdefault(finding.piece, finding)
    broken = sorted((each for each in by_piece.values() if not each.note), key=_follows)
    return broken[:_MOST] + [each for each in by_piece.values() if each.note][:_MOST]


def _follows(finding: Finding) -> bool:
    return finding.piece.partition("/")[0] in ("model", "buffers", "optimizers", "the loss")
