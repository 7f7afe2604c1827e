"""The times at which workers are killed: one seeded trace for all systems.

kills = poisson(seed=1, mean_seconds=60, seconds=600, nodes=3)
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """The kill of a worker, `at` seconds after the beginning of the trace."""

    at: float
    node: int


def poisson(*, seed: int, mean_seconds: float, seconds: float, nodes: int) -> tuple[Kill, ...]:
    """Return kills with independent, exponentially distributed times between them, with mean `mean_seconds`."""
    # A string seeds Python's generator the same way on every machine and version.
    chance = random.Random(f"kills/{seed}")
    kills: list[Kill] = []
    at = chance.expovariate(1 / mean_seconds)
    while at < seconds:
        kills.append(Kill(at, chance.randrange(nodes)))
        at += chance.expovariate(1 / mean_seconds)
    return tuple(kills)
