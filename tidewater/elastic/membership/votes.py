"""What the members of a large job say about themselves, sent to those that decide instead of written to etcd.

    votes = Votes(store, "digits", me.id)
    votes.write(me, lease, stored)           # this member's record, or its vote if etcd must have it
    if votes.is_due(stored, turn): votes.send(stored, send)
    votes.heard("w-1-3c", text, recorded)    # in a member that decides: another one's vote
    stored = votes.applied(recorded)         # what etcd has, and what was heard since

In etcd a vote would be one write for each member and change, and one event for each that decides (see ``deciders``).
A thousand connections to one member at the same time would be as slow. So of more than 64 members, those with
consecutive ranks, about as many as there are such groups, send their votes to the first of them, unless that decides.
That one, their *relay*, sends all that arrive shortly after one another to those that decide, and answers when they
have. All of them must know the votes: the first proposes only if it has given the generation up itself, and it may be
in a long pass, or leave. If its relay doesn't answer, a member sends its vote to those that decide itself, and if none
has taken it, writes it to etcd. One that still waits some time later, or when another one has begun to decide, sends it
again, and then writes it, too. Those that decide write their own to etcd: so each knows in which generation the state
was last the same in all, whatever else it has not heard.

A vote lives as long as the record of its member, which is bound to a lease. What a member says never goes back, so what
etcd has is older than what was heard unless it says more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace

from tidewater.contract import keys
from tidewater.elastic.errors import RecordError
from tidewater.elastic.etcd.client import Store
from tidewater.elastic.membership import records
from tidewater.elastic.membership.deciders import rest_seconds, size
from tidewater.elastic.membership.rules import Member, Seat, View, waits

Send = Callable[[Seat, Mapping[str, str], int, float], Collection[str] | None]
"""Sends votes, by the ids of their members, to another member. Returns the ids of those that were taken; None if it has
not answered within so many seconds. If that member doesn't decide, it passes them on to those that do, first to the one
with this number, counted from 1; not if the number is 0."""

_GROUP = 64
"""So many members have one relay, usually one that decides; more have about as many groups as a group has members."""
_LEAST_SECONDS, _SECONDS_OF_EACH = 1.0, 0.01
"""For one answer of a member that decides: all members vote at the same time. One found silent is not waited for."""


class Votes:
    """This member's record and vote, and the votes of others that it has heard. Not safe to use in several threads,
    but for ``write`` and ``send``, which may run while other threads use the rest."""

    def __init__(self, store: Store, job: str, me: str) -> None:
        self._store, self._job, self._me = store, job, me
        self._lock = threading.Lock()
        self._recorded_with = 0
        """The lease with which this member's record was written."""
        self._vote = b""
        """The last one, if etcd doesn't have it."""
        self._sent, self._to = 0, frozenset[str]()
        """How often it has been sent, or would have been if it had been taken; and the ids of those that decided when
        that was done last."""
        self._refused = False
        self._heard: dict[str, tuple[Member, Member]] = {}
        """By id, what etcd had of a member when its vote was heard, and the same with its vote."""
        self.news = False
        """Whether a vote was heard since ``applied``."""
        self.relay = Relay(me)

    def write(self, me: Member, lease: int, stored: View) -> bool:
        """Write this member's record, or if it is there, its vote, unless that is to be sent: then return True. Raise
        StoreError."""
        recorded = lease == self._recorded_with and stored.member(me.id)
        vote = records.vote_to_json(me)
        if not recorded or stored.whole or me.leaving:
            self._store.put(keys.member(self._job, me.id), records.member_to_json(me), lease)
            self._recorded_with, self._vote = lease, b""
        elif _relay(stored, me.id) is None or (self._refused and vote == self._vote):
            self._store.put(keys.vote(self._job, me.id), vote, lease)
            self._vote = b""
        elif vote != self._vote:
            with self._lock:
                self._vote, self._sent, self._refused = vote, 0, False
        return bool(self._vote)

    def is_due(self, stored: View, turn: int) -> bool:
        """Return whether etcd lacks this member's vote, and it was not sent so often yet or this one decides itself."""
        return bool(self._vote) and not self._refused and (stored.whole or self._number(stored) < turn)

    def send(self, stored: View, send: Send) -> str:
        """Send this member's vote to those that decide. Return it, or nothing if none has taken it: then ``write``
        writes it."""
        vote, relay, turn = self._vote, _relay(stored, self._me), self._number(stored) + 1
        votes = {self._me: vote.decode()}
        taken: Collection[str] | None = ()
        if relay and not stored.whole and turn <= len(_deciding(stored, self._me)):
            if relay.id == self._me:
                taken = self.relay.pass_on(votes, turn, stored, send)
            else:  # one that decides would take the vote itself, also one for another one
                taken = None if relay.id in stored.deciding else send(relay, votes, turn, 2 * _seconds(stored))
            taken = _delivered(self._me, votes, turn, stored, send) if taken is None else taken
        with self._lock:
            if vote == self._vote:
                self._sent, self._to, self._refused = turn, stored.deciding, not taken
        return vote.decode() if taken else ""

    def _number(self, stored: View) -> int:
        """Return how often the vote has been sent: not yet if this member waits, and another one decides now."""
        return 0 if waits(stored, self._me) and stored.deciding - self._to else self._sent

    def heard(self, member_id: str, text: str, recorded: View) -> bool:
        """Note a vote. Return False if it says nothing here: there is no such record, or it is of another version."""
        base = recorded.member(member_id)
        if base is None:
            return False
        try:
            vote = records.vote_from_json(text.encode(), base)
        except RecordError:
            return False
        _, said = self._heard.get(member_id, (base, base))
        if _order(vote) >= max(_order(said), _order(base)):  # not if it has been overtaken by a later one
            self._heard[member_id] = base, vote
            self.news = True
        return True

    def applied(self, recorded: View) -> View:
        """Return what etcd has with the votes that were heard; forget those that it has caught up with."""
        self.news = False
        if not self._heard:
            return recorded
        known, members = self._heard, []
        self._heard = {} if recorded.whole else dict(known)  # this one may decide again
        for now in recorded.members:
            base, said = known.get(now.id, (now, now))
            if now is not base and now != base:
                base, said = now, replace(now, **records.vote_of(said)) if _order(said) > _order(now) else now
            self._heard.pop(now.id, None)
            if said is not base:
                self._heard[now.id] = base, said
            members.append(said)
        return replace(recorded, members=tuple(members))


