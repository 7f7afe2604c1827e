"""What a coordinator spares in a job with many members."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Join, has, names, reaches, seen, within
from tidewater.contract import keys
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.client import Event
from tidewater.elastic.membership import coordinator as coordinator_module
from tidewater.elastic.membership import deciders, follower
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.records import member_to_json
from tidewater.elastic.membership.rules import Member, View, lost_members


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
    """Let a job of three be a large one, in which only one member decides."""
    monkeypatch.setattr(deciders, "MOST_WITHOUT", 2)
    monkeypatch.setattr(deciders, "DECIDERS", 1)


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


@pytest.mark.usefixtures("large")
def test_in_a_large_job_what_a_member_says_is_read_by_those_that_decide_only(join: Join, store: FakeStore) -> None:
    a, b, *others = together(join, "abcde")
    number = a.view.number
    for each in (b, *others):
        assert each.wait(lambda view: not view.whole, time.monotonic() + PATIENCE_SECONDS)
    b.synced(number)
    assert a.wait(lambda view: has(view, "b", state_of=number, unreachable=()), time.monotonic() + PATIENCE_SECONDS)
    assert [each.key for each in store.read(keys.votes("job")).entries] == [keys.vote("job", "b")]
    assert a.view.whole
    assert all(each.view.deciding == {"a"} for each in (a, b, *others))
    assert all([member.id for member in each.view.members] == [name] for name, each in zip("cde", others, strict=True))


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
    monkeypatch.setattr(follower, "_REST_SECONDS_OF_EACH", 0.02)
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
