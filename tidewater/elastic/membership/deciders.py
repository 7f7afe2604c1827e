"""Which members of a large job read what all others say, so that the others need not.

    role = Role(me.id, patience_seconds=3.0)
    role.noted(view, waited_seconds=0.0)
    if role.decides: ...                         # read everything, and follow it

In a job with few members each of them reads all records, and can propose the next generation. If a thousand did so, a
change would be thousands of records for a thousand readers. So in a larger job only the first few members of the
generation have a view of everything (``View.whole``); before there is one, the oldest members. The others read the
generation, the job's own records and what they have written themselves: their views don't grow, and change only when
the generation does. Of a new one they read only what it changes (see ``propose``). What a member says about itself
(``ready_after``, ``state_of``, ``unreachable``, ``fruitful``) is its *vote*, which is sent to those that decide (see
``votes``). A member that decides and finds the generation broken records that once, for all, and a key that is bound to
its lease shows that it decides.

The first members of a generation take their part when they find themselves there. If those that decide don't propose,
because their processes have ended or hang, those that wait for the next generation step in: the next ones at once if
those before them have ended or have no record in etcd, and otherwise some more with each ``patience_seconds``. If the
keys of all that decide are gone, all members wait. More than needed do no harm: each decides in its turn, and
compare-and-set accepts one. What a member says about itself is never taken back within a generation, so one that has
not read the last votes may only wait too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from tidewater.contract import keys
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.client import Store
from tidewater.elastic.etcd.ranges import MOST_KEYS
from tidewater.elastic.membership import records
from tidewater.elastic.membership.rules import Broken, Generation, Member, Seat, View, first_lost, waits

MOST_WITHOUT = 32
"""In a job with at most so many members each of them decides."""
DECIDERS = 3
_ASK_SECONDS, _RANKS_IN_AN_INTERVAL = 0.5, 32
"""The next ones of a broken generation look first, so that not all ask the same few at the same time."""
_LONGEST_ASK_SECONDS, _MEMBERS_IN_A_PATIENCE = 10.0, 256
_REST_SECONDS_OF_EACH = 1e-4
_FIRST_READ = 8
"""Members that are looked up in etcd with the first request; the next ones ask for twice as many each."""


def size(view: View) -> int:
    """Return how many members live or are in the generation: after a loss all views must agree whether it is large."""
    inside = len(view.generation.members) if view.generation else 0
    return max(len(view.members) if view.whole else view.count, inside)


def is_large(view: View) -> bool:
    """Return whether only some of the members decide."""
    return size(view) > MOST_WITHOUT


def rest_seconds(members: int) -> float:
    """Return how long to wait for further changes before a view of so many is made: that takes time for each of them,
    so changes that come shortly after one another are one."""
    return max(0, members - MOST_WITHOUT) * _REST_SECONDS_OF_EACH


def chosen(view: View, dead: frozenset[str], waited_seconds: float, patience_seconds: float) -> list[Member]:
    """Return the members that decide: the first of the generation that live, or if none does, the oldest.

    Args:
        view: What this process knows: a whole view.
        dead: Ids of members that are known to have ended.
        waited_seconds: For how long this process has waited for the next generation.
        patience_seconds: After which others decide, too.
    """
    inside = [view.member(member.id) for member in view.generation.members] if view.generation else []
    living = [each for each in inside if each and each.id not in dead]
    number = _number(waited_seconds, patience_seconds)
    others = (each for each in view.members if each.id not in dead)
    return living[:number] or nsmallest(number, others, key=lambda each: each.age)


def unrecorded_break(view: View) -> Broken | None:
    """Return what a member that decides must record for those that don't: the break of a large job's generation."""
    found = first_lost(view) if is_large(view) else None
    return None if view.broken and view.broken.number >= view.number else found


def propose(store: Store, job: str, view: View, generation: Generation) -> bool:
    """Write the generation that follows that of the view, unless another one does already: then return False. Raise
    StoreError.

    In a job that is large, or was so when a generation before was written, those that don't decide read of it only
    what it changes.
    """
    changes = is_large(view) or view.changes
    change = (keys.change(job), records.change_to_json(view.generation, generation)) if changes else None
    whole = records.generation_to_json(generation)
    return store.put_if(keys.generation(job), whole, view.generation_revision, also=change)


def _recorded(seats: Sequence[Seat], elders: Elders) -> Iterator[Seat]:
    """Yield those that have a record. Of those in front, few are looked up at once: mostly they suffice."""
    start, width = 0, _FIRST_READ
    while start < len(seats):
        yield from elders.recorded(seats[start : start + width])
        start, width = start + width, min(2 * width, MOST_KEYS)


def _situation(view: View) -> tuple[int, bool]:
    return view.number, bool(view.deciding)


def _number(waited_seconds: float, patience_seconds: float) -> int:
    return DECIDERS * (1 + max(int(waited_seconds / patience_seconds), 0))


@dataclass(frozen=True)
class Elders:
    """How a member finds out whether those before it decide. Both take time."""

    is_dead: Callable[[Seat], bool]
    """Returns whether a process has ended."""
    recorded: Callable[[Sequence[Seat]], Iterable[Seat]]
    """Returns those of these members that have a record in etcd, in the same order. Raises StoreError."""
    oldest: Callable[[int], Iterable[Seat]]
    """Returns the oldest so many members that have a record in etcd, oldest first. Raises StoreError."""
    grace_seconds: float
    """For how long a member without a record that answers may come back: see ``suspects``."""


class Shown:
    """What a member that decides writes for those that don't: the break of a generation, and that it decides."""

    def __init__(self, store: Store, job: str, me: str) -> None:
        self._store, self._job, self._key = store, job, keys.deciding(job, me)
        self._lease = 0
        """With which the key was written that shows that it decides; 0 if it was not."""

    def write(self, view: View, lease: int) -> bool:
        """Write what has changed. Return False if that must be tried again, because etcd doesn't answer.

        Args:
            view: What this member knows.
            lease: Its lease; 0 if it doesn't decide.
        """
        try:
            self._show(lease if view.whole and is_large(view) else 0)
            broken = unrecorded_break(view) if view.whole else None
            if broken:  # no newer one is replaced
                self._store.put_if(keys.broken(self._job), records.broken_to_json(broken), view.broken_revision)
        except StoreError:
            return False
        return True

    def _show(self, lease: int) -> None:
        if lease == self._lease:
            return
        if lease:
            self._store.put(self._key, b"", lease)
        else:
            self._store.delete(self._key)
        self._lease = lease


