"""A job of many simulated members in one process: real coordinators, an etcd in memory, and a network that can be cut.

    world = World(64, quiet)
    world.run(until=world.all_train, seconds=60)
    world.cut({"m0": 1, "m1": 1})               # m0 and m1 reach each other, and not the others nor etcd
    world.kill(["m7"])
    world.steps                                 # generation and number of each step, in the order of time

What a session does is done by one thread for all members, so the order of the steps is exact. A step is made when all
members of a generation have entered it, have one state, reach each other and are in touch with etcd
(``Coordinator.in_touch``), as the sums and the fence of a real step require.

A member gives its generation up for what a real one would notice, and no more: a record says that it is broken, another
member's port is closed, one has closed its connection to this one, one hasn't answered for ``SILENT_SECONDS``, or one
hasn't connected within ``CONNECT_SECONDS``. So a member that is cut off looks like one that is frozen, and a process
that has ended is known to have only to those that reach its machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import answer
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.client import Event, Snapshot
from tidewater.elastic.etcd.ranges import Range
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.hooks import Hooks
from tidewater.elastic.membership.rules import Generation, Limits, Member, Seat, lost_members
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.observe.log import Log

LEASE_SECONDS = 1
SILENT_SECONDS, CONNECT_SECONDS = 0.4, 3.0
_PATIENCE_SECONDS = 0.5
_TICK_SECONDS = 0.02


class _Line:
    """A member's connection to etcd; what isn't overridden here is etcd's own."""

    def __init__(self, store: FakeStore, is_cut: Callable[[], bool]) -> None:
        self._store, self._is_cut = store, is_cut

    def __getattr__(self, name: str) -> Any:
        if self._is_cut():
            raise StoreError("cut off")
        return getattr(self._store, name)

    def read_ranges(self, ranges: Sequence[Range]) -> Snapshot:
        if self._is_cut():
            raise StoreError("cut off")
        return self._store.read_ranges(ranges)

    def watch(self, starts: Mapping[Range, int]) -> _Watch:
        if self._is_cut():
            raise StoreError("cut off")
        return _Watch(self._store.watch(starts), self._is_cut)


class _Watch:
    def __init__(self, watch: Any, is_cut: Callable[[], bool]) -> None:
        self._watch, self._is_cut = watch, is_cut

    def __iter__(self) -> Iterator[tuple[Event, ...]]:
        for events in self._watch:
            if self._is_cut():
                raise StoreError("cut off")
            yield events

    def close(self) -> None:
        self._watch.close()


@dataclass
class Process:
    """One member: what its training knows."""

    name: str
    coordinator: Coordinator
    entered: Generation | None = None
    entered_at: float = 0.0
    """When (monotonic) it began to connect."""
    state: int | None = None
    """Number of the last step in its state; None if it has none."""
    synced: int = 0
    """Number of the last generation in which it had the state of all."""
    given_up: int = 0
    """Number of the last generation that it has given up."""


