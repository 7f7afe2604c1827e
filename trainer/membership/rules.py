"""Who trains together: frozen records, and one pure function that decides.

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
* A newcomer whose signature is not the job's is never taken in. The job's is that of the current generation while one
  of its members lives, else that of the oldest member that stands ready.
* Who could not reach each other when a generation broke are not put into the next one together: the largest group of
  survivors that can goes on, the others wait in line until they get through.
* A broken generation is over once somebody who has its state has given it up, since no step is final without the
  gradients of all its members. If nobody who asks for the next one has the state, those who have may go on unseen,
  frozen or cut off. Then the next one has to wait until they have certainly ended, or have been without a lease for
  so long (``takeover_seconds``) that they have stopped by themselves (``Coordinator.in_touch``): two generations never
  both make steps final.
* The one to propose is the oldest that may be in the next generation; should it be stuck, the second oldest does
  so after ``patience_seconds``, and so on. Two proposals do no harm: compare-and-set lets one through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


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
    state_of: int = 0
    """Number of the last generation in which it has got, or had, the job's state; 0: never."""
    unreachable: tuple[str, ...] = ()
    """Ids of members that do not answer its pings."""
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
    takeover_seconds: float = 40.0
    """So long after a member's record has vanished it has certainly stopped by itself."""


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
    ended: frozenset[str] = frozenset()
    """Members of the current generation whose process has certainly ended."""
    missing_since: Mapping[str, float] = field(default_factory=dict)
    """Monotonic time since which etcd has no record of a member of the current generation."""


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
    proposers = _proposers(view)
    if inputs.me not in proposers:
        return REST
    my_turn = inputs.changed_at + proposers.index(inputs.me) * inputs.limits.patience_seconds
    may_at = max(my_turn, _over_at(view, inputs))
    if now < may_at:
        return Action(Kind.WAIT, wake_at=may_at)
    return Action(Kind.PROPOSE, generation=_successor(view, inputs))


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


def has_heirs(view: View, generation: Generation) -> bool:
    """Whether a member of the current generation has the state that ``generation`` came to, or has gone on from it."""
    living = [(member, view.member(member.id)) for member in (view.generation.members if view.generation else ())]
    return any(
        generation.rank(member.id) is not None or (now is not None and now.state_of > generation.number)
        for member, now in living
    )


def reference(view: View) -> Member | None:
    """The member whose signature is the job's: who has another one is not taken in. None if nobody is there."""
    for member in view.generation.members if view.generation else ():
        living = view.member(member.id)
        if living:
            return living
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    return min(ready, key=lambda member: member.age, default=None)


def silent(view: View, dead: frozenset[str] = frozenset()) -> list[Member]:
    """Members of a broken generation that are not known to be gone and have not given it up yet."""
    members = view.generation.members if view.generation else ()
    living = [view.member(member.id) for member in members]
    return [member for member in living if member and member.ready_after < view.number and member.id not in dead]


def _over_at(view: View, inputs: Inputs) -> float:
    """Monotonic time from which another generation can't make the current one's steps final a second time."""
    generation = view.generation
    if generation is None or not generation.members:
        return 0.0
    living = [member for member in map(view.member, _ids(generation.members)) if member]
    if not is_broken(view):
        # A newcomer must not send all of them away on its own: those who leave have not said that they have stopped.
        staying = any(not member.leaving for member in living)
        return 0.0 if staying or generation.rank(inputs.me) is not None else math.inf
    # Who has come further than the others into this generation has made no step in it without them.
    latest = max(min(member.state_of, view.number - 1) for member in (*generation.members, *living))
    given_up = [member for member in living if member.ready_after >= view.number]
    if any(member.state_of >= latest for member in given_up):
        return 0.0
    unheard = set(_ids(generation.members)) - set(_ids(given_up)) - inputs.ended - {inputs.me}
    present = set(_ids(living))
    return max(
        (
            math.inf if each in present else inputs.missing_since.get(each, math.inf) + inputs.limits.takeover_seconds
            for each in unheard
        ),
        default=0.0,
    )


def _ids(members: Iterable[Member]) -> list[str]:
    return [member.id for member in members]


def _asking(view: View) -> list[Member]:
    """Living members that stand ready for a generation after the current one and are of its kind, oldest first."""
    known = reference(view)
    kind = known.signature if known else ""
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    return sorted((member for member in ready if member.signature == kind), key=lambda member: member.age)


def _newcomers(view: View) -> list[Member]:
    """Who may be added, oldest first. If the generation stands, only those who can reach all its members."""
    before = view.generation.members if view.generation else ()
    inside = [] if is_broken(view) else [member for member in map(view.member, _ids(before)) if member]
    known = set(_ids(before))
    return [member for member in _asking(view) if member.id not in known and _get_on(member, inside)]


def _get_on(member: Member, others: Iterable[Member]) -> bool:
    return not any(member.id in other.unreachable or other.id in member.unreachable for other in others)


def _reachable(first: list[Member], candidates: Iterable[Member]) -> list[Member]:
    """``first``, and of the candidates all that get on with it and with those before them."""
    group = list(first)
    for member in candidates:
        if member not in group and _get_on(member, group):
            group.append(member)
    return group


def _largest_group(survivors: list[Member]) -> list[Member]:
    """The most survivors that can reach each other, with the state if anybody has it; in rank order."""
    latest = max((member.state_of for member in survivors), default=0)
    groups = [_reachable([member], survivors) for member in survivors]
    best = max(groups, key=lambda group: (any(each.state_of >= latest for each in group), len(group)), default=[])
    return [member for member in survivors if member in best]


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
    together = _largest_group(survivors) if broken else survivors
    members = _reachable(together, _newcomers(view))[: inputs.limits.max_workers]
    cause = "start" if not before else "lost" if broken else "left" if len(survivors) < len(before) else "joined"
    # Should etcd have lost its data, the members still know how far the count had come.
    number = max([view.number, *(member.ready_after for member in members)]) + 1
    return Generation(number=number, uuid=inputs.uuid, members=tuple(members), cause=cause)
