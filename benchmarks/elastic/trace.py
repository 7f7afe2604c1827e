"""When which worker is killed: one seeded trace, the same for every system.

kills = poisson(seed=1, mean_seconds=60, seconds=600, nodes=3)
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """A worker's sudden end, `at` seconds after the trace's beginning."""

    at: float
    node: int


def poisson(*, seed: int, mean_seconds: float, seconds: float, nodes: int) -> tuple[Kill, ...]:
    """Kills with independent, exponentially distributed times between them; `mean_seconds` is their mean."""
    # A string seeds Python's generator the same way on every machine and version.
    chance = random.Random(f"kills/{seed}")
    kills: list[Kill] = []
    at = chance.expovariate(1 / mean_seconds)
    while at < seconds:
        kills.append(Kill(at, chance.randrange(nodes)))
        at += chance.expovariate(1 / mean_seconds)
    return tuple(kills)