class World:
    """The members. ``close`` ends them."""

    def __init__(self, members: int, log: Log) -> None:
        self._store = FakeStore(time.monotonic)
        self._side, self._side_before = dict[str, int](), dict[str, int]()
        self._cut_at = 0.0
        """When (monotonic) the network was cut last; those that are apart now and weren't before have noticed later."""
        self._etcd, self._away = 0, frozenset[str]()
        self._dead: set[str] = set()
        self._log = log
        self.living: dict[str, Process] = {}
        self.started = 0
        """How many processes have been started."""
        self.steps: list[tuple[int, int]] = []
        """Generation and number of each step."""
        self.seats: tuple[Seat, ...] = ()
        """The members that made the last step."""
        for number in range(members):
            self.start(f"m{number}")

    def start(self, name: str) -> None:
        """Start a process, which joins the job."""
        me = Member(name, name, "127.0.0.1", 1, "signature", ready_after=0)
        limits = Limits(1, 4096, _PATIENCE_SECONDS)
        line: Any = _Line(self._store, lambda: name in self._dead or not self._reaches_etcd(name))
        coordinator = Coordinator(line, "job", me, limits=limits, lease_seconds=LEASE_SECONDS, log=self._log)
        process = Process(name, coordinator)
        coordinator.start(
            Hooks(
                is_dead=lambda seat: self._sign(name, seat) is Sign.ENDED or seat.id in self._unreachable(process),
                look=lambda seat: self._sign(name, seat),
                unreachable=lambda: self._unreachable(process),
                send_votes=lambda seat, votes, turn, _: self._hears(name, seat, votes, turn),
            )
        )
        coordinator.announce()
        self.living[name] = process
        self.started += 1

    def kill(self, names: Sequence[str]) -> None:
        """End processes as SIGKILL does."""
        self._dead |= set(names)
        for name in names:
            self.living.pop(name).coordinator.stop()

    def cut(self, sides: Mapping[str, int], *, etcd: int = 0, away: Collection[str] = ()) -> None:
        """Cut the network.

        Args:
            sides: Members on different sides don't reach each other; those that aren't named are on side 0.
            etcd: The side of etcd; on none of them, it is lost for a time.
            away: Members that reach their side, but not etcd.
        """
        self._side_before, self._side, self._cut_at = self._side, dict(sides), time.monotonic()
        self._etcd, self._away = etcd, frozenset(away)

    def run(self, *, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let them train for some seconds. Return early, and True, when ``until`` does."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for process in list(self.living.values()):
                self._train(process)
            self._step()
            if until():
                return True
            time.sleep(_TICK_SECONDS)
        return False

    def all_train(self) -> bool:
        """Return whether the last step was made by all that live."""
        number = self.steps[-1][0] if self.steps else 0
        entered = [each.entered for each in self.living.values()]
        return all(each and each.number == number and len(each.members) == len(entered) for each in entered)

    def close(self) -> None:
        for process in self.living.values():
            process.coordinator.stop()

    def _train(self, process: Process) -> None:
        """Do what a session does between two steps."""
        view, generation = process.coordinator.view, process.entered
        current = view.generation
        if current and current.rank(process.name) is not None and current.number > process.given_up:
            if generation is None or current.number > generation.number:
                process.entered, process.entered_at = current, time.monotonic()
                generation = current
        elif current and current.rank(process.name) is None and current.number > process.given_up:
            self._give_up(process, current.number)
        if generation and process.given_up < generation.number and self._is_broken(process, generation):
            self._give_up(process, generation.number)

    def _is_broken(self, process: Process, generation: Generation) -> bool:
        if lost_members(process.coordinator.view, generation, process.name):
            return True
        is_late = time.monotonic() > process.entered_at + CONNECT_SECONDS
        others = (seat for seat in generation.members if seat.id != process.name)
        return any(self._has_lost(process, seat, is_late) for seat in others)

    def _has_lost(self, process: Process, seat: Seat, is_late: bool) -> bool:
        """Return whether a member knows that another one takes no part in the generation that it has entered."""
        if not self._is_near(process.name, seat.id):
            return self._is_silent(process.name, seat.id)
        other = self.living.get(seat.id)
        if other is None or process.entered is None:
            return True  # its port is closed
        number = process.entered.number
        if other.entered is None or other.entered.number < number:
            return is_late
        return other.given_up >= number  # it has closed its connections

    def _give_up(self, process: Process, number: int) -> None:
        process.given_up = number
        process.coordinator.ready_after(number)

    def _step(self) -> None:
        """Make a step in each generation in which it is possible."""
        generations = {each.entered.number: each.entered for each in self.living.values() if each.entered}
        for number, generation in sorted(generations.items()):
            members = [self.living.get(seat.id) for seat in generation.members]
            together = [each for each in members if each and each.entered == generation and each.given_up < number]
            if len(together) < len(members) or not all(each.coordinator.in_touch() for each in together):
                continue
            if any(not self._reaches(one.name, each.name) for one in together[:1] for each in together):
                continue
            state = max((each.state or 0 for each in together), default=0)
            for each in together:
                if each.synced < number:
                    each.synced = number
                    each.coordinator.synced(number)
                each.state = state + 1
            self.steps.append((number, state + 1))
            self.seats = generation.members

    def _reaches_etcd(self, name: str) -> bool:
        return self._side.get(name, 0) == self._etcd and name not in self._away

    def _reaches(self, one: str, other: str) -> bool:
        return other not in self._dead and self._is_near(one, other)

    def _is_near(self, one: str, other: str) -> bool:
        """Return whether the network connects their machines."""
        return self._side.get(one, 0) == self._side.get(other, 0)

    def _is_silent(self, one: str, other: str) -> bool:
        """Return whether one has noticed that the other, which is not near, does not answer."""
        before = self._side_before.get(one, 0) == self._side_before.get(other, 0)
        return not before or time.monotonic() > self._cut_at + SILENT_SECONDS

    def _sign(self, name: str, seat: Seat) -> Sign:
        if not self._is_near(name, seat.id):
            return Sign.SILENT
        return Sign.ENDED if seat.id in self._dead else Sign.ANSWERS

    def _hears(self, name: str, seat: Seat, votes: Mapping[str, str], turn: int) -> Collection[str] | None:
        other = self.living.get(seat.id)
        return answer(other.coordinator, votes, turn) if other and self._reaches(name, seat.id) else None

    def _unreachable(self, process: Process) -> frozenset[str]:
        """Return the members of its generation that its heartbeats do not reach."""
        seats, near = process.entered.members if process.entered else (), self._is_near
        return frozenset(
            seat.id
            for seat in seats
            if (seat.id in self._dead if near(process.name, seat.id) else self._is_silent(process.name, seat.id))
        )
