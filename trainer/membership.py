"""Who trains together: frozen records, their JSON codec, and one pure function that decides.

    action = decide(view, Inputs(me="w-0-1f", limits=Limits(1, 8)), now=time.monotonic())
    if action.kind is Kind.PROPOSE: ...   # compare-and-set action.generation on the generation record

The rules, in full:

* A *member* is one process, not one pod: a restarted pod is a new member. Its record lives as long as its lease.
* A *generation* is a numbered list of members, in rank order. Only compare-and-set changes it, so there is one
  sequence of generations, whoever proposes.
* ``ready_after`` in a member's record says: "I am in no process group of a generation up to this number; put me
  into a later one". A newcomer writes it when it is prepared. A member of generation g that writes
  ``ready_after=g`` has given g up, because a peer failed. Both ask for the same thing: a place in generation g+1.
* A generation is broken once one of its members has given it up or lost its record. Then the next one consists of
  those who gave it up (they are alive and stand still) and newcomers. Members that said nothing are waited for
  only until ``patience_seconds`` after the break, or until they are known to be dead.
* A generation that is not broken changes when a member wants to leave or a newcomer finds room. Its members then
  go on training until all of them know of the next one, and switch at the same step.
* Survivors keep their order, newcomers come after them by age, and no more than ``max_workers`` get in.
* The one to propose is the oldest that may be in the next generation; should it be stuck, the second oldest does
  so after ``patience_seconds``, and so on. Two proposals do no harm: compare-and-set lets one through.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

from contract import keys
from trainer.errors import RecordError

T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """One worker process, as it announces itself."""

    id: str
    worker: str
    host: str
    peer_port: int
    """TCP port of its peer server: liveness and state."""
    store_port: int
    """TCP port of its torch store, used by the generations in which it has rank 0."""
    signature: str
    """Digest of what must be equal in all workers (model, data, schedule)."""
    ready_after: int
    leaving: bool = False
    age: int = 0
    """etcd's create revision of the record: smaller is older. Not part of the stored record."""


@dataclass(frozen=True)
class Generation:
    """The members that train together, in rank order."""

    number: int
    uuid: int
    """Fresh for every generation: names the process group."""
    members: tuple[Member, ...]
    cause: str
    """Why it replaced the one before: ``start``, ``joined``, ``left`` or ``lost``."""

    def rank(self, member_id: str) -> int | None:
        """Rank of a member, or None if it is not in this generation."""
        return next((rank for rank, member in enumerate(self.members) if member.id == member_id), None)


@dataclass(frozen=True)
class View:
    """What etcd holds about one job, at one revision."""

    generation: Generation | None = None
    generation_revision: int = 0
    """Mod revision of the generation record: the fencing token of the next proposal; 0 means there is none."""
    members: tuple[Member, ...] = ()
    finished: str = ""
    """The record of the job's end, JSON; empty while it runs."""

    @property
    def number(self) -> int:
        """Number of the current generation, 0 before the first."""
        return self.generation.number if self.generation else 0

    def member(self, member_id: str) -> Member | None:
        """The living member of that id."""
        return next((member for member in self.members if member.id == member_id), None)


@dataclass(frozen=True)
class Limits:
    """How many workers may train together, and how long silence is accepted."""

    min_workers: int
    max_workers: int
    patience_seconds: float = 3.0


@dataclass(frozen=True)
class Inputs:
    """What a process knows besides the view."""

    me: str
    limits: Limits
    uuid: int = 0
    """A fresh number for a generation that this process may propose."""
    dead: frozenset[str] = frozenset()
    """Members whose process is known to be gone although their lease still runs."""
    changed_at: float = 0.0
    """Monotonic time at which this process first saw that the current generation needs a successor."""


class Kind(Enum):
    """What a process is to do about the membership."""

    REST = "rest"
    PROPOSE = "propose"
    WAIT = "wait"


@dataclass(frozen=True)
class Action:
    """``PROPOSE`` carries a generation, ``WAIT`` the monotonic time at which to decide again."""

    kind: Kind
    generation: Generation | None = None
    wake_at: float | None = None


REST = Action(Kind.REST)


def decide(view: View, inputs: Inputs, now: float) -> Action:
    """What ``inputs.me`` is to do about the membership; total, and without effects."""
    if view.finished or not needs_change(view, inputs.limits):
        return REST
    waiting_until = inputs.changed_at + inputs.limits.patience_seconds
    if is_broken(view) and silent(view, inputs.dead) and now < waiting_until:
        return Action(Kind.WAIT, wake_at=waiting_until)
    successor = _successor(view, inputs)
    proposers = _proposers(view)
    if inputs.me not in proposers:
        return REST
    my_turn = inputs.changed_at + proposers.index(inputs.me) * inputs.limits.patience_seconds
    if now < my_turn:
        return Action(Kind.WAIT, wake_at=my_turn)
    return Action(Kind.PROPOSE, generation=successor)


