"""What workers compare in addition to their traits: the script's modules, versions of packages, a few samples.

    mine = Evidence(modules={"model": "1f…"}, versions={"torch": "2.14.1"}, samples={"sample 7 of the dataset": …})
    sentence = contradiction(mine, theirs)         # None if nothing contradicts

Equal scripts may import different modules: a tracker in one worker only, for example. And equal samples may differ in
the last bits of their numbers, because processors round differently. So only what both workers have is compared, and
numbers of arrays by a mean, with a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_RESTART = "Stop all workers and start them again with the same one, from the last checkpoint, or give it to this one"
_SORT = (
    "The dataset must be equal in all workers: sort the names of its files, split it with the global generators in "
    "training() or with a seeded generator, and set PYTHONHASHSEED=0 where a set is involved. If it is equal, and this "
    "sample only contains what belongs to one worker, give the dataset an attribute `digest`, a text that is the same "
    "for the same data: then it is compared, and samples are not"
)


@dataclass(frozen=True)
class Probe:
    """One sample, for a comparison."""

    exact: tuple[str, ...]
    """Digests of its structure, strings and labels: of all, and without values that seem to belong to this worker.

    Two samples may be the same if they have one in common: a label can be equal to the id of one process by chance.
    """
    means: tuple[float, ...] = ()
    """Of each array of numbers."""
    tolerances: tuple[float, ...] = ()
    """By how much two workers' means may differ."""

    def is_like(self, other: Probe) -> bool:
        """Return whether both can be the same sample."""
        if set(self.exact).isdisjoint(other.exact) or len(self.means) != len(other.means):
            return False
        both = zip(self.means, other.means, self.tolerances, other.tolerances, strict=False)
        return all(abs(one - two) <= max(mine, theirs) for one, two, mine, theirs in both)


@dataclass(frozen=True)
class Evidence:
    """What a worker has found out about itself."""

    modules: Mapping[str, str] = field(default_factory=dict)
    """Digests of the sources of the script's own modules, by name."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python, torch and the packages that the script imports, by name."""
    samples: Mapping[str, Probe] = field(default_factory=dict)
    """By a name for a person."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Evidence:
        """Return what ``values`` has returned. Raise TypeError, KeyError or AttributeError if it has other fields."""
        samples = {
            str(name): Probe(
                tuple(map(str, each["exact"])),
                tuple(map(float, each["means"])),
                tuple(map(float, each["tolerances"])),
            )
            for name, each in values["samples"].items()
        }
        modules, versions = (
            {str(name): str(value) for name, value in values[each].items()} for each in ("modules", "versions")
        )
        return cls(modules, versions, samples)

    def values(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)


def contradiction(mine: Evidence, theirs: Evidence) -> tuple[str, str] | None:
    """Return what differs first, and the remedy; None if nothing of what both have contradicts.

    Versions come first: another version of a package may be the reason for another sample.
    """
    for name in _both(mine.versions, theirs.versions):
        here, there = mine.versions[name], theirs.versions[name]
        if here != there:
            return f"{name} is {here} here and {there} there", _RESTART
    for name in _both(mine.modules, theirs.modules):
        if mine.modules[name] != theirs.modules[name]:
            return f"the script's module {name} has other code there", _RESTART
    for name in _both(mine.samples, theirs.samples):
        if not mine.samples[name].is_like(theirs.samples[name]):
            return f"{name} is another one there", _SORT
    return None


def _both(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [name for name in mine if name in theirs]
