"""How long newcomers wait for more newcomers, so that many that come at once are admitted by one generation.

    arrivals = arrivals.noted(view.number, ids_of_newcomers, now)      # after each change of the view
    until = arrivals.over_at(len(view.members))

Each generation connects all members again. So while newcomers keep coming, the next generation waits for a quiet
moment, which is longer the more members there are. The wait is bounded, because newcomers may keep coming for minutes.
A generation that has lasted for some time is left at once: a single newcomer, the usual case, doesn't wait. The first
generation always waits, as all workers of a job start together; a single one starts 0.03 s later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

_QUIET_SECONDS, _QUIET_SECONDS_OF_EACH = 0.03, 0.002
"""Without another newcomer, all are here: 0.06 s for 16 members, 2 s for 1,000."""
_MOST_QUIETS = 20
"""A newcomer waits at most so many times as long."""
_SETTLED_QUIETS = 20
"""A generation that is older doesn't wait for the second newcomer."""


@dataclass(frozen=True)
class Arrivals:
    """The newcomers that ask for a place in the next generation. Times are monotonic."""

    number: int = -1
    """Of the current generation; 0 before the first."""
    since: float = -math.inf
    """When this process first knew of the current generation."""
    ids: frozenset[str] = frozenset()
    """Of the newcomers."""
    first_at: float = -math.inf
    last_at: float = -math.inf
    """When the first and the last of them were seen."""

    def noted(self, number: int, newcomers: Iterable[str], now: float) -> Arrivals:
        """Return the arrivals after a change. ``newcomers`` are the ids of all that ask."""
        ids = frozenset(newcomers)
        if number != self.number:
            return Arrivals(number, now, ids, now, now)
        if ids <= self.ids:
            return self if ids == self.ids else replace(self, ids=ids)
        return replace(self, ids=ids, first_at=self.first_at if self.ids else now, last_at=now)

    def over_at(self, members: int) -> float:
        """Return until when they wait for more. ``members`` counts all that are or want to be members."""
        quiet = _QUIET_SECONDS + _QUIET_SECONDS_OF_EACH * members
        if self.number and self.first_at >= self.since + _SETTLED_QUIETS * quiet:
            return self.first_at
        return min(self.last_at + quiet, self.first_at + _MOST_QUIETS * quiet)
