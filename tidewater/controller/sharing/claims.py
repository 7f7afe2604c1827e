"""What jobs ask for and have, in workers of the size that quotas count in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Key = tuple[str, str]
"""A job's namespace, which is also its team, and its name."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number of workers that a job may have, and what it counts in the quota, with its other pods."""

    workers: int
    units: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One job's.

    Attributes:
        key: the job.
        sizes: the numbers of workers with which it may run, in ascending order, up to the one that it wants; none of a
            job that wants no pods.
        rank: the first job of a team has the lowest.
        started: whether it has been allowed its minimum before, and has not given it back since.
        held: what it has: pods until they are gone, and what it was last allowed if it has started.
        noun: what its sizes are numbers of: workers, or replicas of several pods.
    """

    key: Key
    sizes: tuple[Size, ...]
    rank: tuple[int, datetime, str]
    started: bool = False
    held: int = 0
    noun: str = "workers"

    @property
    def team(self) -> str:
        """Return the job's team."""
        return self.key[0]

    @property
    def least(self) -> int:
        """Return what its minimum counts."""
        return self.sizes[0].units

    @property
    def wanted(self) -> int:
        """Return what the size counts that it wants."""
        return self.sizes[-1].units