class Relay:
    """Sends votes of other members on, those together that arrive shortly after one another."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._lock = threading.Lock()
        self._next: dict[int, tuple[dict[str, str], Future[Collection[str]]]] = {}
        """By the number of the one that gets them first: the votes to be sent next, and those that are taken."""

    def pass_on(self, votes: Mapping[str, str], turn: int, stored: View, send: Send) -> Collection[str]:
        """Return the ids of those votes that one of those that decide has taken. Takes time; in threads."""
        with self._lock:
            is_first = turn not in self._next
            together, found = self._next.setdefault(turn, ({}, Future()))
            together |= votes
        if is_first:
            time.sleep(rest_seconds(size(stored)))
            with self._lock:
                del self._next[turn]
            taken: Collection[str] = ()
            try:
                taken = _delivered(self._me, together, turn, stored, send)
            finally:
                found.set_result(taken)
        return votes.keys() & found.result()


def relay_of(rank: int, number: int) -> int:
    """Return the rank of a member's relay, which may be itself, in a generation of this number of members."""
    return rank - rank % (number if number <= _GROUP else math.isqrt(number))


def _delivered(me: str, votes: Mapping[str, str], turn: int, view: View, send: Send) -> Collection[str]:
    """Send votes to those that decide, first to the one with this number; return the ids of those that were taken."""
    deciding, taken = _deciding(view, me), set[str]()
    for seat in deciding[turn - 1 :] + deciding[: turn - 1]:
        taken.update(send(seat, votes, 0, _seconds(view)) or ())
    return taken


def _relay(view: View, me: str) -> Seat | None:
    """Return the first member of this one's group, which may be itself; None if etcd must have the vote, because it has
    no rank or none decides."""
    rank = view.generation.rank(me) if view.generation else None
    if view.generation is None or rank is None or not _deciding(view, me):
        return None
    return view.generation.members[relay_of(rank, len(view.generation.members))]


def _seconds(view: View) -> float:
    return max(_LEAST_SECONDS, _SECONDS_OF_EACH * size(view))


def _deciding(view: View, me: str) -> list[Seat]:
    """Return the others that decide, in order of rank, as far as this process knows their addresses."""
    members = view.generation.members if view.deciding and view.generation else ()
    return [seat for seat in members if seat.id in view.deciding and seat.id != me]


def _order(vote: Member) -> tuple[int, int, int]:
    return vote.ready_after, vote.state_of, vote.fruitful
