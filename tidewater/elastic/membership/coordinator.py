"""Applies the decisions of ``decision`` to etcd, in its own threads, while training runs.

    coordinator = Coordinator(store, "digits", member, limits, log)
    coordinator.start()
    coordinator.announce()                    # from now on this worker may be put into a generation
    coordinator.wait_for_news(view, deadline); generation = coordinator.view.generation

When etcd has been unavailable for longer than a lease, all records are missing for a moment, although no worker is
lost. So a record that disappears stays in the view while its process answers pings, for a fifth of a lease or more (see
``missing``). Each worker writes its own record again at once.

There are three threads: one renews the lease, one keeps the view of etcd current, one decides or sends the vote. The
training thread only reads the view and reports its own changes: ``ready_after``, ``synced``, ``leave``, ``finish``.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from tidewater.contract import keys
from tidewater.elastic.errors import RecordError, StoreError, TrainerError
from tidewater.elastic.etcd.client import Store
from tidewater.elastic.membership import deciders, decision, records, rules
from tidewater.elastic.membership.deciders import Elders, Role, rest_seconds
from tidewater.elastic.membership.decision import Inputs, Kind
from tidewater.elastic.membership.follower import Follower
from tidewater.elastic.membership.hooks import Hooks
from tidewater.elastic.membership.need import Need
from tidewater.elastic.membership.rules import Generation, Limits, Member, Saved, View
from tidewater.elastic.membership.suspects import Missing, Roll, Sign, asked, excused, heard, members_of, noted, unheard
from tidewater.elastic.membership.votes import Votes
from tidewater.elastic.observe.log import Lasting, Log

_RETRY_SECONDS = 0.3
_RENEWALS_IN_A_LEASE, _RENEWALS_IN_A_LARGE_JOB = 5, 3
"""The renewals of a thousand members are most of what etcd has to do."""
_LEAST_GRACE_SECONDS, _GRACE_SECONDS_OF_EACH = 1.0, 0.01
"""After an outage of etcd all members write their records again, at the same time."""
_LOOK_SECONDS, _LONG_SECONDS = 0.5, 60.0
_TOUCH_LEASES, _TAKEOVER_LEASES = 3, 4


class Coordinator:
    """One worker's part in the membership of one job."""

    def __init__(  # its five parts; the work begins in `start`
        self, store: Store, job: str, me: Member, *, limits: Limits, lease_seconds: int, log: Log
    ) -> None:
        self._store, self._job, self._me, self._log = store, job, me, log
        self._away = Lasting(log, "etcd_unreachable")
        self._limits = replace(limits, takeover_seconds=_TAKEOVER_LEASES * lease_seconds)
        self._lease, self._lease_seconds = 0, lease_seconds
        self._grace_seconds = max(lease_seconds / _RENEWALS_IN_A_LEASE, _LEAST_GRACE_SECONDS)
        self._confirmed_at = self._lost_at = -math.inf
        self.leases_lost = 0
        """How often this worker lost its lease, so that others may have continued without it."""
        self._role, self._shown = Role(me.id, limits.patience_seconds), deciders.Shown(store, job, me.id)
        self.follower = Follower(store, job, self._role, update=self._update, away=self._away)
        self._votes = Votes(store, job, me.id)
        self._recorded = self._stored = self._view = View()
        """What etcd has; that with the votes that were heard; and with records that are missing only for a moment."""
        self._missing, self._roll, self._need = Missing(), Roll(), Need()
        self._looked_at, self._stuck = 0.0, False
        self._announced = self._ready = self._stopping = False
        self._unpublished, self._renew = False, threading.Event()
        self._fatal: TrainerError | None = None
        self._condition = threading.Condition()
        self._me_lock, self._record_lock = threading.Lock(), threading.Lock()
        self._hooks = Hooks()

    @property
    def view(self) -> View:
        """The last known state of the job in etcd, including records that are missing only for a moment."""
        return self._view

    def start(self, hooks: Hooks) -> None:
        """Start following etcd. Return at once; use ``wait`` for the first view."""
        self._hooks = hooks
        for work in (self._follow, self._keep_lease, self._decide):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()

    def stop(self, *, gives_up: bool = False) -> None:
        """Withdraw this worker's record and end the threads. Safe to call twice.

        With ``gives_up``, this worker takes part in no further sum of the current generation: it is broken at once.
        """
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self.follower.stop()
        with contextlib.suppress(StoreError):
            if self._lease:
                # The other workers must not treat this record as missing only for a moment.
                given_up = self._view.number if gives_up else self._me.ready_after
                record = records.member_to_json(replace(self._me, leaving=True, ready_after=given_up))
                self._store.put(keys.member(self._job, self._me.id), record, self._lease)
                self._store.revoke(self._lease)
        self._lease = 0

    def announce(self) -> None:
        """Announce that this worker is prepared: it may become a member of any generation after the current one."""
        self._change(ready_after=self._view.number)
        self._announced = True
        self._publish()

    def ready_after(self, number: int, *, fruitful: int = 0) -> None:
        """Report that this worker is in no process group of a generation up to ``number``.

        Survivors of a failure and workers in line report this; only then can the next generation include them.
        ``fruitful``: see ``Member``.
        """
        if number > self._me.ready_after:
            self._change(ready_after=number, fruitful=fruitful, unreachable=self._unreachable())
            self._publish()

    def synced(self, number: int) -> None:
        """Report, before the first step, that this worker has the job's state as of the beginning of generation
        ``number``.

        Return at once: the record is written by another thread.
        """
        self._change(state_of=number)
        self._publish_soon()

    def _publish_soon(self) -> None:
        self._unpublished = True
        self._renew.set()

    def leave(self) -> None:
        """Ask for a generation without this worker."""
        self._change(leaving=True)
        if self._announced:
            self._publish()

    def finish(self, record: bytes) -> None:
        """Record that the job is done; only the first such record is kept. Raise StoreError."""
        self._store.put_if(keys.finished(self._job), record, 0)

    def saved(self, step: int, where: str) -> None:
        """Record the last checkpoint. If etcd does not answer, the next one is recorded."""
        with contextlib.suppress(StoreError):
            self._store.put(keys.saved(self._job), records.saved_to_json(Saved(step, where)))

    def in_touch(self) -> bool:
        """Return whether this worker may take part in a step and make a step final.

        It may not when etcd has been unreachable for so long that others may start again from a checkpoint. The limit
        is three leases after the lease ended. The others wait for four leases after they noticed, so a clock may be
        wrong by a quarter.
        """
        # After the loss of a lease: read first what the others did meanwhile.
        fresh = self.follower.read_at > self._lost_at
        return fresh and _clock() < self._confirmed_at + (1 + _TOUCH_LEASES) * self._lease_seconds

    def hear(self, votes: Mapping[str, str]) -> Collection[str] | None:
        """Take what other members have sent; see ``votes``. Return their ids; None if this one doesn't decide."""
        with self._condition:
            if self._stopping or not self._role.decides:
                return () if self._stopping else None
            self._condition.notify_all()
            return [each for each in votes if self._votes.heard(each, votes[each], self._recorded)]

    def pass_on(self, votes: Mapping[str, str], turn: int) -> Collection[str]:
        """Send votes on, unless ``turn`` is 0; see ``votes.Send``. Return the ids of those that were taken."""
        return self._votes.relay.pass_on(votes, turn, self._recorded, self._hooks.send_votes) if turn else ()

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        """Wait until the view satisfies ``condition``. Return False at the (monotonic) deadline.

        Raise RecordError if another version of the code has written a record that this one cannot read, and
        TrainerError if this worker can't go on after etcd has lost its data.
        """
        with self._condition:
            while not (self._ready and condition(self._view)):
                if self._fatal:
                    raise self._fatal
                left = deadline - time.monotonic()
                if left <= 0 or self._stopping:
                    return False
                self._condition.wait(left)
            return True

    def wait_for_news(self, seen: View, deadline: float) -> None:
        """Wait until the view differs from ``seen``, or until the deadline."""
        self.wait(lambda view: view is not seen, deadline)

    def _change(self, **fields: Any) -> None:
        # A separate lock: the other one is held during requests to etcd, and training must not wait for those.
        with self._me_lock:
            self._me = replace(self._me, **fields)

    def _publish(self) -> None:
        """Write this worker's record. If etcd is unavailable, the lease thread writes it later."""
        with self._record_lock:
            if not self._announced or self._stopping:
                return
            try:
                self._renew_lease()
                self._unpublished = False
                if self._votes.write(self._me, self._lease, self._stored):
                    with self._condition:
                        self._condition.notify_all()
            except StoreError as error:
                self._unpublished = True
                self._away.say(error=str(error))

    def _renew_lease(self) -> None:
        """Make sure that there is a lease. It is renewed unless that was done just now, and this record is there."""
        asked_at = _clock()
        is_new = asked_at < self._confirmed_at + self._lease_seconds / _RENEWALS_IN_A_LEASE
        if self._lease and is_new and self._stored.member(self._me.id):
            return
        if self._lease and not self._store.keep_alive(self._lease):
            self.leases_lost += 1  # first, so that `in_touch` is never true before this counts
            self._lost_at, self._lease, self._unpublished = _clock(), 0, True
            self._log.event("lease_lost", member=self._me.id)
            self.follower.again()
        if not self._lease:
            if self.leases_lost:
                self._hooks.returning()
            self._lease = self._store.grant(self._lease_seconds)
        self._confirmed_at = asked_at

    def _unreachable(self) -> tuple[str, ...]:
        return tuple(sorted(self._hooks.unreachable()))

    def _keep_lease(self) -> None:
        away = False
        while not self._stopping:
            often = self._unpublished or away or self._me.unreachable
            renewals = _RENEWALS_IN_A_LARGE_JOB if deciders.is_large(self._stored) else _RENEWALS_IN_A_LEASE
            self._renew.wait(_RETRY_SECONDS if often else self._lease_seconds / renewals)
            self._renew.clear()
            if not self._announced or self._stopping:
                continue
            try:
                with self._record_lock:
                    self._renew_lease()
                away = False
            except StoreError:
                # Retry often: when etcd is back, the others wait only a moment for this record.
                away = True
            except TrainerError as error:
                return self._fail(error)
            if self._me.unreachable and self._me.unreachable != self._unreachable():
                self._change(unreachable=self._unreachable())
                self._unpublished = True
            if self._unpublished:
                self._publish()

    def _follow(self) -> None:
        try:
            self.follower.run(lambda: _clock())  # looked up for each call
        except RecordError as error:
            self._fail(error)

    def _fail(self, error: TrainerError) -> None:
        with self._condition:
            self._fatal = error
            self._condition.notify_all()

    def _update(self, change: Callable[[View], View], all_read: bool) -> View:
        with self._condition:
            before, recorded = self._recorded, change(self._recorded)
            for member_id, reason in records.newly_refused(before, recorded):
                self._log.event("member_refused", member=member_id, reason=reason)
            self._recorded = recorded
            # What others write while this record is on its way doesn't say that it is missing.
            expected = self._announced and (all_read or before.member(self._me.id))
            if expected and recorded.member(self._me.id) is None:
                self._publish_soon()
            view = self._refresh()
            # The first view of a small job only shows that it is one.
            self._ready = self._ready or recorded.whole or not self._role.decides
            self._condition.notify_all()
        self._hooks.changed(view)
        return view

    def _refresh(self) -> View:
        """Derive the view from the records in etcd. The caller holds the condition's lock."""
        now = time.monotonic()
        self._stored = self._votes.applied(self._recorded)
        self._missing = noted(self._missing, self._stored, self._view, now)
        view = excused(self._stored, self._missing, self._grace(len(self._stored.members)), now)
        if view == self._view:
            return self._view
        self._view = view
        self._need = need = self._need.noted(view, self._me.id, self._limits, now=now)
        self._role.noted(view, 0.0 if need.since is None else now - need.since)
        self._condition.notify_all()
        return view

    def _grace(self, members: int) -> float:
        return self._grace_seconds + _GRACE_SECONDS_OF_EACH * members

    def _decide(self) -> None:
        while not self._stopping:
            self._look()
            with self._condition:
                view, need = self._view, self._need
            turn, turn_ends_at = need.turn(self._limits.patience_seconds, time.monotonic())
            if self._votes.is_due(view, turn):
                vote = self._votes.send(view, self._hooks.send_votes)
                with self._condition:  # etcd doesn't say it to this worker, either
                    if not (vote and self._votes.heard(self._me.id, vote, self._recorded)):
                        self._publish_soon()
            shows = self._announced and self._role.decides
            shown = self._shown.write(view, self._lease if shows else 0)
            action = self._action(view, need) if view.whole else self._wait_for_others(view, need.since)
            self._stuck = action.wake_at == math.inf
            if action.kind is Kind.PROPOSE and action.generation and self._propose(view, action.generation):
                continue
            with self._condition:
                idle = not (self._stopping or self._votes.news or self._votes.is_due(view, turn))
                if self._view is view and idle:
                    # Silent and missing members are checked again before any deadline.
                    soon = view.whole and (action.wake_at or self._missing.since)
                    left = min(action.wake_at or math.inf, turn_ends_at) - time.monotonic()
                    longest = _LONG_SECONDS if shown else _RETRY_SECONDS
                    self._condition.wait(need.poll_seconds() if soon else min(max(left, 0.0), longest))

    def _wait_for_others(self, view: View, since: float | None) -> decision.Action:
        """Wait for those that decide, and step in for them if it is time and they are gone."""
        if since is None:
            return decision.REST
        now, grace_seconds = time.monotonic(), self._grace(deciders.size(view))
        elders = Elders(self._hooks.is_dead, self.follower.recorded, self.follower.oldest, grace_seconds)
        with contextlib.suppress(StoreError):
            if now >= self._role.asks_at(view, since) and self._role.steps_in(view, elders, now, since):
                with self._condition:
                    self._role.noted(self._view, now - since)
                self.follower.look()
        return decision.Action(Kind.WAIT, wake_at=self._role.asks_at(view, since))

    def _look(self) -> None:
        """Ping members that are missing or silent, remove lost ones from the view, and take in what was heard."""
        if self._votes.news:
            time.sleep(rest_seconds(len(self._recorded.members)))
        with self._condition:
            missing, last = self._missing, self._view
            # Pings take time, so members with a record are pinged only if nothing can continue without them.
            found = (unheard if self._stuck else members_of)(self._stored)
        unclear = [each for each in found if each.id != self._me.id and each.id not in missing.ended]
        if not (missing.since or unclear or self._votes.news):
            return
        signs: dict[str, Sign] = {}
        if time.monotonic() - self._looked_at > _LOOK_SECONDS or not missing.signs.keys() >= missing.since.keys():
            signs = asked(unclear, self._hooks.look)
            self._looked_at = time.monotonic()
        with self._condition:
            if self._missing is missing:
                self._missing = heard(missing, signs)
            view = self._refresh()
        if view.members != last.members:
            self._hooks.changed(view)

    def _action(self, view: View, need: Need) -> decision.Action:
        if need.since is None or not self._announced:
            return decision.REST
        inputs = Inputs(
            me=self._me.id,
            limits=self._limits,
            uuid=secrets.randbits(48),
            changed_at=need.since,
            heard_at=need.heard_at,
            ended=self._missing.ended,
            missing_since=self._missing.since,
            arrivals=need.arrivals,
        )
        action = decision.decide(view, inputs, time.monotonic())
        if action.kind is Kind.WAIT and rules.is_broken(view) and rules.silent(view):
            dead = self._roll.dead(view, need.heard_at, self._hooks.is_dead, time.monotonic())
            action = decision.decide(view, replace(inputs, dead=dead), time.monotonic())
        return action

    def _propose(self, view: View, generation: Generation) -> bool:
        """Compare-and-set the next generation. Return False if the result is unknown; the view will show it."""
        try:
            done = deciders.propose(self._store, self._job, view, generation)
        except StoreError as error:
            self._away.say(error=str(error))
            time.sleep(_RETRY_SECONDS)
            return True
        self._log.debug("proposed", generation=generation.number, cause=generation.cause, accepted=done)
        with self._condition:
            self._condition.wait_for(lambda: self._view is not view or self._stopping, timeout=1)
        return True


def _clock() -> float:
    # Unlike time.monotonic, it continues while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)
