"""Which workers train together: frozen records, and one pure function that decides.

    action = decide(view, Inputs(me="w-0-1f", limits=Limits(1, 8)), now=time.monotonic())
    if action.kind is Kind.PROPOSE: ...   # compare-and-set action.generation on the generation record

The rules, in full:

* A *member* is one process, not one pod: a restarted pod is a new member. Its record exists as long as its lease.
* A *generation* is a numbered list of members, in rank order. Only compare-and-set changes it, so there is one
  sequence of generations, whichever member proposes.
* ``ready_after`` in a member's record says: "I am in no process group of a generation up to this number; put me into a
  later one". A newcomer writes it when it is prepared. A member of generation g that writes ``ready_after=g`` has given
  up g, because a peer failed. Both request a place in generation g+1.
* A generation is broken when one of its members has given it up or lost its record. The next one consists of the
  members that gave it up (they are alive and wait) and of newcomers. Other members get ``patience_seconds`` after the
  break to give it up, unless they are known to be dead.
* A generation that is not broken changes when a member leaves or there is room for a newcomer. Its members continue
  training until all of them know of the next one, and switch at the same step.
* Newcomers that announce themselves shortly after one another are admitted together: see ``arrivals``.
* Survivors keep their order, newcomers follow by age, and a generation has at most ``max_workers`` members.
* A newcomer is admitted only if it has the signature of the job: that of the current generation while one of its
  members lives, otherwise that of the oldest member that is ready.
* Members that could not reach each other when a generation broke are not put into the next one together. The largest
  group of survivors that reach each other continues. The others wait in line until they can reach it.
* A broken generation has ended when a member that has its state has given it up, because no step is final without the
  gradients of all its members. If no candidate for the next generation has the state, the members that have it may
  still be training, frozen or cut off. Then the next generation waits until their processes have certainly ended, or
  have been without a lease for so long (``takeover_seconds``) that they have stopped by themselves
  (``Coordinator.in_touch``). So two generations never both make steps final.
* If all members of a generation survive its break, and none of them has made a step in it, the next attempt will
  probably break in the same way. After MOST_ATTEMPTS such generations in a row the youngest member is left out for
  good (its process ends), so that the others train. If they would lack the state, the next youngest is left out.
* All generations have the lineage of the first one. If etcd loses its data, the next generation begins a new lineage.
* The oldest member that may be in the next generation proposes it. If it does not, the second oldest does so after
  ``patience_seconds``, and so on. Two proposals do no harm: compare-and-set accepts only one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidewater.elastic.addresses import Address
from tidewater.elastic.membership.arrivals import Arrivals
from tidewater.elastic.membership.reach import Group

MOST_ATTEMPTS = 6
"""Generations of the same members in a row that break without a step, before one member is left out."""


@dataclass(frozen=True)
class Member:
    """One worker process, as in its record."""

    id: str
    worker: str
    host: str
    peer_port: int
    """TCP port of its peer server, for pings, state, and the rendezvous of generations in which it has rank 0."""
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

    @property
    def address(self) -> Address:
        """Address of its peer server."""
        return Address(self.host, self.peer_port, self.id)


@dataclass(frozen=True)
class Generation:
    """The members that train together, in rank order."""

    number: int
    uuid: int
    """Unique for every generation; names the process group."""
    members: tuple[Member, ...]
    cause: str
    """Why it replaced the one before: ``start``, ``joined``, ``left`` or ``lost``."""
    lineage: str = ""
    """Random name of the sequence of generations that this one belongs to. If etcd loses its data, a new one begins."""
    attempts: int = 0
    """Number of generations of the same members right before it that broke without a step."""
    left_out: str = ""
    """Id of the member that was left out because of such attempts."""

    def rank(self, member_id: str) -> int | None:
        """Return the rank of a member, or None if it is not in this generation."""
        return next((rank for rank, member in enumerate(self.members) if member.id == member_id), None)


@dataclass(frozen=True)
class Saved:
    """The last checkpoint that was written."""

    step: int
    """0 if training has begun again since, without a checkpoint."""
    where: str
    """The places that have it."""


@dataclass(frozen=True)
class View:
    """The records of one job in etcd, at one revision."""

    generation: Generation | None = None
    generation_revision: int = 0
    """Mod revision of the generation record: the fencing token of the next proposal; 0 means there is none."""
    members: tuple[Member, ...] = ()
    saved: Saved | None = None
    finished: str = ""
    """The record of the job's end, in JSON; empty while the job runs."""

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


