"""How long a peer may leave a ping unanswered: less where all answers come quickly, more where some came late.

    delay = noted(delay, seconds, now)      # for each answer, and for each time that this process itself came late
    limit(1.5, delay)                       # 0.75 to 1.5 seconds

A fixed limit must be long enough for a busy machine, so that a frozen peer costs the others this time everywhere. The
rule follows the detectors of T. D. Chandra and S. Toueg, "Unreliable failure detectors for reliable distributed
systems" (1996), which extend a limit when it has turned out to be too short, and of N. Hayashibara et al.,
"The phi accrual failure detector" (2004), which derive it from the answers before. While steps are on time there are no
pings and so too few answers for a distribution. So the slowest answer counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FACTOR = 4
"""A peer may take so many times as long as the slowest answer."""
LEAST = 1 / 2
"""Of the longest limit."""
MEMORY_SECONDS = 60.0
"""A delay counts for at least this time."""


@dataclass(frozen=True)
class Delay:
    """The longest delay of late."""

    seconds: float = 0.0
    at: float = -math.inf
    """When it was seen, in monotonic time."""


def noted(before: Delay, seconds: float, now: float) -> Delay:
    """Return the longest delay of late, after one of ``seconds``."""
    return Delay(seconds, now) if seconds >= before.seconds or now - before.at > MEMORY_SECONDS else before


def limit(most: float, delay: Delay) -> float:
    """Return the seconds after which a peer without an answer is silent; at most ``most``."""
    return min(most, max(LEAST * most, FACTOR * delay.seconds))