def needs_change(view: View, limits: Limits) -> bool:
    """Whether the current generation must, or may, be replaced."""
    if view.generation is None:
        return bool(_asking(view))
    if is_broken(view):
        return True
    present = [view.member(member.id) for member in view.generation.members]
    staying = [member for member in present if member and not member.leaving]
    room = limits.max_workers - len(staying)
    return len(staying) < len(present) or (room > 0 and bool(_newcomers(view)))


def is_broken(view: View) -> bool:
    """Whether a member of the current generation has given it up or lost its record."""
    return bool(view.generation) and any(
        living is None or living.ready_after >= view.number
        for living in (view.member(member.id) for member in (view.generation.members if view.generation else ()))
    )


def lost_members(view: View, generation: Generation, me: str) -> list[str]:
    """Names of the others in ``generation`` that can take no further step in it.

    A member that a newer generation leaves out does not count: it left in good order.
    """
    newer = view.generation if view.number > generation.number else None
    expected = [
        member for member in generation.members if member.id != me and not (newer and newer.rank(member.id) is None)
    ]
    living = [(member, view.member(member.id)) for member in expected]
    return [member.worker for member, now in living if now is None or now.ready_after >= generation.number]


def silent(view: View, dead: frozenset[str] = frozenset()) -> list[Member]:
    """Members of a broken generation that are not known to be gone and have not given it up yet."""
    members = view.generation.members if view.generation else ()
    living = [view.member(member.id) for member in members]
    return [member for member in living if member and member.ready_after < view.number and member.id not in dead]


def _asking(view: View) -> list[Member]:
    """Living members that stand ready for a generation after the current one, oldest first."""
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    return sorted(ready, key=lambda member: member.age)


def _newcomers(view: View) -> list[Member]:
    inside = {member.id for member in view.generation.members} if view.generation else set()
    return [member for member in _asking(view) if member.id not in inside]


def _proposers(view: View) -> list[str]:
    """Who may propose the next generation, in the order of their turns."""
    if view.generation is None or is_broken(view):
        return [member.id for member in _asking(view)] or _leavers(view)
    living = [view.member(member.id) for member in view.generation.members]
    inside = sorted((member for member in living if member), key=lambda member: member.age)
    return [member.id for member in inside] + [member.id for member in _newcomers(view)]


def _leavers(view: View) -> list[str]:
    leavers = sorted((member for member in view.members if member.leaving), key=lambda member: member.age)
    return [member.id for member in leavers]


def _successor(view: View, inputs: Inputs) -> Generation:
    before = view.generation.members if view.generation else ()
    living = [view.member(member.id) for member in before]
    broken = is_broken(view)
    survivors = [
        member
        for member in living
        if member and not member.leaving and (not broken or member.ready_after >= view.number)
    ]
    members = (survivors + _newcomers(view))[: inputs.limits.max_workers]
    cause = "start" if not before else "lost" if broken else "left" if len(survivors) < len(before) else "joined"
    # Should etcd have lost its data, the members still know how far the count had come.
    number = max([view.number, *(member.ready_after for member in members)]) + 1
    return Generation(number=number, uuid=inputs.uuid, members=tuple(members), cause=cause)


def member_to_json(member: Member) -> bytes:
    """The record under ``keys.member``."""
    fields = asdict(member)
    del fields["age"]
    return json.dumps({"version": keys.MEMBER_VERSION, **fields}).encode()


def member_from_json(data: bytes, *, age: int) -> Member:
    """Raises RecordError for a version or shape this code does not know."""
    fields = _fields(data, "member", keys.MEMBER_VERSION)
    return _build(Member, {**fields, "age": age}, "member")


def generation_to_json(generation: Generation) -> bytes:
    """The record under ``keys.generation``."""
    return json.dumps({"version": keys.GENERATION_VERSION, **asdict(generation)}).encode()


def generation_from_json(data: bytes) -> Generation:
    """Raises RecordError for a version or shape this code does not know."""
    fields = _fields(data, "generation", keys.GENERATION_VERSION)
    members = fields.get("members")
    if not isinstance(members, list):
        raise RecordError("generation record: members is not a list")
    fields["members"] = tuple(_build(Member, member, "generation member") for member in members)
    return _build(Generation, fields, "generation")


def _fields(data: bytes, what: str, version: int) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise RecordError(f"{what} record is not JSON: {data[:80]!r}") from error
    found = fields.pop("version", None) if isinstance(fields, dict) else None
    if found != version:
        raise RecordError(
            f"{what} record has version {found}, this worker knows {version}: "
            "let all workers run the same code, or give the job a new name"
        )
    return dict(fields)


def _build(kind: type[T], fields: dict[str, Any], what: str) -> T:
    try:
        return kind(**fields)
    except TypeError as error:
        raise RecordError(f"{what} record: {error}") from error
