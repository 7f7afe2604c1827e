"""Follows a job's records in etcd: reads them once, then their changes.

    follower = Follower(store, "digits", role, update=apply, away=lasting)
    follower.run(clock)                       # in a thread, until stop()
    follower.again()                          # read everything again

A process that decides reads everything; another one the records of the job and its own (see ``deciders``), and the
number of members.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tidewater.contract import keys
from tidewater.elastic.errors import Compacted, StoreError
from tidewater.elastic.etcd.client import Event, Store, Watch
from tidewater.elastic.etcd.ranges import Range, only, under
from tidewater.elastic.membership import records
from tidewater.elastic.membership.deciders import Role
from tidewater.elastic.membership.rules import Member, Seat, View
from tidewater.elastic.observe.log import Lasting

_RETRY_SECONDS = 0.3
_MEMBERS_WITHOUT_REST, _REST_SECONDS_OF_EACH = 32, 1e-4

Update = Callable[[Callable[[View], View], bool], int]
"""Applies a change to the view. The flag says that all records have been read. Returns the number of members in it."""


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
        self._own = (
            Range(self._all.first, self._members.first),
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
        snapshot = self._store.read_ranges([*self._own, Range(self._members.first, self._members.end, oldest=0)])
        self._update(partial(records.replaced_in_part, snapshot.entries, snapshot.counts[-1]), True)
        return dict.fromkeys(self._own, snapshot.revision + 1)

    def _follow(self, starts: Mapping[Range, int], *, whole: bool) -> None:
        """Follow the changes until all must be read again. Raise StoreError when the connection breaks."""
        after = dict(starts)
        while not (self._stopping or self._again or self._role.decides != whole):
            self._watch = self._store.watch(after)
            try:
                for events in self._watch:
                    members = 0
                    for group in records.grouped(events):
                        members = self._update(partial(records.applied, group), False)
                    _note(after, events)
                    if self._again or self._role.decides != whole:
                        break
                    # A view of many takes time for each of them: changes that come shortly after one another are one.
                    time.sleep(max(0, members - _MEMBERS_WITHOUT_REST) * _REST_SECONDS_OF_EACH)
            except Compacted:
                return
            finally:
                self._watch.close()


def _note(after: dict[Range, int], events: Iterable[Event]) -> None:
    """Note that these events have been seen: only those of the same range come in order."""
    for event in events:
        for each, revision in after.items():
            if each.first <= event.key < each.end:
                after[each] = max(revision, event.revision + 1)
