"""Since when the current generation needs a successor, as one process sees it.

need = need.noted(view, me.id, limits, now=time.monotonic())    # after each change of the view
if need.since is not None: ...
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from tidewater.elastic.membership import rules
from tidewater.elastic.membership.arrivals import Arrivals
from tidewater.elastic.membership.rules import Limits, View

_LEAST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.01, 0.1
_PATIENCES_OF_A_TURN = 2


@dataclass(frozen=True)
class Need:
    """Times are monotonic."""

    number: int = -1
    """Of the current generation."""
    since: float | None = None
    """None if it needs none."""
    given_up: int = 0
    """How many of its members have given it up."""
    heard_at: float = -math.inf
    """When that was news."""
    arrivals: Arrivals = field(default_factory=Arrivals)

    def noted(self, view: View, me: str, limits: Limits, now: float) -> Need:
        """Return the need after a change. With a view that isn't whole, a member only notes whether it waits itself."""
        if not view.whole:
            needed = rules.waits(view, me)
            return Need(view.number, self._since(view, now) if needed else None, arrivals=self.arrivals)
        arrivals = self.arrivals.noted(view.number, rules.ids(rules.newcomers(view)), now)
        if not rules.needs_change(view, limits):
            return Need(view.number, arrivals=arrivals)
        given_up = rules.given_up(view)
        same = view.number == self.number and given_up == self.given_up
        return Need(view.number, self._since(view, now), given_up, self.heard_at if same else now, arrivals)

    def poll_seconds(self) -> float:
        """Return how long to wait for news: less at first, as the port of a killed process closes after its sums."""
        waited = _LONGEST_POLL_SECONDS if self.since is None else time.monotonic() - self.since
        return min(max(waited, _LEAST_POLL_SECONDS), _LONGEST_POLL_SECONDS)

    def turn(self, patience_seconds: float, now: float) -> tuple[int, float]:
        """Return how often a vote must have been sent by now (see ``votes``), and until when that is enough."""
        if self.since is None:
            return 1, math.inf
        seconds = _PATIENCES_OF_A_TURN * patience_seconds
        turn = 1 + int((now - self.since) / seconds)
        return turn, self.since + turn * seconds

    def _since(self, view: View, now: float) -> float:
        return now if self.since is None or self.number != view.number else self.since
