"""All workers of a job get one secret, whichever starts first."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tidewater.contract import keys
from tidewater.elastic.errors import RecordError, StoreError, TrainerError
from tidewater.elastic.etcd.secret import obtain, restore

KEY = keys.secret("job")


@pytest.fixture
def store() -> FakeStore:
    return FakeStore(time.monotonic)


def test_all_workers_of_a_job_get_the_same_secret(store: FakeStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: obtain(store, KEY), range(8)))
    assert len(found) == 1
    assert len(found.pop()) == 32
    assert obtain(store, KEY) != obtain(store, keys.secret("job-2"))


def test_the_secret_is_restored_when_etcd_has_lost_its_data(store: FakeStore) -> None:
    secret = obtain(store, KEY)
    store.delete(KEY)
    restore(store, KEY, secret)
    restore(store, KEY, secret)
    assert obtain(store, KEY) == secret


def test_a_worker_with_the_lost_secret_must_start_again_when_there_is_a_new_one(store: FakeStore) -> None:
    secret = obtain(store, KEY)
    store.delete(KEY)
    obtain(store, KEY)
    with pytest.raises(TrainerError, match="must start again"):
        restore(store, KEY, secret)


def test_an_unreadable_secret_and_an_unreachable_etcd_are_different_errors(store: FakeStore) -> None:
    store.put(KEY, b'{"version": 99}')
    with pytest.raises(RecordError, match="version 99"):
        obtain(store, KEY)
    store.away = True
    with pytest.raises(StoreError):
        obtain(store, KEY)
