"""The real etcd and the fake one behave as the trainer requires."""

from __future__ import annotations

import threading
import time

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.workers import free_port
from tests.processes import eventually
from tidewater.elastic.errors import ConfigError, StoreError
from tidewater.elastic.etcd.client import EtcdStore, Event, Store
from tidewater.elastic.etcd.ranges import Range, only, under


@pytest.fixture(params=["etcd", "fake"])
def store(request: pytest.FixtureRequest) -> Store:
    return open_store(request, idle_seconds=1)


@pytest.fixture(params=["etcd", "fake"])
def patient_store(request: pytest.FixtureRequest) -> Store:
    """Return a store with watches that don't end while a busy machine delays the next event."""
    return open_store(request, idle_seconds=300)


def open_store(request: pytest.FixtureRequest, *, idle_seconds: float) -> Store:
    if request.param == "fake":
        return FakeStore(time.monotonic, idle_seconds=idle_seconds)
    return EtcdStore((request.getfixturevalue("etcd"),), idle_seconds=idle_seconds)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/test/{request.node.name}/"


def test_written_values_are_read_back_with_their_revisions(store: Store, prefix: str) -> None:
    store.put(f"{prefix}a", b"1")
    store.put(f"{prefix}a", b"zwei")
    store.put(f"{prefix}b", bytes(range(256)))
    snapshot = store.read(prefix)
    a, b = snapshot.entries
    assert (a.value, b.value) == (b"zwei", bytes(range(256)))
    assert a.create_revision < a.mod_revision < b.mod_revision <= snapshot.revision


def test_compare_and_set_succeeds_for_only_one_of_two_writers(store: Store, prefix: str) -> None:
    assert store.put_if(f"{prefix}g", b"first", 0)
    assert not store.put_if(f"{prefix}g", b"second", 0)
    token = store.read(prefix).entries[0].mod_revision
    assert store.put_if(f"{prefix}g", b"third", token)
    assert not store.put_if(f"{prefix}g", b"fourth", token)
    assert store.read(prefix).entries[0].value == b"third"


def test_another_key_is_written_with_the_first_one_at_the_same_revision_or_not_at_all(
    store: Store, prefix: str
) -> None:
    assert store.put_if(f"{prefix}g", b"first", 0, also=(f"{prefix}c", b"with it"))
    change, generation = store.read(prefix).entries
    assert (change.value, change.mod_revision) == (b"with it", generation.mod_revision)
    assert not store.put_if(f"{prefix}g", b"second", 0, also=(f"{prefix}c", b"too late"))
    assert store.read(prefix).entries == (change, generation)


def test_keys_of_a_lease_are_deleted_with_it(store: Store, prefix: str) -> None:
    lease = store.grant(60)
    store.put(f"{prefix}m", b"x", lease)
    assert store.put_if(f"{prefix}n", b"y", 0, lease)
    assert store.keep_alive(lease)
    store.revoke(lease)
    assert store.read(prefix).entries == ()
    assert not store.keep_alive(lease)
    store.revoke(lease)


def test_a_watch_reports_every_change_from_its_revision_on(patient_store: Store, prefix: str) -> None:
    store = patient_store
    store.put(f"{prefix}a", b"before")
    watch = store.watch({under(prefix): store.read(prefix).revision + 1})
    seen: list[Event] = []

    def read() -> None:
        for events in watch:
            seen.extend(events)

    reader = threading.Thread(target=read)
    reader.start()
    store.put(f"{prefix}a", b"after")
    store.put("/elsewhere", b"x")
    store.delete(f"{prefix}a")
    eventually(lambda: len(seen) >= 2)
    watch.close()
    reader.join(60)  # shorter than the watch lasts without an event
    assert not reader.is_alive()
    assert [(event.key, event.entry and event.entry.value) for event in seen] == [
        (f"{prefix}a", b"after"),
        (f"{prefix}a", None),
    ]


def test_a_watch_without_events_ends_after_its_timeout(store: Store, prefix: str) -> None:
    assert list(store.watch({under(prefix): store.read(prefix).revision + 1})) == []


def test_several_ranges_are_read_at_one_revision_with_their_numbers_of_keys(store: Store, prefix: str) -> None:
    for name in ("m/c", "m/a", "m/b", "z"):
        store.put(f"{prefix}{name}", b"1")
    store.put(f"{prefix}m/c", b"2")
    members = under(f"{prefix}m/")
    ranges = [
        only(f"{prefix}z"),
        Range(members.first, members.end, oldest=2),
        Range(members.first, members.end, oldest=0),
    ]
    snapshot = store.read_ranges(ranges)
    assert [each.key.removeprefix(prefix) for each in snapshot.entries] == ["z", "m/c", "m/a"]
    assert snapshot.counts == (1, 3, 3)
    assert snapshot.revision == store.read(prefix).revision


def test_a_watch_of_several_ranges_reports_the_changes_of_each_from_its_own_revision(
    patient_store: Store, prefix: str
) -> None:
    store = patient_store
    for name in ("a/1", "b/1", "c/1"):
        store.put(f"{prefix}{name}", b"")
    first = store.read(prefix).entries[0].mod_revision
    watch = store.watch({under(f"{prefix}a/"): first + 3, only(f"{prefix}c/1"): first})
    for name in ("a/2", "b/2", "c/2"):
        store.put(f"{prefix}{name}", b"")
    keys: set[str] = set()
    for events in watch:
        keys |= {event.key.removeprefix(prefix) for event in events}
        if len(keys) == 2:
            break
    watch.close()
    assert keys == {"c/1", "a/2"}


def test_a_dead_endpoint_is_skipped(etcd: str, prefix: str) -> None:
    store = EtcdStore((f"http://127.0.0.1:{free_port()}", etcd))
    store.put(f"{prefix}a", b"1")
    assert len(store.read(prefix).entries) == 1


def test_if_no_endpoint_answers_the_error_names_all_of_them() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StoreError, match=url):
        EtcdStore((url,)).read("/x/")


def test_an_endpoint_that_is_not_a_url_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="etcd:2379"):
        EtcdStore(("etcd:2379",))
