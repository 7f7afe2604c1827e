"""The records that workers agree with, and what they say: who is lost, who asks for a place, what is broken.

    view.generation, view.member("w-0-1f"), newcomers(view), is_broken(view)

``decision`` says what follows from them, with all rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from tidewater.elastic.addresses import Address


@dataclass(frozen=True)
class Seat:
    """What never changes about one worker process, and what others need to reach it."""

    id: str
    worker: str
    host: str
    peer_port: int
    """TCP port of its peer server, for pings, state, and the rendezvous of generations in which it has rank 0."""
    shard_ports: tuple[int, ...] = field(default=(), kw_only=True)
    """Those of the peer servers of its further processes, if several divide a model."""
    shard_hosts: tuple[str, ...] = field(default=(), kw_only=True)
    """Their hosts, if not all of them are on the host of the first process."""

    @property
    def address(self) -> Address:
        """Address of its peer server."""
        return Address(self.host, self.peer_port, self.id)


def further(places: Sequence[Address]) -> dict[str, Any]:
    """Return the fields of a seat for its further processes; ``places`` has the peer servers of all its processes."""
    hosts = tuple(each.host for each in places[1:])
    return {"shard_ports": tuple(each.port for each in places[1:])} | (
        {"shard_hosts": hosts} if set(hosts) - {places[0].host} else {}
    )


@dataclass(frozen=True)
class Member(Seat):
    """One worker process, as in its record."""

    signature: str
    """Digest of what must be equal in all workers (model, data, schedule)."""
    ready_after: int
    leaving: bool = False
    state_of: int = 0
    """Number of the last generation in which it received or had the job's state; 0: never."""
    unreachable: tuple[str, ...] = ()
    """Ids of members that do not answer its pings."""
    fruitful: int = 0
    """Number of the last generation in which it made a step, or found out what has to change in the next attempt."""
    age: int = 0
    """etcd's create revision of the record: smaller is older. Not part of the stored record."""


@dataclass(frozen=True)
class Generation:
    """The members that train together, in rank order."""

    number: int
    uuid: int
    """Unique for every generation; names the process group."""
    members: tuple[Seat, ...]
    cause: str
    """Why it replaced the one before: ``start``, ``joined``, ``left`` or ``lost``."""
    lineage: str = ""
    """Random name of the sequence of generations that this one belongs to. If etcd loses its data, a new one begins."""
    attempts: int = 0
    """Number of generations of the same members right before it that broke without a step."""
    left_out: str = ""
    """Id of the member that was left out because of such attempts."""
    state_of: int = 0
    """The greatest ``state_of`` of its members when it was proposed."""
    signature: str = ""
    """That of its members."""

    def rank(self, member_id: str) -> int | None:
        """Return the rank of a member, or None if it is not in this generation."""
        ranks: dict[str, int] | None = self.__dict__.get("_ranks")
        if ranks is None:  # as in ``View.member``
            ranks = self.__dict__["_ranks"] = {member.id: rank for rank, member in enumerate(self.members)}
        return ranks.get(member_id)


@dataclass(frozen=True)
class Saved:
    """The last checkpoint that was written."""

    step: int
    """0 if training has begun again since, without a checkpoint."""
    where: str
    """The places that have it."""


@dataclass(frozen=True)
class Broken:
    """A generation in which no further step is possible."""

    number: int
    id: str
    """Of one member that is lost, or has given it up."""
    worker: str


@dataclass(frozen=True)
class View:
    """The records of one job in etcd, at one revision: all of them, or what concerns one process (see ``deciders``)."""

    generation: Generation | None = None
    generation_revision: int = 0
    """Mod revision of the generation record: the fencing token of the next proposal; 0 means there is none."""
    members: tuple[Member, ...] = ()
    """All that live, if the view is ``whole``, and otherwise this process if it lives."""
    saved: Saved | None = None
    finished: str = ""
    """The record of the job's end, in JSON; empty while the job runs."""
    changes: bool = False
    """Whether each new generation comes with a record of what it changes (see ``records.change_to_json``)."""
    broken: Broken | None = None
    """The last generation that broke, as one of those that decide has recorded it (see ``deciders``)."""
    broken_revision: int = 0
    """Mod revision of that record; 0 means there is none."""
    unread: tuple[tuple[str, str], ...] = ()
    """Ids of members with a record of another version, and the sentences that say so."""
    whole: bool = True
    count: int = 0
    """How many members lived when a view that isn't whole was read."""
    deciding: frozenset[str] = frozenset()
    """Ids of the members of a large job that decide for the others."""

    @property
    def number(self) -> int:
        """Number of the current generation, 0 before the first."""
        return self.generation.number if self.generation else 0

    def member(self, member_id: str) -> Member | None:
        """Return the living member of that id."""
        by_id: dict[str, Member] | None = self.__dict__.get("_by_id")
        if by_id is None:  # not a cached_property: Python 3.11's has one lock for all views of a process
            by_id = self.__dict__["_by_id"] = {member.id: member for member in self.members}
        return by_id.get(member_id)


