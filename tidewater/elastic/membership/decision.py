"""Which workers train together: one pure function that decides.

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
  break to give it up, and more while one after the other does, unless they are known to be dead.
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
* The first member of the generation that may be in the next one proposes it; if there is none, the oldest newcomer. If
  it does not, the next one does so after ``patience_seconds``, in a large job four times that, and so on, newcomers
  after members. Two proposals do no harm: compare-and-set accepts only one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidewater.elastic.membership.arrivals import Arrivals
from tidewater.elastic.membership.deciders import is_large
from tidewater.elastic.membership.rules import (
    Generation,
    Group,
    Limits,
    Member,
    View,
    asking,
    ids,
    is_broken,
    left_out,
    needs_change,
    newcomers_that_fit,
    silent,
)

MOST_ATTEMPTS = 6
"""Generations of the same members in a row that break without a step, before one member is left out."""
_PATIENCES_IN_A_LARGE_JOB = 4
"""After so many the next one proposes. It may hear votes later than the first, or not all of them (see ``votes``)."""
_MOST_PATIENCES = 5
"""Members that have not given up a broken generation are waited for at most so many times the patience."""


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
    heard_at: float = -math.inf
    """Monotonic time at which this process last saw that one more member has given up the current generation."""
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
    patience = inputs.limits.patience_seconds
    # While more of them give it up, those that are left have their turn yet: of a thousand it takes some seconds.
    heard_until = min(inputs.heard_at + patience / 2, inputs.changed_at + _MOST_PATIENCES * patience)
    waiting_until = max(inputs.changed_at + patience, heard_until)
    if is_broken(view) and silent(view, inputs.dead) and now < waiting_until:
        return Action(Kind.WAIT, wake_at=waiting_until)
    proposers = _proposers(view)
    if inputs.me not in proposers:
        return REST
    first_turn = max(inputs.changed_at, _all_here_at(view, inputs))
    turn_seconds = (_PATIENCES_IN_A_LARGE_JOB if is_large(view) else 1) * patience
    my_turn = first_turn + proposers.index(inputs.me) * turn_seconds
    may_at = max(my_turn, _over_at(view, inputs), inputs.changed_at + _pause_seconds(view))
    if now < may_at:
        return Action(Kind.WAIT, wake_at=may_at)
    return Action(Kind.PROPOSE, generation=_successor(view, inputs))


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
    living = [member for member in map(view.member, ids(generation.members)) if member]
    if not is_broken(view):
        # A newcomer must not replace all members on its own: leaving members have not confirmed that they stopped.
        staying = any(not member.leaving for member in living)
        return 0.0 if staying or generation.rank(inputs.me) is not None else math.inf
    # A member that already has the state of this generation has made no step in it without the others.
    latest = min(max(generation.state_of, *(member.state_of for member in living), 0), view.number - 1)
    given_up = [member for member in living if member.ready_after >= view.number]
    if any(member.state_of >= latest for member in given_up):
        return 0.0
    unheard = set(ids(generation.members)) - set(ids(given_up)) - inputs.ended - {inputs.me}
    present = set(ids(living))
    return max(
        (
            math.inf if each in present else inputs.missing_since.get(each, math.inf) + inputs.limits.takeover_seconds
            for each in unheard
        ),
        default=0.0,
    )


def _proposers(view: View) -> list[str]:
    """Return the ids of the members that may propose the next generation, in order."""
    inside = ids(view.generation.members) if view.generation else []
    if view.generation and not is_broken(view):
        return [each for each in inside if view.member(each)] + ids(newcomers_that_fit(view))
    able = dict.fromkeys(ids(asking(view)))
    return list(dict.fromkeys([*(each for each in inside if each in able), *able])) or _leavers(view)


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
    attempts, omitted = _attempts(view, together), left_out(view)
    if attempts >= MOST_ATTEMPTS:
        attempts, omitted = 0, _dispensable(together).id
        together = [member for member in together if member.id != omitted]
    members = Group(together).add(newcomers_that_fit(view))[: inputs.limits.max_workers]
    cause = "start" if not before else "lost" if broken else "left" if len(survivors) < len(before) else "joined"
    # If etcd has lost its data, the members still know the last number.
    number = max([view.number, *(member.ready_after for member in members)]) + 1
    lineage = view.generation.lineage if view.generation else f"{inputs.uuid:012x}"
    state_of = max((member.state_of for member in members), default=0)
    signature = members[0].signature if members else ""
    return Generation(number, inputs.uuid, tuple(members), cause, lineage, attempts, omitted, state_of, signature)


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
