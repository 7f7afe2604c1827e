"""What is equal but for the order of sums: losses and tensors of a run with faults, and of one without.

Another number of workers divides a step's samples in another way. So floating-point sums have another order, batch
normalization sees other shares, and dropout draws other numbers. How far that leads depends on the script, so it is
measured: two runs without faults, with several workers and with one, differ by nothing else. The tolerance at a step is

    16 times the largest such difference up to that step, and at least 32 rounding errors per step

Differences of tensors are estimated from sketches (``contract.rehearsal``), within a factor of two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from tidewater.cli.rehearse.book import Book
from tidewater.cli.rehearse.compare import Finding, Promise, differing
from tidewater.cli.rehearse.remedies import Seen, remedy
from tidewater.contract.rehearsal import Sketch

FACTOR = 16.0
ROUNDINGS = 32.0
_SINGLE = 2.0**-23

Tolerances = dict[str, float]


def losses(book: Book, several: Book, one: Book) -> Iterator[Finding]:
    """Yield the first step with a loss that is not that of the run with several workers, within the tolerance."""
    nature = 0.0
    for step in range(1, book.last + 1):
        mine, theirs, alone = (each.any(step) for each in (book, several, one))
        if mine is None or theirs is None or alone is None:
            continue
        nature = max(nature, _far(theirs.loss, alone.loss))
        tolerance = FACTOR * nature + ROUNDINGS * step * _SINGLE * abs(theirs.loss)
        if not _far(mine.loss, theirs.loss) <= tolerance:
            where = f"{mine.loss:.7g} instead of {theirs.loss:.7g} (tolerance {tolerance:.2g}) in step {step}"
            yield Finding(Promise.LOSSES, "the loss", f"{where}, {book.after(step)}", remedy("", Seen.AFTER_FAULTS))
            return


def states(book: Book, several: Book, one: Book) -> Iterator[Finding]:
    """Yield each piece of the state that is not that of the run with several workers, within the tolerance.

    Only the first step that has such pieces counts: afterwards all follows from them.
    """
    nature: Tolerances = defaultdict(float)
    for step in range(1, book.last + 1):
        mine, theirs, alone = (each.any(step) for each in (book, several, one))
        if mine is None or theirs is None or alone is None:
            continue
        odd = []
        for piece, sketch in theirs.sketches.items():
            nature[piece] = max(nature[piece], distance(sketch, alone.sketches.get(piece)))
            tolerance = FACTOR * nature[piece] + ROUNDINGS * step * sketch.epsilon * sketch.norm
            far = distance(sketch, mine.sketches.get(piece))
            if not far <= tolerance:
                where = f"{far:.2g} away from the run without faults (its size is {sketch.norm:.3g}, tolerance"
                odd.append((tolerance / far, piece, f"{where} {tolerance:.2g})"))
        same = {piece: text for piece, text in theirs.pieces.items() if alone.pieces.get(piece) == text}
        for piece, value, another in differing(same, {key: mine.pieces.get(key, "absent") for key in same}):
            if piece not in theirs.sketches and not piece.startswith("variable/"):
                odd.append((0.0, piece, f"{another} instead of {value}"))
        for _, piece, where in sorted(odd):
            words = f"{where} after step {step}, {book.after(step)}"
            yield Finding(Promise.STATE, piece, words, remedy(piece, Seen.AFTER_FAULTS))
        if odd:
            return


def distance(one: Sketch, other: Sketch | None) -> float:
    """Return an estimate of the root of the sum of squared differences; infinity if one is missing."""
    if other is None or len(one.sums) != len(other.sums):
        return math.inf
    return math.dist(one.sums, other.sums)


def _far(one: float, other: float) -> float:
    return 0.0 if one == other or (one != one and other != other) else abs(one - other)
