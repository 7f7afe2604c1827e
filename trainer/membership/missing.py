"""Members of the current generation that have no record in etcd: gone, or only out of touch.

    missing = noted(missing, view, last, now)           # whenever etcd's content has changed
    missing = heard(missing, {"w-1-3c": Sign.ENDED})    # whenever their processes were asked
    view = excused(view, missing, grace_seconds, now)

When etcd has been away for longer than a lease, all records are missing for a moment although nobody is lost. So a
record that vanishes is kept in the view while its process answers pings, for one round of renewals, in which
everybody writes its own again. Safe, since it only delays the next generation, and no step is final without the
gradients of all members of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from trainer.membership.rules import Member, View, is_broken, silent


class Sign(Enum):
    """What came of a ping."""

    ANSWERS = "answers"
    SILENT = "silent"
    """Dead, frozen, or cut off from here: nobody can tell."""
    ENDED = "ended"
    """The process is certainly gone: nothing listens where it did, or somebody else does."""


@dataclass(frozen=True)
class Missing:
    """Of the members of generation ``number``, by id."""

    number: int = 0
    since: Mapping[str, float] = field(default_factory=dict)
    """Monotonic time since which a record is missing."""
    records: Mapping[str, Member] = field(default_factory=dict)
    """What a missing record said last."""
    signs: Mapping[str, Sign] = field(default_factory=dict)
    """The last sign of a process that was asked for one."""

    @property
    def ended(self) -> frozenset[str]:
        """Whose process is certainly gone."""
        return frozenset(member_id for member_id, sign in self.signs.items() if sign is Sign.ENDED)


def members_of(view: View) -> tuple[Member, ...]:
    """The current generation's members that have no record."""
    members = view.generation.members if view.generation else ()
    return tuple(member for member in members if view.member(member.id) is None)


def unheard(view: View) -> tuple[Member, ...]:
    """The members whose process should be asked: they have no record, or have not given a broken generation up."""
    missing = members_of(view)
    return (*missing, *silent(view)) if missing or is_broken(view) else ()


def noted(before: Missing, view: View, last: View, now: float) -> Missing:
    """What is known of those that are still missing, and that others, as in ``last``, are missing since ``now``."""
    known = before if before.number == view.number else Missing()
    gone = members_of(view)
    since = {member.id: known.since.get(member.id, now) for member in gone}
    records = {member.id: known.records.get(member.id) or last.member(member.id) or member for member in gone}
    return Missing(view.number, since, records, known.signs)


def heard(before: Missing, signs: Mapping[str, Sign]) -> Missing:
    """With the newer ``signs``. Who has ended does not come back."""
    return replace(before, signs={**before.signs, **signs, **dict.fromkeys(before.ended, Sign.ENDED)})


def excused(view: View, missing: Missing, grace_seconds: float, now: float) -> View:
    """What etcd holds, with the last records of those that have grace. Who was about to leave has none.

    Who has not been asked yet counts as answering.
    """
    kept = [
        member
        for member in missing.records.values()
        if now < missing.since[member.id] + grace_seconds
        and missing.signs.get(member.id, Sign.ANSWERS) is Sign.ANSWERS
        and not member.leaving
    ]
    return replace(view, members=(*view.members, *kept))
