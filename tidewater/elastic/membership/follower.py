"""Follows a job's records in etcd: reads them once, then their changes.

    follower = Follower(store, "digits", role, update=apply, away=lasting)
    follower.run(clock)                       # in a thread, until stop()
    follower.again()                          # read everything again

A process that decides reads everything; another one the records of the job and its own (see ``deciders``), and the
number of members. In a large job the record of the generation has some tens of bytes for each member. So once there is
a record of its last change, that one is followed instead, and the whole one is read only if a change doesn't fit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tidewater.contract import keys
from tidewater.elastic.errors import Compacted, Missed, StoreError
from tidewater.elastic.etcd.client import Event, Store, Watch
from tidewater.elastic.etcd.ranges import Range, only, under
from tidewater.elastic.membership import records
from tidewater.elastic.membership.deciders import Role, rest_seconds
from tidewater.elastic.membership.rules import Member, Seat, View
from tidewater.elastic.observe.log import Lasting

_RETRY_SECONDS = 0.3

Update = Callable[[Callable[[View], View], bool], View]
"""Applies a change to the view, which it returns. The flag says that all records have been read."""


class Follower:
    """One process's reader.

    Args:
        store: etcd.
        job: The job's name.
        role: The process's; it changes when a change has been applied.
        update: See ``Update``.
        away: Where to say that etcd doesn't answer.
    """

    def __init__(self, store: Store, job: str, role: Role, *, update: Update, away: Lasting) -> None:
        self._store, self._role, self._update, self._away = store, role, update, away
        self._job = job
        self._all, self._members, votes = under(keys.job(job)), under(keys.members(job)), under(keys.votes(job))
        self._shared = Range(self._all.first, self._members.first)
        self._shared_without_generation = Range(self._all.first, keys.generation(job))
        self._own = (
            Range(self._members.end, votes.first),
            only(keys.member(job, role.me)),
            only(keys.vote(job, role.me)),
        )
        self._watch: Watch | None = None
        self._stopping = self._again = False
        self.read_at = -math.inf
        """When (by the clock of ``run``) everything was read last."""

    def run(self, clock: Callable[[], float]) -> None:
        """Follow until ``stop``. Raise RecordError for a record that this version of the code can't work with."""
        while not self._stopping:
            try:
                self._again = False
                asked_at, whole = clock(), self._role.decides
                starts = self._read(whole=whole)
                self.read_at = asked_at
                self._update(lambda view: view, False)  # what waits for it looks again
                self._follow(starts, whole=whole)
            except StoreError as error:
                self._away.say(error=str(error))
                time.sleep(_RETRY_SECONDS)

    def again(self) -> None:
        """Read everything again, soon."""
        self._again = True
        self.look()

    def look(self) -> None:
        """Ask soon whether this process decides."""
        if self._watch:
            self._watch.close()

    def stop(self) -> None:
        """End ``run``, soon."""
        self._stopping = True
        self.look()

    def oldest(self, number: int) -> list[Member]:
        """Return so many members, those with the oldest records, oldest first. Raise StoreError."""
        keys_of_members = Range(self._members.first, self._members.end, oldest=number)
        found = records.replaced(self._store.read_ranges([keys_of_members]).entries, View())
        return list(found.members)

    def recorded(self, seats: Sequence[Seat]) -> list[Seat]:
        """Return those of these members that have a record, in the same order. Raise StoreError.

        At most ``MOST_KEYS``.
        """
        own = [replace(only(keys.member(self._job, seat.id)), oldest=0) for seat in seats]
        counts = self._store.read_ranges(own).counts
        return [seat for seat, count in zip(seats, counts, strict=True) if count]

    def everyone(self) -> Sequence[Member]:
        """Return all members, as etcd has them now. Raise StoreError."""
        return records.replaced(self._store.read(self._members.first).entries, View()).members

    def _read(self, *, whole: bool) -> dict[Range, int]:
        """Read the records. Return the revisions from which to watch."""
        if whole:
            snapshot = self._store.read(self._all.first)
            self._update(partial(records.replaced, snapshot.entries), True)
            return {self._all: snapshot.revision + 1}
        number = Range(self._members.first, self._members.end, oldest=0)
        snapshot = self._store.read_ranges([self._shared, *self._own, number])
        view = self._update(partial(records.replaced_in_part, snapshot.entries, snapshot.counts[-1]), True)
        after = dict.fromkeys((self._shared, *self._own), snapshot.revision + 1)
        self._shorten(after, view)
        return after

    def _follow(self, starts: Mapping[Range, int], *, whole: bool) -> None:
        """Follow the changes until all must be read again. Raise StoreError when the connection breaks."""
        after = dict(starts)
        while not self._is_over(whole=whole):
            self._watch = self._store.watch(after)
            try:
                for events in () if self._is_over(whole=whole) else self._watch:  # `look` may have closed the last one
                    view = View()
                    for group in records.grouped(events):
                        view = self._update(partial(records.applied, group), False)
                    _note(after, events)
                    if self._is_over(whole=whole) or self._shorten(after, view):
                        break
                    time.sleep(rest_seconds(len(view.members)))
            except (Compacted, Missed):
                return
            finally:
                self._watch.close()

    def _is_over(self, *, whole: bool) -> bool:
        return self._stopping or self._again or self._role.decides != whole

    def _shorten(self, after: dict[Range, int], view: View) -> bool:
        """Leave the generation's record out of what is followed if its changes come, too. Return whether it was in."""
        if not view.changes or self._shared not in after:
            return False
        after[self._shared_without_generation] = after.pop(self._shared)
        return True


def _note(after: dict[Range, int], events: Iterable[Event]) -> None:
    """Note that these events have been seen: only those of the same range come in order."""
    for event in events:
        for each, revision in after.items():
            if each.first <= event.key < each.end:
                after[each] = max(revision, event.revision + 1)
