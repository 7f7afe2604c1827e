"""Workers that find each other through a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from contract import keys
from tests.trainer.fake_store import FakeStore
from trainer.coordinator import Coordinator, Hooks
from trainer.errors import RecordError
from trainer.log import Log
from trainer.membership import Limits, Member, View

Join = Callable[..., Coordinator]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> FakeStore:
    return FakeStore(clock)


@pytest.fixture
def join(store: FakeStore, quiet: Log) -> Iterator[Join]:
    joined = []

    def join(name: str, dead: Callable[[Member], bool] = lambda member: False) -> Coordinator:
        me = Member(name, name, "127.0.0.1", 1, 2, "", ready_after=0)
        coordinator = Coordinator(store, "job", me, limits=Limits(1, 3, 0.5), lease_seconds=2, log=quiet)
        coordinator.start(Hooks(is_dead=dead))
        assert coordinator.wait(lambda view: True, time.monotonic() + 5)
        coordinator.announce("signature")
        joined.append(coordinator)
        return coordinator

    yield join
    for coordinator in joined:
        coordinator.stop()


def names(view: View) -> str:
    return "".join(member.id for member in view.generation.members) if view.generation else ""


def reaches(coordinator: Coordinator, members: str) -> bool:
    return coordinator.wait(lambda view: names(view) == members, time.monotonic() + 5)


def test_workers_find_each_other_and_agree(join: Join) -> None:
    a, b = join("a"), join("b")
    assert reaches(a, "ab")
    assert reaches(b, "ab")
    assert a.view.generation == b.view.generation


def test_a_leaver_is_let_go(join: Join) -> None:
    a, b = join("a"), join("b")
    assert reaches(b, "ab")
    a.leave()
    assert reaches(b, "b")


def test_a_dead_peer_is_replaced_at_once_when_its_process_is_known_to_be_gone(join: Join) -> None:
    gone: set[str] = set()
    a, b = join("a", lambda member: member.id in gone), join("b")
    assert reaches(b, "ab")
    gone.add("b")
    a.ready_after(a.view.number)
    assert reaches(a, "a")


def test_a_worker_whose_lease_ran_out_announces_itself_again(join: Join, clock: Clock, store: FakeStore) -> None:
    a = join("a")
    assert reaches(a, "a")
    clock.now += 60
    store.read("/")
    assert a.wait(lambda view: view.member("a") is None, time.monotonic() + 5)
    assert a.wait(lambda view: view.member("a") is not None, time.monotonic() + 10)


def test_a_worker_that_cannot_reach_etcd_loses_the_right_to_commit(join: Join, store: FakeStore) -> None:
    a = join("a")
    assert a.lease_holds()
    store.away = True
    deadline = time.monotonic() + 10
    while a.lease_holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    store.away = False
    while not a.lease_holds():
        assert time.monotonic() < deadline + 10
        time.sleep(0.1)


def test_a_compacted_history_is_read_anew(join: Join, store: FakeStore) -> None:
    a = join("a")
    assert reaches(a, "a")
    store.compact()
    join("b")
    assert reaches(a, "ab")


def test_a_record_of_another_version_is_reported_to_who_waits(join: Join, store: FakeStore) -> None:
    a = join("a")
    store.put(keys.member("job", "x"), b'{"version": 99}')
    with pytest.raises(RecordError, match="version 99"):
        a.wait(lambda view: False, time.monotonic() + 5)
