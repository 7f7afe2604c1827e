"""Applies the decisions of ``membership`` to etcd, in threads of its own, beside the training.

    coordinator = Coordinator(store, "digits", member, limits, log)
    coordinator.start()
    coordinator.announce(signature)           # from now on this worker may be put into a generation
    generation = coordinator.wait_for_generation(after=0, deadline=...)

Three threads: one keeps the lease, one keeps the view of etcd current, one decides. The thread that trains only
reads the view and says what happened to it: ``give_up``, ``leave``, ``finish``.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from contract import keys
from trainer import membership
from trainer.errors import Compacted, RecordError, StoreError
from trainer.log import Log
from trainer.membership import Generation, Inputs, Kind, Limits, Member, View
from trainer.store import Entry, Event, Store

_RETRY_SECONDS = 0.3


@dataclass(frozen=True)
class Hooks:
    """What the coordinator calls, from its own threads, when something happens."""

    changed: Callable[[View], None] = field(default=lambda view: None)
    """The view is new. Called for every change, so it must be quick."""
    is_dead: Callable[[Member], bool] = field(default=lambda member: False)
    """Whether a member's process is certainly gone. Asked about silent members of a broken generation."""


class Coordinator:
    """One worker's part in the membership of one job."""

    def __init__(  # the five things it is made of, and no work done here
        self, store: Store, job: str, me: Member, *, limits: Limits, lease_seconds: int, log: Log
    ) -> None:
        self._store, self._job, self._me, self._limits, self._log = store, job, me, limits, log
        self._lease_seconds = lease_seconds
        self._lease = 0
        self._lease_until = 0.0
        self._announced = False
        self._view = View()
        self._changed_at: tuple[int, float] | None = None
        self._ready = False
        self._stopping = False
        self._unpublished = False
        self._fatal: RecordError | None = None
        self._condition = threading.Condition()
        self._record_lock = threading.Lock()
        self._hooks = Hooks()
        self._threads: list[threading.Thread] = []

    @property
    def view(self) -> View:
        """The last known state of the job in etcd."""
        return self._view

    def start(self, hooks: Hooks) -> None:
        """Start following etcd. Returns at once; use ``wait`` for the first view."""
        self._hooks = hooks
        for work in (self._follow, self._keep_lease, self._decide):
            thread = threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Withdraw this worker's record and end the threads. Safe to call twice."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        with contextlib.suppress(StoreError):
            if self._lease:
                self._store.revoke(self._lease)
        self._lease = 0

    def announce(self, signature: str) -> None:
        """This worker is prepared: it may be put into any generation after the current one."""
        with self._record_lock:
            self._me = replace(self._me, signature=signature, ready_after=self._view.number)
            self._announced = True
        self._publish()

    def ready_after(self, number: int) -> None:
        """This worker has left (or never entered) the process groups of all generations up to ``number``.

        Survivors of a failure and workers in line both say so; it is what lets the next generation have them.
        """
        with self._record_lock:
            if number <= self._me.ready_after:
                return
            self._me = replace(self._me, ready_after=number)
        self._publish()

    def leave(self) -> None:
        """Ask for a generation without this worker."""
        with self._record_lock:
            self._me = replace(self._me, leaving=True)
        if self._announced:
            self._publish()

    def finish(self, record: bytes) -> None:
        """Record that the job is done; only the first such record is kept. Raises StoreError."""
        self._store.put_if(keys.finished(self._job), record, 0)

    def lease_holds(self) -> bool:
        """Whether the others must still count this worker as alive, by this worker's own clock.

        When etcd has not confirmed the lease for so long that it may have run out, others may train without
        this worker, and it must not commit a step.
        """
        return time.monotonic() < self._lease_until

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        """Wait until the view satisfies ``condition``; False at the (monotonic) deadline.

        Raises RecordError if another version of the code has written what this one cannot read.
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
        """Wait until the view is another one than ``seen``, or until the deadline."""
        self.wait(lambda view: view is not seen, deadline)

    def _publish(self) -> None:
        """Write this worker's record; if etcd is away, the lease thread does so when it is back."""
        with self._record_lock:
            if not self._announced or self._stopping:
                return
            try:
                self._renew_lease()
                record = membership.member_to_json(self._me)
                self._store.put(keys.member(self._job, self._me.id), record, self._lease)
                self._unpublished = False
            except StoreError as error:
                self._unpublished = True
                self._log.event("etcd_unreachable", error=str(error))

    def _renew_lease(self) -> None:
        asked_at = time.monotonic()
        if self._lease and not self._store.keep_alive(self._lease):
            self._log.event("lease_lost", member=self._me.id)
            self._lease = 0
            self._unpublished = True
        if not self._lease:
            self._lease = self._store.grant(self._lease_seconds)
        self._lease_until = asked_at + self._lease_seconds

    def _keep_lease(self) -> None:
        while not self._stopping:
            time.sleep(_RETRY_SECONDS if self._unpublished else self._lease_seconds / 5)
            if not self._announced or self._stopping:
                continue
            with contextlib.suppress(StoreError), self._record_lock:
                self._renew_lease()
            if self._unpublished:
                self._publish()

    def _follow(self) -> None:
        complained = 0.0
        while not self._stopping:
            try:
                snapshot = self._store.read(keys.job(self._job))
                self._update(partial(_replaced, snapshot.entries))
                self._watch_from(snapshot.revision + 1)
            except StoreError as error:
                if time.monotonic() - complained > 10:
                    self._log.event("etcd_unreachable", error=str(error))
                    complained = time.monotonic()
                time.sleep(_RETRY_SECONDS)
            except RecordError as error:
                with self._condition:
                    self._fatal = error
                    self._condition.notify_all()
                return

    def _watch_from(self, revision: int) -> None:
        """Follow events until the history is compacted; raises StoreError when the connection breaks."""
        while not self._stopping:
            try:
                for events in self._store.watch(keys.job(self._job), revision):
                    revision = max([revision, *(event.revision + 1 for event in events)])
                    self._update(partial(_applied, events))
            except Compacted:
                return

    def _update(self, change: Callable[[View], View]) -> None:
        with self._condition:
            view = change(self._view)
            self._view = view
            self._ready = True
            if not membership.needs_change(view, self._limits):
                self._changed_at = None
            elif self._changed_at is None or self._changed_at[0] != view.number:
                self._changed_at = (view.number, time.monotonic())
            self._condition.notify_all()
        self._hooks.changed(view)

    def _decide(self) -> None:
        while not self._stopping:
            with self._condition:
                view, changed_at = self._view, self._changed_at
            action = self._action(view, changed_at)
            if action.kind is Kind.PROPOSE and action.generation and self._propose(view, action.generation):
                continue
            with self._condition:
                if self._view is view and not self._stopping:
                    # Silent members of a broken generation are looked at again before patience runs out.
                    left = min((action.wake_at or time.monotonic() + 60) - time.monotonic(), 0.1)
                    self._condition.wait(left if action.wake_at else 60)

    def _action(self, view: View, changed_at: tuple[int, float] | None) -> membership.Action:
        if changed_at is None or not self._announced:
            return membership.REST
        inputs = Inputs(me=self._me.id, limits=self._limits, uuid=secrets.randbits(48), changed_at=changed_at[1])
        action = membership.decide(view, inputs, time.monotonic())
        if action.kind is Kind.WAIT and membership.is_broken(view):
            dead = frozenset(member.id for member in membership.silent(view) if self._hooks.is_dead(member))
            action = membership.decide(view, replace(inputs, dead=dead), time.monotonic())
        return action

    def _propose(self, view: View, generation: Generation) -> bool:
        """Compare-and-set the next generation. False if that cannot be known now; the view will tell."""
        record = membership.generation_to_json(generation)
        try:
            done = self._store.put_if(keys.generation(self._job), record, view.generation_revision)
        except StoreError as error:
            self._log.event("etcd_unreachable", error=str(error))
            time.sleep(_RETRY_SECONDS)
            return True
        self._log.debug("proposed", generation=generation.number, cause=generation.cause, accepted=done)
        with self._condition:
            self._condition.wait_for(lambda: self._view is not view or self._stopping, timeout=1)
        return True


def _replaced(entries: tuple[Entry, ...], _: View) -> View:
    view = View()
    for entry in entries:
        view = _with_entry(view, entry)
    return view


def _applied(events: tuple[Event, ...], view: View) -> View:
    for event in events:
        view = _with_entry(view, event.entry) if event.entry else _without_key(view, event.key)
    return view


def _with_entry(view: View, entry: Entry) -> View:
    name = _name(entry.key)
    if name == "generation":
        generation = membership.generation_from_json(entry.value)
        return replace(view, generation=generation, generation_revision=entry.mod_revision)
    if name == "finished":
        return replace(view, finished=entry.value.decode())
    if name.startswith("members/"):
        member = membership.member_from_json(entry.value, age=entry.create_revision)
        others = tuple(other for other in view.members if other.id != member.id)
        return replace(view, members=(*others, member))
    return view


def _without_key(view: View, key: str) -> View:
    name = _name(key)
    if name == "generation":
        return replace(view, generation=None, generation_revision=0)
    if name == "finished":
        return replace(view, finished="")
    return replace(view, members=tuple(member for member in view.members if f"members/{member.id}" != name))


def _name(key: str) -> str:
    """The key below the job's prefix ``/tidewater/<job>/``."""
    return key.split("/", 3)[3]