@dataclass(frozen=True)
class Inputs:
    """What a process knows in addition to the view."""

    me: str
    limits: Limits
    uuid: int = 0
    """A unique number for a generation that this process may propose."""
    dead: frozenset[str] = frozenset()
    """Members that are known to have ended although their lease is still valid."""
    changed_at: float = 0.0
    """Monotonic time at which this process first saw that the current generation needs a successor."""
    ended: frozenset[str] = frozenset()
    """Members of the current generation that have certainly ended."""
    missing_since: Mapping[str, float] = field(default_factory=dict)
    """Monotonic time since which a member of the current generation has no record in etcd."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """The newcomers that this process has seen."""


class Kind(Enum):
    """What a process must do about the membership."""

    REST = "rest"
    PROPOSE = "propose"
    WAIT = "wait"


@dataclass(frozen=True)
class Action:
    """``PROPOSE`` has a generation, ``WAIT`` the monotonic time at which to decide again."""

    kind: Kind
    generation: Generation | None = None
    wake_at: float | None = None


REST = Action(Kind.REST)


def decide(view: View, inputs: Inputs, now: float) -> Action:
    """Return what ``inputs.me`` must do about the membership. Total and without side effects."""
    if view.finished or not needs_change(view, inputs.limits):
        return REST
    waiting_until = inputs.changed_at + inputs.limits.patience_seconds
    if is_broken(view) and silent(view, inputs.dead) and now < waiting_until:
        return Action(Kind.WAIT, wake_at=waiting_until)
    proposers = _proposers(view)
    if inputs.me not in proposers:
        return REST
    first_turn = max(inputs.changed_at, _all_here_at(view, inputs))
    my_turn = first_turn + proposers.index(inputs.me) * inputs.limits.patience_seconds
    may_at = max(my_turn, _over_at(view, inputs), inputs.changed_at + _pause_seconds(view))
    if now < may_at:
        return Action(Kind.WAIT, wake_at=may_at)
    return Action(Kind.PROPOSE, generation=_successor(view, inputs))


def newcomers(view: View) -> list[Member]:
    """Return the members that ask for a place and have none in the current generation, oldest first."""
    inside = set(_ids(view.generation.members if view.generation else ()))
    return [member for member in _asking(view) if member.id not in inside]


def needs_change(view: View, limits: Limits) -> bool:
    """Return whether the current generation must or may be replaced."""
    if view.generation is None:
        return bool(_asking(view))
    if is_broken(view):
        return True
    present = [view.member(member.id) for member in view.generation.members]
    staying = [member for member in present if member and not member.leaving]
    room = limits.max_workers - len(staying)
    return len(staying) < len(present) or (room > 0 and bool(_newcomers(view)))


def is_broken(view: View) -> bool:
    """Return whether a member of the current generation has given up the generation or lost its record."""
    return bool(view.generation) and any(
        living is None or living.ready_after >= view.number
        for living in (view.member(member.id) for member in (view.generation.members if view.generation else ()))
    )


def lost_members(view: View, generation: Generation, me: str) -> list[str]:
    """Return the names of the other members of ``generation`` that can make no further step in it.

    A member that a newer generation omits does not count: it left as planned.
    """
    newer = view.generation if view.number > generation.number else None
    expected = [
        member for member in generation.members if member.id != me and not (newer and newer.rank(member.id) is None)
    ]
    living = [(member, view.member(member.id)) for member in expected]
    return [member.worker for member, now in living if now is None or now.ready_after >= generation.number]


def has_heirs(view: View, generation: Generation) -> bool:
    """Return whether a member of the current generation has the final state of ``generation`` or a later one."""
    living = [(member, view.member(member.id)) for member in (view.generation.members if view.generation else ())]
    return any(
        generation.rank(member.id) is not None or (now is not None and now.state_of > generation.number)
        for member, now in living
    )


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


def _pause_seconds(view: View) -> float:
    """Return the pause before the next attempt of members with which others have failed: half a second, then twice
    as long each time. A short disturbance of the network must not look like a worker that can't sum."""
    attempts = view.generation.attempts if view.generation and is_broken(view) else 0
    return 2.0 ** (attempts - 2) if attempts else 0.0


