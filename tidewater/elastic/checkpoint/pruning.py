"""Which checkpoints of a place are needed: the newest ones, and the one with the best score.

unneeded(listed, written, keep=2)       # the names of those to remove
is_beaten(score, listed)                # whether a better one is stored already
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewater.elastic.checkpoint.lineage import History, superseded
from tidewater.elastic.checkpoint.manifest import Manifest, Score
from tidewater.elastic.checkpoint.places import Stored

Listed = Sequence[tuple[Stored, Manifest]]
"""The checkpoints of a place that can be read, newest first."""


def unneeded(listed: Listed, written: History, keep: int) -> set[str]:
    """Return the names of those that are not needed after ``written`` is stored.

    The one with the best score is kept in addition to the newest ones; see ``superseded`` for these.
    """
    best = _best(listed)
    rest = [each for index, each in enumerate(listed) if index != best]
    return {rest[index][0].name for index in superseded([manifest.history for _, manifest in rest], written, keep)}


def is_beaten(score: Score | None, listed: Listed) -> bool:
    """Return whether one of these has a better score in the same mode, or an equal one."""
    others = [each.score for _, each in listed if each.score]
    return score is not None and any(other.mode == score.mode and not score.beats(other) for other in others)


def _best(listed: Listed) -> int | None:
    """Return the index of the best score, in the mode of the newest one; of equal ones the newest. None: no score."""
    known = [(index, each.score) for index, (_, each) in enumerate(listed) if each.score]
    best = known[0] if known else None
    for index, score in known:
        if best and score.mode == best[1].mode and score.beats(best[1]):
            best = index, score
    return best[0] if best else None
