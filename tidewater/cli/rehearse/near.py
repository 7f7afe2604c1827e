"""What is equal but for the order of sums: losses and tensors of a run with faults, and of one without.

Another number of workers divides a step's samples in another way. So floating-point sums have another order, batch
normalization sees other shares, and dropout draws other numbers. How far that leads depends on the script, so it is
measured: two runs without faults, with several workers and with one, differ by nothing else. The tolerance is

    16 times the largest such difference at any step, and at least 1/64 of the size (32 rounding errors of the type if
    that is more)

The least tolerance is for what these two runs may not have met by chance: rounding decides a tie of max pooling, or
moves an activation over the kink of a ReLU, and the gradient jumps. Measured with the default script (digits, 36
steps), as the largest distance of a tensor from that of the run with several workers, in parts of its size:

    no tie was met                             2.6e-6
    a tie of the max pooling at step 7         3.3e-4 in Adam's moments of the layers below the pooling, 5e-7 in those
                                               above it; it grows to 2.7e-3 at step 34
    GELU and average pooling, without kinks    5.6e-6
    float64                                    3.5e-15

1/64 is six times the largest of them. A lost sample, or one that counts twice, would be seen in float64, too. Whole
numbers have no least tolerance.

Of an optimizer's moments it is at least 32 rounding errors of the largest one of their kind. A parameter without effect
on the loss, such as a bias before a batch normalization, has a gradient that consists of the rounding errors of others.

Differences of tensors are estimated from sketches (``contract.rehearsal``), within a factor of two.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tidewater.cli.rehearse.compare import MISSING, Finding, Promise, differing
from tidewater.cli.rehearse.records import Records
from tidewater.cli.rehearse.remedies import Seen, remedy
from tidewater.contract.rehearsal import Sketch

_MOMENT = re.compile(r"(optimizers/\d+)/state/[^/]+/(.+)")
FACTOR = 16.0
LEAST = 2.0**-6
ROUNDINGS = 32.0
TIES = 2.5
"""Samples of the validation data: at a tie, rounding may turn the answers for two. The half is for its last digit."""


def losses(run: Records, several: Records, one: Records) -> Iterator[Finding]:
    """Yield the first step with a loss that is not that of the run with several workers, within the tolerance."""
    pairs = ((several.any(step), one.any(step)) for step in several.finals)
    nature = max((_far(mine.loss, alone.loss) for mine, alone in pairs if mine and alone), default=0.0)
    for step in sorted(run.finals):
        mine, theirs = run.any(step), several.any(step)
        if mine is None or theirs is None:
            continue
        tolerance = FACTOR * nature + LEAST * abs(theirs.loss)
        if not _far(mine.loss, theirs.loss) <= tolerance:
            where = f"{mine.loss:.7g} instead of {theirs.loss:.7g} (tolerance {tolerance:.2g}) in step {step}"
            yield Finding(Promise.LOSSES, "the loss", f"{where}, {run.after(step)}", remedy("", Seen.AFTER_FAULTS))
            return


def scores(run: Records, several: Records, one: Records) -> Iterator[Finding]:
    """Yield the first evaluation with a score that is not that of the run with several workers, within the tolerance.

    The least tolerance is at least the score of a few samples: an answer that is right or wrong has no half.
    """
    pairs = ((several.score(step), one.score(step)) for step in several.scored)
    nature = max((_far(mine.score, alone.score) for mine, alone in pairs if mine and alone), default=0.0)
    for step in sorted(run.scored):
        mine, theirs = run.score(step), several.score(step)
        if mine is None or theirs is None:
            continue
        tolerance = FACTOR * nature + max(LEAST * abs(theirs.score), TIES / theirs.samples)
        if not _far(mine.score, theirs.score) <= tolerance:
            where = f"{mine.score:.7g} instead of {theirs.score:.7g} (tolerance {tolerance:.2g}) after step {step}"
            yield Finding(Promise.LOSSES, "the score", f"{where}, {run.after(step)}", remedy("", Seen.AFTER_FAULTS))
            return


def states(run: Records, several: Records, one: Records) -> Iterator[Finding]:
    """Yield each piece of the state that is not that of the run with several workers, within the tolerance.

    Only the first step that has such pieces counts: afterwards all follows from them.
    """
    nature, by_score = _nature(several, one), {*_decided(run), *_decided(several), *_decided(one)}
    for step in sorted(run.finals):
        mine, theirs, alone = (each.any(step) for each in (run, several, one))
        if mine is None or theirs is None or alone is None:
            continue
        odd, rounding = [], _rounding(theirs.sketches)
        for piece, sketch in theirs.sketches.items():
            tolerance = FACTOR * nature[piece] + max(_least(sketch), rounding.get(_kind(piece), 0.0))
            far = distance(sketch, mine.sketches.get(piece))
            if not far <= tolerance:
                where = f"{far:.2g} away from the run without faults (its size is {sketch.norm:.3g}, tolerance"
                odd.append((tolerance / far, piece, f"{where} {tolerance:.2g})"))
        same = {piece: text for piece, text in theirs.pieces.items() if alone.pieces.get(piece) == text}
        for piece, value, another in differing(same, {key: mine.pieces.get(key, MISSING) for key in same}):
            if piece not in theirs.sketches and not piece.startswith("variable/"):
                odd.append((0.0, piece, f"{another} instead of {value}"))
        for _, piece, where in sorted(odd):
            words = f"{where} after step {step}, {run.after(step)}"
            decided = piece in by_score
            advice = _DECIDED if decided else remedy(piece, Seen.AFTER_FAULTS)
            yield Finding(Promise.STATE, piece, words, advice, note=decided)
        if odd:
            return


def _decided(run: Records) -> Iterator[str]:
    """Yield the pieces that evaluations change, by a score: rounding may decide a tie otherwise."""
    for step in run.scored:
        final, scored = run.any(step), run.score(step)
        if final and scored:
            yield from (piece for piece, _, _ in differing(final.pieces, scored.pieces))


def _nature(several: Records, one: Records) -> Mapping[str, float]:
    """Return by how much each tensor differs at most between the runs without faults."""
    nature: dict[str, float] = defaultdict(float)
    for step in several.finals:
        mine, alone = several.any(step), one.any(step)
        for piece, sketch in mine.sketches.items() if mine and alone else ():
            nature[piece] = max(nature[piece], distance(sketch, alone.sketches.get(piece) if alone else None))
    return nature


_DECIDED = (
    "evaluations change it, by a score that is equal but for the order of sums: let a decision not depend on the last "
    "digits of a score; what follows from it can't be compared"
)


def _least(sketch: Sketch) -> float:
    return max(LEAST, ROUNDINGS * sketch.epsilon) * sketch.norm if sketch.epsilon else 0.0


def _rounding(sketches: Mapping[str, Sketch]) -> Mapping[str, float]:
    """Return the least tolerance of an optimizer's moments, by their kind."""
    largest: dict[str, float] = defaultdict(float)
    for piece, sketch in sketches.items():
        if kind := _kind(piece):
            largest[kind] = max(largest[kind], ROUNDINGS * sketch.epsilon * sketch.norm)
    return largest


def _kind(piece: str) -> str:
    """Return what the moments of all parameters of an optimizer are called; empty for other pieces."""
    moment = _MOMENT.fullmatch(piece)
    return f"{moment[1]} {moment[2]}" if moment else ""


def distance(one: Sketch, other: Sketch | None) -> float:
    """Return an estimate of the root of the sum of squared differences; infinity if one is missing."""
    if other is None or len(one.sums) != len(other.sums):
        return math.inf
    return math.dist(one.sums, other.sums)


def _far(one: float, other: float) -> float:
    return 0.0 if one == other or (one != one and other != other) else abs(one - other)
