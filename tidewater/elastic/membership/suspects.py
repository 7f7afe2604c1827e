"""Members of the current generation that have no record in etcd: dead, or only unreachable for etcd.

    missing = noted(missing, view, last, now)           # after each change in etcd
    missing = heard(missing, {"w-1-3c": Sign.ENDED})    # after each ping of their processes
    view = excused(view, missing, grace_seconds, now)

When etcd has been unavailable for longer than a lease, all records are missing for a moment although no worker is lost.
So a record that disappears stays in the view while its process answers pings, for a fifth of a lease or more. In this
time each worker writes its record again. This is safe: it only delays the next generation, and no step is final without
the gradients of all members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from tidewater.elastic.membership.rules import Member, Seat, View, is_broken, silent

_MOST_AT_ONCE, _ALONE_SECONDS = 64, 0.005
"""Pings, and for how long they are made one after another: one takes a fraction of a millisecond if there is a process,
or has been, and a thread takes longer. One of a machine that is gone takes as long as a connection may."""
_QUIET_SECONDS = 0.25
"""More silent members than that are asked after such a pause: most have not had the time to give the generation up."""

Answer = TypeVar("Answer")


class Sign(Enum):
    """The result of a ping."""

    ANSWERS = "answers"
    SILENT = "silent"
    """No answer: the process may be dead, frozen or cut off."""
    ENDED = "ended"
    """The process has certainly ended: nothing, or another process, listens at its port."""


@dataclass(frozen=True)
class Missing:
    """What is known of the missing members of generation ``number``, by member id."""

    number: int = 0
    since: Mapping[str, float] = field(default_factory=dict)
    """Monotonic time since which a record is missing."""
    records: Mapping[str, Member] = field(default_factory=dict)
    """The last content of each missing record that this process has seen."""
    signs: Mapping[str, Sign] = field(default_factory=dict)
    """The result of the last ping of each process."""

    @property
    def ended(self) -> frozenset[str]:
        """Ids of members that have certainly ended."""
        return frozenset(member_id for member_id, sign in self.signs.items() if sign is Sign.ENDED)


def members_of(view: View) -> tuple[Seat, ...]:
    """Return the current generation's members that have no record, as far as this process knows."""
    members = view.generation.members if view.generation and view.whole else ()
    return tuple(member for member in members if view.member(member.id) is None)


def unheard(view: View) -> tuple[Seat, ...]:
    """Return the members to ping: those without a record, and those that have not given up a broken generation."""
    missing = members_of(view)
    return (*missing, *silent(view)) if view.whole and (missing or is_broken(view)) else ()


def asked(members: Sequence[Seat], ask: Callable[[Seat], Answer]) -> dict[str, Answer]:
    """Ask members, and once that takes long, the others at the same time; return the results by their ids."""
    answers, until = dict[str, Answer](), time.monotonic() + _ALONE_SECONDS
    for member in members:
        if time.monotonic() > until:
            break
        answers[member.id] = ask(member)
    if left := members[len(answers) :]:
        with ThreadPoolExecutor(min(len(left), _MOST_AT_ONCE), "ask") as pool:
            answers |= zip((member.id for member in left), pool.map(ask, left), strict=True)
    return answers


class Roll:
    """Asks the silent members of a broken generation whether they are dead; of many, some in each turn."""

    def __init__(self) -> None:
        self._number, self._start = -1, 0
        """Of the generation, and from which of its members on the next turn is."""
        self._dead: frozenset[str] = frozenset()

    def dead(self, view: View, heard_at: float, is_dead: Callable[[Seat], bool], now: float) -> frozenset[str]:
        """Take a turn. Return the ids of all members that were dead when they were asked last.

        Args:
            view: The current one.
            heard_at: When a member has given up the generation last.
            is_dead: Takes time.
            now: Like ``heard_at`` monotonic.
        """
        if view.number != self._number:
            self._number, self._start, self._dead = view.number, 0, frozenset()
        members = silent(view)
        if len(members) > _MOST_AT_ONCE and now < heard_at + _QUIET_SECONDS:
            return self._dead
        ranks = {member.id: rank for rank, member in enumerate(view.generation.members if view.generation else ())}
        members.sort(key=lambda each: (ranks[each.id] < self._start, ranks[each.id]))
        answers = asked(members[:_MOST_AT_ONCE], is_dead)
        self._start = ranks[members[: len(answers)][-1].id] + 1 if answers else 0
        self._dead = self._dead - answers.keys() | {member_id for member_id, dead in answers.items() if dead}
        return self._dead


def noted(before: Missing, view: View, last: View, now: float) -> Missing:
    """Return the missing members of ``view``: newly missing ones since ``now``, with their records from ``last``."""
    known = before if before.number == view.number else Missing()
    gone = members_of(view)
    since = {member.id: known.since.get(member.id, now) for member in gone}
    last_seen = {member.id: known.records.get(member.id) or last.member(member.id) for member in gone}
    records = {member_id: record for member_id, record in last_seen.items() if record}
    return Missing(view.number, since, records, known.signs)


def heard(before: Missing, signs: Mapping[str, Sign]) -> Missing:
    """Return ``missing`` with newer ``signs``. A process that has ended stays ended."""
    return replace(before, signs={**before.signs, **signs, **dict.fromkeys(before.ended, Sign.ENDED)})


def excused(view: View, missing: Missing, grace_seconds: float, now: float) -> View:
    """Return the view of etcd, plus the last records of members that have grace. Members that were leaving have none.

    A member that has not been pinged yet counts as answering.
    """
    kept = [
        member
        for member in missing.records.values()
        if now < missing.since[member.id] + grace_seconds
        and missing.signs.get(member.id, Sign.ANSWERS) is Sign.ANSWERS
        and not member.leaving
    ]
    return replace(view, members=(*view.members, *kept)) if kept else view