class Role:
    """Whether one member decides. ``steps_in`` and the other methods may run in two threads.

    Args:
        me: Its id.
        patience_seconds: See ``chosen``.
    """

    def __init__(self, me: str, patience_seconds: float) -> None:
        self.me, self._patience_seconds = me, patience_seconds
        self._dead: tuple[int, frozenset[str]] = (-1, frozenset())
        """A generation's number, and ids of members that were found dead in it."""
        self._declined = self._stepped_in = -1
        """Number of the last generation in which others decided, and in which it has stepped in."""
        self._asks: tuple[tuple[int, bool], int, float] = ((-1, False), 0, 0.0)
        """A generation's number and whether any member decides; how often this one has asked then for those before it,
        and when it does so next."""
        self.decides = False
        """Whether it must have a whole view, and may propose."""

    def noted(self, view: View, waited_seconds: float) -> None:
        """Take note of a change. See ``chosen``."""
        self.decides = not is_large(view) or (
            self._is_chosen(view, waited_seconds) if view.whole else self._may_be_chosen(view)
        )

    def _is_chosen(self, view: View, waited_seconds: float) -> bool:
        found = chosen(view, self._known_dead(view), waited_seconds, self._patience_seconds)
        is_chosen = any(each.id == self.me for each in found)
        if not is_chosen:
            self._declined, self._stepped_in = view.number, -1
        return is_chosen

    def _may_be_chosen(self, view: View) -> bool:
        inside = view.generation.members if view.generation else ()
        first = inside if len(inside) <= MOST_WITHOUT else inside[:DECIDERS]
        is_first = self._declined != view.number and any(each.id == self.me for each in first)
        return self._stepped_in == view.number or is_first

    def asks_at(self, view: View, since: float) -> float:
        """Return the monotonic time at which this member must ask for those that decide; infinity if it need not.

        Args:
            view: What it knows.
            since: Since when it waits for the next generation.
        """
        if view.whole or not waits(view, self.me):
            return math.inf
        asked_for, _, at = self._asks
        return at if asked_for == _situation(view) else since + self._pause_seconds(view, 0)

    def steps_in(self, view: View, elders: Elders, now: float, since: float) -> bool:
        """Return whether it decides from now on, because those that do are gone or let it wait. Raise StoreError."""
        asked_for, times, _ = self._asks
        times = 1 + (times if asked_for == _situation(view) else 0)
        self._asks = (_situation(view), times, now + self._pause_seconds(view, times))
        waited, dead = now - since, set(self._known_dead(view))
        # If none decides, etcd was away: all write their records again at the same time.
        left = _number(waited if view.deciding else waited - elders.grace_seconds, self._patience_seconds)
        for each in self._before(view, elders, waited, left + len(dead) + 1):
            if each.id == self.me:
                self._stepped_in = view.number
                break
            if each.id not in dead:
                if elders.is_dead(each):
                    dead.add(each.id)
                else:
                    left -= 1
            if not left:
                break
        self._dead = (view.number, frozenset(dead))
        return self._stepped_in == view.number

    def _before(self, view: View, elders: Elders, waited_seconds: float, number: int) -> Iterable[Seat]:
        """Return members in the order in which they decide (see ``chosen``), this one among them."""
        if view.generation is None or self._rank(view) is None:
            # All of the generation may be gone: a newcomer would look for each of them in vain.
            return elders.oldest(number)
        inside = view.generation.members
        return inside if waited_seconds < elders.grace_seconds else _recorded(inside, elders)

    def _pause_seconds(self, view: View, times: int) -> float:
        rank = self._rank(view)
        if rank is not None:
            return _ASK_SECONDS * (1 + rank / _RANKS_IN_AN_INTERVAL)
        some = self._patience_seconds * max(1.0, size(view) / _MEMBERS_IN_A_PATIENCE)
        return min((some if view.deciding else _ASK_SECONDS) * 2.0 ** min(times, 10), _LONGEST_ASK_SECONDS)

    def _rank(self, view: View) -> int | None:
        return view.generation.rank(self.me) if view.generation else None

    def _known_dead(self, view: View) -> frozenset[str]:
        number, dead = self._dead
        return dead if number == view.number else frozenset()
