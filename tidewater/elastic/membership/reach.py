"""Members that reach each other over the network, as far as they have recorded that they do not.

group = Group([oldest])
members = group.add(candidates)             # takes time in proportion to the candidates
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Node(Protocol):
    """A member, as far as this module knows it."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Ids of those that do not answer it."""


N = TypeVar("N", bound=Node)


class Group(Generic[N]):
    """Members that reach each other."""

    def __init__(self, members: Iterable[N]) -> None:
        self.members = list(members)
        self._ids = {member.id for member in self.members}
        self._avoided = {each for member in self.members for each in member.unreachable}

    def reaches(self, member: N) -> bool:
        """Return whether all of them reach the member, and it reaches all of them."""
        return member.id not in self._avoided and self._ids.isdisjoint(member.unreachable)

    def add(self, candidates: Iterable[N]) -> list[N]:
        """Add each candidate that is not in the group and can be; return all members."""
        for member in candidates:
            if member.id not in self._ids and self.reaches(member):
                self.members.append(member)
                self._ids.add(member.id)
                self._avoided.update(member.unreachable)
        return self.members
