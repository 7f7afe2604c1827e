"""What a coordinator spares in a job with many members."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.elastic.etcd.fake_client import FakeStore, FakeWatch
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Join, answer, has, names, reaches, seen, within
from tidewater.contract import keys
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.client import Event, Snapshot
from tidewater.elastic.etcd.ranges import Range, under
from tidewater.elastic.membership import coordinator as coordinator_module
from tidewater.elastic.membership import deciders, votes
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.records import change_to_json, generation_to_json, member_to_json, vote_to_json
from tidewater.elastic.membership.rules import Generation, Member, Seat, View, lost_members


def test_a_worker_writes_its_record_once_though_others_records_arrive_before_its_own(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large job, a record for each change of the others delays the arrival of all of them further."""
    own, written, next_events, put = keys.member("job", "a"), list[str](), store.next_events, store.put

    def without_own(*arguments: Any) -> tuple[Event, ...]:
        return tuple(event for event in next_events(*arguments) if event.key != own)

    def counted(key: str, value: bytes, lease: int = 0) -> None:
        written.append(key)
        put(key, value, lease)

    monkeypatch.setattr(store, "next_events", without_own)
    monkeypatch.setattr(store, "put", counted)
    monkeypatch.setattr(store, "idle_seconds", PATIENCE_SECONDS)
    a = join("a", lease_seconds=3600)
    for index in range(10):
        name = f"m{index}"
        record = member_to_json(Member(name, name, "127.0.0.1", 1, "signature", ready_after=0, leaving=True))
        store.put(keys.member("job", name), record)
        assert within(PATIENCE_SECONDS, lambda name=name: a.view.member(name) is not None)  # type: ignore[misc]
    time.sleep(0.1)
    assert written.count(own) == 1


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job of three be a large one, in which only one member decides, and two have one relay."""
    monkeypatch.setattr(deciders, "MOST_WITHOUT", 2)
    monkeypatch.setattr(deciders, "DECIDERS", 1)
    monkeypatch.setattr(votes, "_GROUP", 2)


def together(join: Join, wanted: str, **more: Any) -> list[Coordinator]:
    """Return the members of a generation of all of them."""
    members = [join(name, most=len(wanted), lease_seconds=3600, **more) for name in wanted]
    for each in members:
        assert each.wait(lambda view: is_whole(view, wanted), time.monotonic() + PATIENCE_SECONDS)
    return members


def is_whole(view: View, wanted: str) -> bool:
    return view.generation is not None and sorted(each.id for each in view.generation.members) == sorted(wanted)


def gives_up(*members: Coordinator) -> None:
    for each in members:
        each.ready_after(each.view.number)


def voted(store: FakeStore, *, since: int) -> list[str]:
    """Return the votes written after this revision: one that joins may write its vote before it has a rank."""
    return [each.key for each in store.read(keys.votes("job")).entries if each.mod_revision > since]


@pytest.mark.usefixtures("large")
def test_in_a_large_job_what_a_member_says_is_read_by_those_that_decide_only(join: Join, store: FakeStore) -> None:
    a, b, *others = together(join, "abcde")
    number, before = a.view.number, store.read(keys.job("job")).revision
    for each in (b, *others):
        assert each.wait(lambda view: not view.whole, time.monotonic() + PATIENCE_SECONDS)
    b.synced(number)
    assert a.wait(lambda view: has(view, "b", state_of=number, unreachable=()), time.monotonic() + PATIENCE_SECONDS)
    assert voted(store, since=before) == [keys.vote("job", "b")]
    assert a.view.whole
    assert all(each.view.deciding == {"a"} for each in (a, b, *others))
    assert all([member.id for member in each.view.members] == [name] for name, each in zip("cde", others, strict=True))


class Lines:
    """Connections between members."""

    def __init__(self) -> None:
        self.members: dict[str, Coordinator] = {}
        self.cut: set[str] = set()

    def send(self, seat: Seat, votes: Mapping[str, str], turn: int, _: float) -> Collection[str] | None:
        return answer(self.members[seat.id], votes, turn) if seat.id not in self.cut else None

    def together(self, join: Join, wanted: str, **more: Any) -> list[Coordinator]:
        members = together(join, wanted, send_votes=self.send, **more)
        self.members = dict(zip(wanted, members, strict=True))
        for each in members:
            assert each.wait(lambda view: view.deciding == {"a"}, time.monotonic() + PATIENCE_SECONDS)
        return members


@pytest.mark.usefixtures("large")
def test_in_a_large_job_a_change_of_the_members_is_no_write_of_each_to_etcd(join: Join, store: FakeStore) -> None:
    lines = Lines()
    a, *others = lines.together(join, "abcde")
    number, before = a.view.number, store.read(keys.job("job")).revision
    for each in others:
        each.synced(number)
    for name in "bcde":
        assert a.wait(
            lambda view, name=name: has(view, name, state_of=number, unreachable=()),  # type: ignore[misc]
            time.monotonic() + PATIENCE_SECONDS,
        )
    assert all(each.wait(lambda view: view.members[0].state_of == number, time.monotonic() + 1) for each in others)
    gives_up(a, *others)
    for each in (a, *others):
        assert each.wait(lambda view: view.number > number, time.monotonic() + PATIENCE_SECONDS)
    assert not voted(store, since=before)
    assert store.read(keys.job("job")).revision - before <= 4, "the record of a, which decides; break; generation"


@pytest.mark.usefixtures("large")
def test_if_the_only_one_that_has_heard_the_votes_is_lost_the_next_one_hears_them(join: Join, store: FakeStore) -> None:
    gone: set[str] = set()
    lines = Lines()
    a, *others = lines.together(join, "abcde", dead=lambda member: member.id in gone)
    number = a.view.number
    for each in others:
        each.synced(number)
    assert within(PATIENCE_SECONDS, lambda: all(member.state_of == number for member in a.view.members[1:]))
    a._announced = False
    gives_up(*others)
    a.follower.stop()
    gone.add("a")
    lines.cut.add("a")
    for each in others:
        assert each.wait(lambda view: names(view) == "bcde", time.monotonic() + PATIENCE_SECONDS)
    generation = others[0].view.generation
    assert generation
    assert generation.state_of == number, "what only a has heard is known to the next one that decides"


@pytest.mark.usefixtures("large")
def test_a_member_that_ends_takes_no_vote(join: Join) -> None:
    a, *_ = Lines().together(join, "abcde")
    vote = vote_to_json(replace(Member("c", "c", "", 1, "", ready_after=0), state_of=a.view.number)).decode()
    assert a.hear({"c": vote, "x": vote}) == ["c"]
    a.stop()
    assert not answer(a, {"c": vote}, 1)


class Readers:
    """What those that don't decide read of the generation: its record, or its changes."""

    def __init__(self, store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.followed: list[Range] = []
        """The last ranges."""
        self.wholes = 0
        """How often a record was read or followed that has all members."""
        self._store, self._read, self._next = store, store.read_ranges, store.next_events
        monkeypatch.setattr(store, "read_ranges", self.read_ranges)
        monkeypatch.setattr(store, "next_events", self.next_events)

    def read_ranges(self, ranges: Sequence[Range]) -> Snapshot:
        found = self._read(ranges)
        self.wholes += any(each.key == keys.generation("job") for each in found.entries)
        return found

    def next_events(self, starts: Mapping[Range, int], ended: Callable[[], bool]) -> tuple[Event, ...]:
        found = self._next(starts, ended)
        if under(keys.job("job")) not in starts:  # those that decide follow everything
            self.wholes += any(each.key == keys.generation("job") for each in found)
        return found


@pytest.mark.usefixtures("large")
def test_in_a_large_job_those_that_do_not_decide_read_what_a_generation_changes(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Lines().together(join, "abcde")
    assert all(each.wait(lambda view: view.changes, time.monotonic() + PATIENCE_SECONDS) for each in members)
    time.sleep(2 * store.idle_seconds)  # each has followed the changes only since its last watch ended
    readers = Readers(store, monkeypatch)
    for leaver, left in (("e", "abcd"), ("c", "abd")):
        members["abcde".index(leaver)].leave()
        for name in left:
            each = members["abcde".index(name)]
            assert each.wait(lambda view, left=left: is_whole(view, left), time.monotonic() + PATIENCE_SECONDS)  # type: ignore[misc]
            assert each.view.generation_revision == members[0].view.generation_revision
    assert readers.wholes == 0
    assert members[1].view.generation == members[0].view.generation


def renamed(store: FakeStore, before: Generation, known: Generation | None) -> Generation:
    """Write a generation of the same members, and its change with respect to ``known``."""
    after = replace(before, number=before.number + 5, uuid=before.uuid + 1)
    (entry,) = store.read(keys.generation("job")).entries
    change = keys.change("job"), change_to_json(known, after)
    assert store.put_if(entry.key, generation_to_json(after), entry.mod_revision, also=change)
    return after


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("how", ["another one", "none", "deleted", "compacted"])
def test_a_member_that_has_missed_a_change_of_the_generation_reads_the_whole_record(
    join: Join, store: FakeStore, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Lines().together(join, "abcde")
    generation = members[0].view.generation
    assert generation
    if how == "deleted":
        store.delete(keys.change("job"))
        assert all(each.wait(lambda view: not view.changes, time.monotonic() + PATIENCE_SECONDS) for each in members)
    watch = store.watch
    if how == "compacted":  # before any of them can watch again
        monkeypatch.setattr(store, "watch", raises_store_error)
        time.sleep(2 * store.idle_seconds)
    known = replace(generation, uuid=generation.uuid + 7) if how == "another one" else None
    after = renamed(store, generation, generation if how == "compacted" else known)
    if how == "compacted":
        store.compact()
        monkeypatch.setattr(store, "watch", watch)
    for each in members:
        assert each.wait(lambda view: view.number >= after.number, time.monotonic() + PATIENCE_SECONDS)
        assert each.wait(lambda view: view.changes, time.monotonic() + PATIENCE_SECONDS)
    assert {each.view.generation for each in members} == {members[0].view.generation}


def raises_store_error(*_: Any) -> FakeWatch:
    raise StoreError("etcd is away")


def test_a_generation_of_a_small_job_is_one_record(join: Join, store: FakeStore) -> None:
    a, b = together(join, "ab")
    b.leave()
    assert reaches(a, "a")
    assert not store.read(keys.change("job")).entries
    assert not a.view.changes


@pytest.mark.usefixtures("large")
def test_a_job_that_was_large_once_goes_on_with_records_of_changes(join: Join, store: FakeStore) -> None:
    """A member that doesn't decide may not have noticed yet that all may."""
    a, b, c, *others = Lines().together(join, "abcde")
    for each in (*others, c):
        each.leave()
    assert reaches(a, "ab")
    for each in (*others, c):
        each.stop()
    assert a.wait(lambda view: not deciders.is_large(view), time.monotonic() + PATIENCE_SECONDS)
    b.leave()
    assert reaches(a, "a")
    (change,) = store.read(keys.change("job")).entries
    assert change.mod_revision == a.view.generation_revision


@pytest.mark.usefixtures("large")
def test_all_members_of_a_large_job_know_of_a_break_that_one_of_them_has_noticed(join: Join) -> None:
    members = together(join, "abcde")
    generation = members[0].view.generation
    assert generation
    gives_up(members[3])
    for each in (members[1], members[4]):
        assert each.wait(lambda view: bool(lost_members(view, generation, "")), time.monotonic() + PATIENCE_SECONDS)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("dead", [True, False], ids=["ended", "hangs"])
def test_if_the_member_that_decides_is_lost_another_one_decides(join: Join, dead: bool) -> None:
    gone: set[str] = set()
    members = together(join, "abcde", dead=lambda member: member.id in gone)
    number = members[0].view.number
    if dead:
        gone.add("a")
        members[0].follower.stop()
        members[0]._announced = False
    gives_up(*members[1:])

    def is_next(view: View) -> bool:
        # One that hung asks for its place again at once.
        return view.number > number and names(view) in ("bcde", "bcde" if dead else "bcdea")

    for each in members[1:]:
        assert each.wait(is_next, time.monotonic() + PATIENCE_SECONDS)


@pytest.mark.usefixtures("large")
def test_a_member_that_decides_shows_it_soon_after_etcd_refused_that_though_nothing_else_changes(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "_LONG_SECONDS", 3600.0)
    back, put = threading.Event(), store.put

    def put_if_back(key: str, value: bytes, lease: int = 0) -> None:
        if key == keys.deciding("job", "a") and not back.is_set():
            raise StoreError("etcd is away")
        put(key, value, lease)

    monkeypatch.setattr(store, "put", put_if_back)
    members = together(join, "abc")
    time.sleep(1)
    assert members[2].view.deciding == frozenset()
    back.set()
    assert members[2].wait(lambda view: view.deciding == {"a"}, time.monotonic() + PATIENCE_SECONDS)


def test_in_a_large_job_changes_that_come_shortly_after_one_another_are_one_view(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view takes time for each member, so a view for each of their changes would take the square of it."""
    monkeypatch.setattr(deciders, "_REST_SECONDS_OF_EACH", 0.02)
    lease = store.grant(1000)
    others = [Member(f"m{index}", "m", "127.0.0.1", 1, "", ready_after=0, leaving=True) for index in range(72)]

    def write(each: Member) -> None:
        store.put(keys.member("job", each.id), member_to_json(each), lease)

    a = join("a")
    assert reaches(a, "a")
    for each in others:
        write(each)
    for index, each in enumerate(others[:20], 1):
        write(replace(each, state_of=index))
        time.sleep(0.01)
    assert within(PATIENCE_SECONDS, lambda: has(a.view, "m19", state_of=20, unreachable=()))
    assert len(seen[a]) <= 8
