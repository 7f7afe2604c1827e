"""Which process is killed when, by a seed: a pure function.

schedule(17)        # (Strike(after=9, point="worker: a minibatch is pushed"), …)
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from packages.elasticdl.tests.chaos.points import BY_NAME

KINDS = ("master", "ps", "worker")
TASKS = 48
"""Training tasks of the job that is disturbed."""
LAST = 40
"""No mark is set after so many tasks: the job could end before a process comes to it."""


@dataclass(frozen=True)
class Strike:
    """A process that is killed."""

    after: int
    """Tasks that must be done before the mark is set."""
    point: str
    """The moment at which the next process that comes there is killed; see `points`."""


def schedule(seed: int) -> tuple[Strike, ...]:
    """Return three to five kills, at least one of each kind of process, in the order in which they come.

    The first one is at each moment in turn, so that as many schedules as there are moments have them all.
    """
    draw = random.Random(seed)
    names = list(BY_NAME)
    chosen = [names[seed % len(names)]]
    for kind in KINDS:
        if BY_NAME[chosen[0]].kind != kind:
            chosen.append(draw.choice([name for name in names if BY_NAME[name].kind == kind]))
    chosen += draw.sample(names, draw.randrange(3))
    afters = sorted(draw.randrange(1, LAST) for _ in chosen)
    return tuple(Strike(after, point) for after, point in zip(afters, chosen, strict=True))
