"""The further processes of a worker follow the records in etcd, write none, and have counterparts of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Clock, names
from tidewater.contract import keys
from tidewater.elastic.addresses import Address
from tidewater.elastic.membership import records
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.hooks import Hooks
from tidewater.elastic.membership.rules import Generation, Limits, Member, View, further
from tidewater.elastic.observe.log import Log
from tidewater.elastic.sharded.membership import Secondary, of_process

Join = Callable[[str], None]
PATIENCE = Limits(1, 3, 0.5)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore(Clock())


@pytest.fixture
def secondary(store: FakeStore, quiet: Log) -> Iterator[Secondary]:
    """Return that of a further process of the worker a."""
    made = Secondary(store, "job", member("a"), limits=PATIENCE, lease_seconds=2, log=quiet)
    yield made
    made.stop()


@pytest.fixture
def join(store: FakeStore, quiet: Log) -> Iterator[Join]:
    """Return what lets the first process of a worker join."""
    joined: list[Coordinator] = []

    def join(name: str) -> None:
        joined.append(Coordinator(store, "job", member(name), limits=PATIENCE, lease_seconds=2, log=quiet))
        joined[-1].start(Hooks())
        assert joined[-1].wait(lambda view: True, time.monotonic() + PATIENCE_SECONDS)
        joined[-1].announce()

    yield join
    for each in joined:
        each.stop()


def member(name: str) -> Member:
    return Member(name, name, "127.0.0.1", 1, "signature", ready_after=0)


def seen(secondary: Secondary, members: str) -> bool:
    return secondary.wait(lambda view: names(view) == members, time.monotonic() + PATIENCE_SECONDS)


def test_it_hears_of_each_generation_and_lets_its_process_know(secondary: Secondary, join: Join) -> None:
    heard: list[str] = []

    def changed(view: View) -> None:
        heard.append(names(view))

    secondary.start(Hooks(changed))
    join("a")
    assert seen(secondary, "a")
    join("b")
    assert seen(secondary, "ab")
    assert "ab" in heard


def test_it_writes_no_record_whatever_its_process_reports(secondary: Secondary, join: Join, store: FakeStore) -> None:
    join("a")
    secondary.start(Hooks())
    assert seen(secondary, "a")
    before = store.read(keys.job("job"))
    secondary.announce()
    secondary.ready_after(7, fruitful=7)
    secondary.synced(7)
    secondary.leave()
    secondary.saved(3, "there")
    secondary.finish(b"{}")
    assert secondary.in_touch()
    secondary.stop()
    after = store.read(keys.job("job"))
    assert {entry.key: entry.mod_revision for entry in before.entries} == {
        entry.key: entry.mod_revision for entry in after.entries
    }


def test_the_counterparts_of_a_process_are_those_of_its_number() -> None:
    members = tuple(
        Member(name, name, "10.0.0.1", port, "s", 0, shard_ports=(port + 1, port + 2))
        for name, port in (("a", 10), ("b", 20))
    )
    stored = records.generation_from_json(records.generation_to_json(Generation(3, 9, members, "joined")))
    assert [each.address.port for each in of_process(stored, 0).members] == [10, 20]
    assert [each.address.port for each in of_process(stored, 2).members] == [12, 22]
    assert of_process(stored, 2).uuid == 9


def test_the_counterparts_of_a_process_on_another_machine_are_at_its_host() -> None:
    places = [Address(f"10.0.0.{each // 2}", 10 + each, "a") for each in range(4)]
    far = Member("a", "a", *places[0][:2], "s", 0, **further(places))
    near = Member("b", "b", "10.0.0.9", 20, "s", 0, **further([Address("10.0.0.9", 20 + each) for each in range(4)]))
    assert near.shard_hosts == ()
    stored = records.generation_from_json(records.generation_to_json(Generation(3, 9, (far, near), "joined")))
    found = [[each.address[:2] for each in of_process(stored, index).members] for index in (1, 3)]
    assert found == [[("10.0.0.0", 11), ("10.0.0.9", 21)], [("10.0.0.1", 13), ("10.0.0.9", 23)]]