@dataclass(frozen=True)
class Limits:
    """How many workers may train together, and how long to wait for a silent member."""

    min_workers: int
    max_workers: int
    patience_seconds: float = 3.0
    takeover_seconds: float = 40.0
    """Time after the loss of its record in which a member has certainly stopped by itself."""


def newcomers(view: View) -> list[Member]:
    """Return the members that ask for a place and have none in the current generation, oldest first."""
    inside = set(ids(view.generation.members if view.generation else ()))
    return [member for member in asking(view) if member.id not in inside]


def needs_change(view: View, limits: Limits) -> bool:
    """Return whether the current generation must or may be replaced."""
    if view.generation is None:
        return bool(asking(view))
    if is_broken(view):
        return True
    present = [view.member(member.id) for member in view.generation.members]
    staying = [member for member in present if member and not member.leaving]
    room = limits.max_workers - len(staying)
    return len(staying) < len(present) or (room > 0 and bool(newcomers_that_fit(view)))


def is_broken(view: View) -> bool:
    """Return whether a member of the current generation has given up the generation or lost its record."""
    return first_lost(view) is not None


def first_lost(view: View) -> Broken | None:
    """Return the member that makes no further step in the current generation; None if it isn't broken."""
    if view.generation is None:
        return None
    if view.broken and view.broken.number == view.number:
        return view.broken
    if not view.whole:
        return None
    living = ((member, view.member(member.id)) for member in view.generation.members)
    lost = (each for each, now in living if now is None or now.ready_after >= view.number)
    return next((Broken(view.number, each.id, each.worker) for each in lost), None)


def waits(view: View, me: str) -> bool:
    """Return whether this member waits for those that decide: it asks for a place, or leaves, or none of them is there.

    If those that decide reach all members but not etcd, no member can make a step, and no sum fails.
    """
    mine = view.member(me)
    return mine is not None and (mine.ready_after >= view.number or mine.leaving or not view.deciding)


def given_up(view: View) -> int:
    """Return how many members of the current generation have given it up."""
    members = view.generation.members if view.generation else ()
    return sum(1 for member in map(view.member, ids(members)) if member and member.ready_after >= view.number)


def lost_members(view: View, generation: Generation, me: str) -> list[str]:
    """Return the names of the other members of ``generation`` that can make no further step in it.

    A member that a newer generation omits does not count: it left as planned.
    """
    newer = view.generation if view.number > generation.number else None
    expected = [
        member for member in generation.members if member.id != me and not (newer and newer.rank(member.id) is None)
    ]
    living = [(member, view.member(member.id)) for member in (expected if view.whole else ())]
    lost = [member.worker for member, now in living if now is None or now.ready_after >= generation.number]
    broken = view.broken
    if not lost and broken and broken.number == view.number >= generation.number and broken.id != me:
        return [broken.worker] if generation.rank(broken.id) is not None else []
    return lost


def has_heirs(view: View, generation: Generation) -> bool:
    """Return whether a member of the current generation has the final state of ``generation`` or a later one."""
    living = [(member, view.member(member.id)) for member in (view.generation.members if view.generation else ())]
    return any(
        generation.rank(member.id) is not None or (now is not None and now.state_of > generation.number)
        for member, now in living
    )


def defining(view: View) -> tuple[str, Sequence[Seat]]:
    """Return the job's signature, which others must have, and members that have it; nothing if it isn't known."""
    if not view.whole:
        return (view.generation.signature, view.generation.members) if view.generation else ("", ())
    known = reference(view)
    alike = [member for member in view.members if known and member.signature == known.signature]
    return (known.signature, sorted(alike, key=lambda each: each.id != known.id)) if known else ("", ())


def reference(view: View) -> Member | None:
    """Return the member that defines the job's signature, which others must have; None if there is no member."""
    for member in view.generation.members if view.generation else ():
        living = view.member(member.id)
        if living:
            return living
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    return min(ready, key=lambda member: member.age, default=None)


def silent(view: View, dead: frozenset[str] = frozenset()) -> list[Member]:
    """Return the members of a broken generation that are not known to be dead and have not given it up yet."""
    members = view.generation.members if view.generation else ()
    living = [view.member(member.id) for member in members]
    return [member for member in living if member and member.ready_after < view.number and member.id not in dead]


def ids(members: Iterable[Seat]) -> list[str]:
    """Return the ids of members, in order."""
    return [member.id for member in members]


def left_out(view: View) -> str:
    """Return the id of the member that was left out for good, while its process has not ended yet."""
    member_id = view.generation.left_out if view.generation else ""
    return member_id if view.member(member_id) else ""


def asking(view: View) -> list[Member]:
    """Return the living members that are ready for the next generation and have its signature, oldest first."""
    known = reference(view)
    kind, omitted = known.signature if known else "", left_out(view)
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    ready = [member for member in ready if member.id != omitted]
    return sorted((member for member in ready if member.signature == kind), key=lambda member: member.age)


def newcomers_that_fit(view: View) -> list[Member]:
    """Return the newcomers that may be added, oldest first. They must reach all members of an unbroken generation."""
    new = newcomers(view)
    if not new or view.generation is None or is_broken(view):
        return new
    group = Group(filter(None, map(view.member, ids(view.generation.members))))
    return [member for member in new if group.reaches(member)]


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
