"""Which members of a large job read what all others say, so that the others need not.

    role = Role(me.id, patience_seconds=3.0)
    role.noted(view, waited_seconds=0.0)
    if role.decides: ...                         # read the votes, too

In a job with few members each of them reads all records, and can propose the next generation. If a thousand did so, a
loss would be two thousand records for a thousand readers. So in a larger job only the oldest few members of the
generation read the *votes*: what each member says about itself (``ready_after``, ``state_of``, ``unreachable``,
``fruitful``). The others know who lives and the generation. A member that decides and finds the generation broken
records that once, for all. Its own records are for all, too.

If those that decide don't propose, because their processes have ended or hang, the next oldest ones join them: at once
for those that are known to be dead, and otherwise some more with each ``patience_seconds``. What a member says about
itself is never taken back within a generation. So one that has not read the last votes may only wait too long.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest

from tidewater.elastic.membership.rules import Broken, Member, View, first_lost

MOST_WITHOUT = 32
"""In a job with at most so many members each of them decides."""
DECIDERS = 3
_ASK_SECONDS, _MEMBERS_IN_AN_INTERVAL = 0.5, 256


def is_large(view: View) -> bool:
    """Return whether only some of the members decide."""
    return len(view.members) > MOST_WITHOUT


def candidates(view: View) -> list[Member]:
    """Return the members of the generation that live; if there are none, all that live."""
    inside = [view.member(member.id) for member in view.generation.members] if view.generation else []
    return [member for member in inside if member] or list(view.members)


def oldest(view: View, dead: frozenset[str], waited_seconds: float, patience_seconds: float) -> list[Member]:
    """Return the members that decide, oldest first.

    Args:
        view: What this process knows.
        dead: Ids of members that are known to have ended.
        waited_seconds: For how long this process has waited for the next generation.
        patience_seconds: After which others decide, too.
    """
    number = DECIDERS * (1 + int(waited_seconds / patience_seconds))
    living = [member for member in candidates(view) if member.id not in dead]
    living = living or [member for member in view.members if member.id not in dead]
    return nsmallest(number, living, key=lambda member: member.age)


def unrecorded_break(view: View) -> Broken | None:
    """Return what a member that decides must record for those that don't: the break of a large job's generation."""
    worker = first_lost(view)
    if worker is None or not is_large(view) or (view.broken and view.broken.number >= view.number):
        return None
    return Broken(view.number, worker)


def ask_seconds(view: View) -> float:
    """Return the time between two looks of a member that doesn't decide at those that do."""
    return _ASK_SECONDS * max(1.0, len(view.members) / _MEMBERS_IN_AN_INTERVAL)


class Role:
    """Whether one member decides. Not safe for several threads, but for ``decides``.

    Args:
        me: Its id.
        patience_seconds: See ``oldest``.
    """

    def __init__(self, me: str, patience_seconds: float) -> None:
        self._me, self._patience_seconds = me, patience_seconds
        self._dead: tuple[int, frozenset[str]] = (0, frozenset())
        """A generation's number, and ids of members that were found dead in it."""
        self._asked_at = 0.0
        self.decides = True
        """Whether it reads the votes, and may propose."""

    def noted(self, view: View, waited_seconds: float) -> None:
        """Take note of a change. See ``oldest``."""
        self.decides = not is_large(view) or any(
            each.id == self._me for each in oldest(view, self._known_dead(view), waited_seconds, self._patience_seconds)
        )

    def steps_in(self, view: View, is_dead: Callable[[Member], bool], now: float, changed_at: float) -> bool:
        """Return whether it decides from now on, because those that do are dead or let it wait.

        Args:
            view: What it knows.
            is_dead: Returns whether a process has ended. Takes time, so it is called now and then.
            now: Monotonic time.
            changed_at: Since when it waits for the next generation.
        """
        me = view.member(self._me)
        if me is None or me.ready_after < view.number or now < max(self._asked_at, changed_at) + ask_seconds(view):
            return False
        self._asked_at, dead = now, set(self._known_dead(view))
        self.noted(view, now - changed_at)
        for member in sorted(candidates(view), key=lambda each: each.age):
            if self.decides or (member.id not in dead and not is_dead(member)):
                break
            dead.add(member.id)
            self._dead = (view.number, frozenset(dead))
            self.noted(view, now - changed_at)
        return self.decides

    def _known_dead(self, view: View) -> frozenset[str]:
        number, dead = self._dead
        return dead if number == view.number else frozenset()
