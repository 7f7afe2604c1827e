"""A simulated member of a job: the real coordinator and peer server, without steps.

    member = Member("m-7", url, dead)
    member.join()
    member.lose()                       # like SIGKILL: etcd gets no request, and the record stays until its lease ends
    member.break_off()                  # a sum of this member has failed: it gives the generation up

What a session does about a generation is done here at once: a member that is in a new one has the state, a member of a
broken one gives it up, and one that was left out asks again.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.client import EtcdStore, Watch
from tidewater.elastic.etcd.ranges import Range
from tidewater.elastic.membership import rules
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.hooks import Hooks
from tidewater.elastic.membership.rules import Limits, View
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.observe.log import Log
from tidewater.elastic.peer import votes
from tidewater.elastic.peer.handshake import Identity
from tidewater.elastic.peer.server import PeerServer

JOB = "bench"
MOST_MEMBERS = 4096
LEASE_SECONDS = 10
"""The default of `--lease-seconds`."""
_FIRST_VIEW_SECONDS = 120.0
_LOOK_SECONDS = 10.0


class _Line(EtcdStore):
    """A member's connections to etcd, which end with its process."""

    def __init__(self, url: str) -> None:
        super().__init__((url,), timeout_seconds=10.0)
        self._cut = False
        self._watches: list[Watch] = []

    def cut(self) -> None:
        """End the watch, and refuse what is asked from now on."""
        self._cut = True
        for watch in self._watches:
            watch.close()

    @override
    def watch(self, starts: Mapping[Range, int]) -> Watch:
        self._refuse()
        self._watches = [super().watch(starts)]
        return self._watches[0]

    @override
    def put(self, key: str, value: bytes, lease: int = 0) -> None:
        self._refuse()
        super().put(key, value, lease)

    @override
    def put_if(
        self, key: str, value: bytes, mod_revision: int, lease: int = 0, also: tuple[str, bytes] | None = None
    ) -> bool:
        self._refuse()
        return super().put_if(key, value, mod_revision, lease, also)

    @override
    def revoke(self, lease: int) -> None:
        self._refuse()
        super().revoke(lease)

    def _refuse(self) -> None:
        if self._cut:
            raise StoreError("this process has ended")


@dataclass(frozen=True)
class Entered:
    """The last generation with a member, as the member knows it."""

    number: int = 0
    size: int = 0
    at: float = 0.0
    """When (monotonic) the member first knew of it."""


class Member:
    """One member.

    Args:
        name: Its id.
        url: etcd's.
        dead: Ids of the members that have been lost; read by the pings, so it may change.
    """

    def __init__(self, name: str, url: str, dead: Set[str]) -> None:
        self.name = name
        self.entered = Entered()
        self._store, self._dead = _Line(url), dead
        limits, log = Limits(1, MOST_MEMBERS), Log(name, stream=io.StringIO())
        self._identity = Identity(JOB.encode(), name)
        self._server = PeerServer(self._identity)
        me = rules.Member(name, name, "127.0.0.1", self._server.port, "signature", ready_after=0)
        self._coordinator = Coordinator(self._store, JOB, me, limits=limits, lease_seconds=LEASE_SECONDS, log=log)
        self._server.hear, self._server.pass_on = self._coordinator.hear, self._coordinator.pass_on
        self._ended = False
        self._broken = 0
        """Number of the last generation in which a sum has failed."""

    @property
    def view(self) -> View:
        """What this member knows."""
        return self._coordinator.view

    def join(self) -> None:
        """Follow etcd, and ask for a place."""
        self._server.start()
        send = partial(votes.send, self._identity, frozenset)
        hooks = Hooks(self._changed, lambda member: member.id in self._dead, self._look, send_votes=send)
        self._coordinator.start(hooks)
        if not self._coordinator.wait(lambda view: True, time.monotonic() + _FIRST_VIEW_SECONDS):
            raise StoreError("etcd does not answer")
        threading.Thread(target=self._train, daemon=True).start()
        self._coordinator.announce()

    def break_off(self) -> None:
        """Give up the current generation, if this member is in it."""
        if self.view.number == self.entered.number:
            self._broken = self.view.number
            self._coordinator.ready_after(self._broken)

    def lose(self) -> None:
        """End at once, without a request to etcd."""
        self._ended = True
        self._server.close()
        self._store.cut()
        self._coordinator.stop()

    def _look(self, member: rules.Seat) -> Sign:
        return Sign.ENDED if member.id in self._dead else Sign.ANSWERS

    def _changed(self, view: View) -> None:
        generation = view.generation
        if generation and generation.number > self.entered.number and generation.rank(self.name) is not None:
            self.entered = Entered(generation.number, len(generation.members), time.monotonic())

    def _train(self) -> None:
        synced = 0
        while not self._ended:
            view = self.view
            generation = view.generation
            if generation and generation.rank(self.name) is None:
                self._coordinator.ready_after(view.number)
            elif generation and generation.number > max(synced, self._broken):
                synced = generation.number
                self._coordinator.synced(synced)
            elif generation and rules.lost_members(view, generation, self.name):
                self._coordinator.ready_after(view.number)
            self._coordinator.wait_for_news(view, time.monotonic() + _LOOK_SECONDS)
