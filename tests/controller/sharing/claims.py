"""Claims of jobs, and random cohorts of teams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from tidewater.contract.controller_program import Quota
from tidewater.controller.sharing.claims import Claim, Key, Size
from tidewater.controller.sharing.shares import Share

BEGINNING = datetime(2026, 11, 29, tzinfo=UTC)
TWO = {"vision": Quota(2, 4), "speech": Quota(2, 4)}
"""Two teams that lend each other everything."""


def claim(team: str, low: int, high: int, name: str = "j", **more: int) -> Claim:
    """Return the claim of a job for `low` to `high` workers.

    Args:
        team: its namespace.
        low: fewest.
        high: wanted.
        name: of the job.
        more: `held`, which a job that has started has, its `age` in seconds, and `priority`.
    """
    sizes = tuple(Size(number, number) for number in range(low, high + 1))
    rank = (-more.get("priority", 0), BEGINNING - timedelta(seconds=more.get("age", 0)), name)
    return Claim((team, name), sizes, rank, "held" in more, more.get("held", 0))


def units(of: Claim, share: Share) -> int:
    """Return what a share counts in the quota."""
    return next((size.units for size in of.sizes if size.workers == share.workers), 0)


@dataclass(frozen=True)
class Cohort:
    """Teams with quotas, and their jobs."""

    quotas: Mapping[str, Quota]
    claims: tuple[Claim, ...]

    @property
    def all(self) -> int:
        """Return what there is together."""
        return sum(quota.nominal for quota in self.quotas.values())

    def used(self, counts: Mapping[Key, int], team: str) -> int:
        """Return what a team uses if its jobs have sizes with these indices."""
        return sum(
            claim.sizes[counts[claim.key]].units for claim in self.claims if claim.team == team and claim.key in counts
        )


def cohort(seed: int, *, even: bool = False) -> Cohort:
    """Return a random one with jobs that have started at their minimum; `even`: every size is one more in the quota."""
    random = Random(seed)
    quotas = {}
    for team in "abcd"[: random.randint(1, 4)]:
        nominal = random.randint(0, 6)
        quotas[team] = Quota(nominal, nominal + random.randint(0, 6))
    claims = []
    for number in range(random.randint(0, 8)):
        made = _random(random, random.choice([*quotas]), f"j{number}", even)
        claims.append(replace(made, held=made.least if made.started else 0))
    return Cohort(quotas, tuple(claims))


def _random(random: Random, team: str, name: str, even: bool) -> Claim:
    low = random.randint(1, 4)
    counts = range(low, low + random.randint(1, 5))
    weight, others = (1, 0) if even else (random.randint(1, 3), random.randint(0, 2))
    numbers = [counts[0], *(number for number in counts[1:] if even or random.random() < 0.7)]
    sizes = tuple(Size(number, others + weight * number) for number in numbers)
    rank = (-random.randint(0, 2), BEGINNING + timedelta(seconds=random.randint(0, 3)), name)
    return Claim((team, name), sizes, rank, random.random() < 0.5)
