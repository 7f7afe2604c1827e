"""The times at which workers are killed: one seeded trace for all systems.

kills = scattered(seed="2/0", count=3, seconds=200, nodes=3)
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """The kill of a worker, `at` seconds after the beginning of the trace."""

    at: float
    node: int


def scattered(*, seed: str, count: int, seconds: float, nodes: int) -> tuple[Kill, ...]:
    """Return `count` kills at independent, uniform times: a Poisson process of which the number is known."""
    # A string seeds Python's generator the same way on every machine and version.
    chance = random.Random(f"kills/{seed}")
    return tuple(Kill(at, chance.randrange(nodes)) for at in sorted(chance.uniform(0, seconds) for _ in range(count)))
