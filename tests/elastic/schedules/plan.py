"""Random schedules of faults and membership changes of a job; they depend only on the seed.

    schedule(17).moves
    schedule(ONE_PER_MOMENT[3])

The seed determines the fault and the named moment of the first move, so that consecutive seeds cover every fault at
every moment. Everything else is random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.elastic.schedules import points

KINDS = ("kill", "freeze", "join", "leave")
_STRIKES = ("kill", "freeze", "leave")
_WEIGHTS = (35, 15, 30, 20)
_MOST_MOVES = 5
_SHORT, _LONG = 0.3, 2.2
"""A freeze that the others should sit out, and one after which they have gone on without the frozen worker."""

ONE_PER_MOMENT = tuple(moment + len(points.ALL) * (moment % len(_STRIKES)) for moment, _ in enumerate(points.ALL))
"""Seeds that put their first move at every named moment once, with every fault in turn."""


@dataclass(frozen=True)
class Move:
    """One fault or membership change of one worker."""

    kind: str
    victim: int
    """Which of the workers that may be struck, modulo their number."""
    gap_seconds: float
    """After the move before has had its effect; 0: together with it."""
    point: str = ""
    """The named moment in the victim's life; none: at once."""
    trigger: str = ""
    """What else has to happen for the moment to come: another worker joins, or is killed."""
    thaw_seconds: float | None = None
    """A frozen worker goes on after so long; None: never, it is killed in the end."""

    def __str__(self) -> str:
        parts = [f"+{self.gap_seconds:.2f}s", self.kind, f"#{self.victim}"]
        parts += [f"at {self.point}"] if self.point else []
        parts += [f"(as one is to {self.trigger})"] if self.trigger else []
        parts += [f"for {self.thaw_seconds or 'ever'}"] if self.kind == "freeze" else []
        return " ".join(parts)


@dataclass(frozen=True)
class Schedule:
    """``size`` workers train; one of them, the anchor, is never hit, because one worker must keep the state."""

    seed: int
    size: int
    anchor: int
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        return f"schedule {self.seed}: {self.size} workers, all but #{self.anchor}; " + ", ".join(map(str, self.moves))


def schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    chance = random.Random(f"schedule {seed}")
    turn, moment = divmod(seed, len(points.ALL))
    size = chance.choice((2, 3, 3, 4))
    moves = [_move(chance, points.ALL[moment], _STRIKES[turn % len(_STRIKES)])]
    while len(moves) < _MOST_MOVES and chance.random() < 0.6:
        if chance.random() < 0.4:
            moves.append(_move(chance, chance.choice(points.ALL), chance.choice(_STRIKES)))
        else:
            moves.append(_move(chance, "", chance.choices(KINDS, _WEIGHTS)[0]))
        if chance.random() < 0.4:
            moves[-1] = replace(moves[-1], gap_seconds=0.0)
    if any(move.trigger == "kill" for move in moves):
        size = max(size, 3)
    # Not the oldest: it has rank 0, which writes the checkpoints, and training must not depend on its survival.
    return Schedule(seed, size, chance.randrange(1, size), tuple(moves))


def _move(chance: random.Random, moment: str, kind: str) -> Move:
    trigger = ""
    if moment in points.RECOVERY:
        trigger = "kill"
    elif moment in points.MEETING:
        trigger = "join" if moment in points.HANDOVER else chance.choice(("join", "kill"))
    thaw = chance.choice((_SHORT, _LONG, _LONG, None)) if kind == "freeze" else None
    return Move(kind, chance.randrange(12), round(chance.uniform(0.01, 0.4), 2), moment, trigger, thaw)