def _all_here_at(view: View, inputs: Inputs) -> float:
    """Return the monotonic time until which a proposal waits for more newcomers. The first after a loss don't wait."""
    growing = view.generation is None or (view.generation.cause in ("start", "joined") and not is_broken(view))
    if not growing or any(member.leaving for member in view.members):
        return 0.0
    return inputs.arrivals.over_at(len(view.members))


def _over_at(view: View, inputs: Inputs) -> float:
    """Return the monotonic time from which the current generation certainly makes no further step final."""
    generation = view.generation
    if generation is None or not generation.members:
        return 0.0
    living = [member for member in map(view.member, _ids(generation.members)) if member]
    if not is_broken(view):
        # A newcomer must not replace all members on its own: leaving members have not confirmed that they stopped.
        staying = any(not member.leaving for member in living)
        return 0.0 if staying or generation.rank(inputs.me) is not None else math.inf
    # A member that already has the state of this generation has made no step in it without the others.
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


def _left_out(view: View) -> str:
    """Return the id of the member that was left out for good, while its process has not ended yet."""
    left_out = view.generation.left_out if view.generation else ""
    return left_out if view.member(left_out) else ""


def _asking(view: View) -> list[Member]:
    """Return the living members that are ready for the next generation and have its signature, oldest first."""
    known = reference(view)
    kind, left_out = known.signature if known else "", _left_out(view)
    ready = [member for member in view.members if member.ready_after >= view.number and not member.leaving]
    ready = [member for member in ready if member.id != left_out]
    return sorted((member for member in ready if member.signature == kind), key=lambda member: member.age)


def _newcomers(view: View) -> list[Member]:
    """Return the newcomers that may be added, oldest first. They must reach all members of an unbroken generation."""
    new = newcomers(view)
    if not new or view.generation is None or is_broken(view):
        return new
    group = Group(filter(None, map(view.member, _ids(view.generation.members))))
    return [member for member in new if group.reaches(member)]


def _largest_group(survivors: list[Member]) -> list[Member]:
    """Return the largest group of survivors that reach each other, if possible with the state; in rank order."""
    latest = max((member.state_of for member in survivors), default=0)
    if len(Group(survivors[:1]).add(survivors)) == len(survivors):
        return survivors
    groups = [Group([member]).add(survivors) for member in survivors]
    best = max(groups, key=lambda group: (any(each.state_of >= latest for each in group), len(group)), default=[])
    return [member for member in survivors if member in best]


def _attempts(view: View, survivors: list[Member]) -> int:
    """Return how many generations of these members have broken in a row without a step and without a loss."""
    before = view.generation
    if before is None or not is_broken(view) or len(survivors) < len(before.members):
        return 0
    return 0 if any(member.fruitful >= view.number for member in survivors) else before.attempts + 1


def _dispensable(members: list[Member]) -> Member:
    """Return the youngest member that the others don't need for the state; the only one of a group of one."""
    youngest_first = sorted(members, key=lambda member: member.age, reverse=True)
    latest = max(member.state_of for member in members)
    holders = [member for member in members if member.state_of == latest]
    return next((member for member in youngest_first if holders != [member]), youngest_first[0])


def _proposers(view: View) -> list[str]:
    """Return the ids of the members that may propose the next generation, in order."""
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
    attempts, left_out = _attempts(view, together), _left_out(view)
    if attempts >= MOST_ATTEMPTS:
        attempts, left_out = 0, _dispensable(together).id
        together = [member for member in together if member.id != left_out]
    members = Group(together).add(_newcomers(view))[: inputs.limits.max_workers]
    cause = "start" if not before else "lost" if broken else "left" if len(survivors) < len(before) else "joined"
    # If etcd has lost its data, the members still know the last number.
    number = max([view.number, *(member.ready_after for member in members)]) + 1
    lineage = view.generation.lineage if view.generation else f"{inputs.uuid:012x}"
    return Generation(number, inputs.uuid, tuple(members), cause, lineage, attempts, left_out)
