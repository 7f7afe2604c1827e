"""The master's record: what was saved is there for the next master, and a fenced one writes nothing."""

from __future__ import annotations

import json
import threading
import time

import pytest
from elasticdl.errors import ElasticDLError, InputError
from elasticdl.master import store as store_module
from elasticdl.master.store import KEPT_SECONDS, EtcdStateStore, Fenced, Interrupted, Key, MemoryStore

from tests.elastic.etcd.fake_client import FakeStore
from tidewater.contract import keys
from tidewater.elastic.errors import Refused, StoreError
from tidewater.elastic.etcd.client import Snapshot, Store


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def opened(client: Store, job: str, process: str = "one", run: str = "1") -> EtcdStateStore:
    return EtcdStateStore(client, Key(job, run, process))


def record(client: Store, job: str) -> dict[str, object]:
    (entry,) = client.read(keys.elasticdl_state(job, "1")).entries
    return dict(json.loads(entry.value))


def test_a_new_job_has_no_record(client: Store, job: str) -> None:
    assert opened(client, job).take_over() is None


def test_what_was_saved_last_is_there_for_the_next_master(client: Store, job: str) -> None:
    first = opened(client, job)
    first.take_over()
    for number in range(3):
        first.save({"number": number})
    assert opened(client, job, "two").take_over() == {"number": 2}


def test_another_run_of_the_same_job_starts_from_the_beginning(client: Store, job: str) -> None:
    first = opened(client, job)
    first.take_over()
    first.save({"number": 1})
    assert opened(client, job, run="2").take_over() is None


def test_a_master_that_was_taken_over_writes_nothing(client: Store, job: str) -> None:
    old, new = opened(client, job, "old"), opened(client, job, "new")
    old.take_over()
    old.save({"by": "old"})
    new.take_over()
    with pytest.raises(Fenced, match="another master of job"):
        old.save({"by": "old again"})
    new.save({"by": "new"})
    with pytest.raises(Fenced):
        old.save({"by": "old once more"})
    assert record(client, job)["state"] == {"by": "new"}


def test_of_many_masters_at_once_only_one_can_write_in_the_end(client: Store, job: str) -> None:
    stores = [opened(client, job, str(number)) for number in range(6)]
    threads = [threading.Thread(target=each.take_over) for each in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    able = []
    for each in stores:
        try:
            each.save({})
            able.append(each)
        except Fenced:
            continue
    assert len(able) == 1


class Unsure:
    """Writes, but then says that etcd did not answer; or does not write, and says the same."""

    def __init__(self, store: FakeStore, writes: bool) -> None:
        self._store, self._writes, self.failures = store, writes, 1
        self.read, self.delete = store.read, store.delete

    def put_if(self, key: str, value: bytes, mod_revision: int) -> bool:
        if not self.failures:
            return self._store.put_if(key, value, mod_revision)
        self.failures -= 1
        if self._writes:
            assert self._store.put_if(key, value, mod_revision)
        raise StoreError("no answer in time")


@pytest.mark.parametrize("writes", [True, False], ids=["written", "not-written"])
def test_a_save_without_an_answer_is_neither_lost_nor_taken_for_another_masters(job: str, writes: bool) -> None:
    fake = FakeStore(time.monotonic)
    unsure = Unsure(fake, writes)
    store = opened(unsure, job)  # type: ignore[arg-type]
    unsure.failures = 0
    store.take_over()
    for number in range(3):
        unsure.failures = 1
        store.save({"number": number})
        assert record(fake, job)["state"] == {"number": number}


def test_a_save_waits_for_an_etcd_that_is_away(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RETRY_SECONDS", 0.01)
    fake = FakeStore(time.monotonic)
    store = opened(fake, job)
    store.take_over()
    fake.away = True
    saving = threading.Thread(target=store.save, args=({"number": 1},))
    saving.start()
    fake.away = False
    saving.join(60)
    assert record(fake, job)["state"] == {"number": 1}


def test_waiting_for_etcd_can_be_interrupted(job: str) -> None:
    fake = FakeStore(time.monotonic)
    store = opened(fake, job)
    fake.away = True
    store.interrupt()
    with pytest.raises(Interrupted):
        store.take_over()


def test_the_first_metrics_of_an_evaluation_task_count(client: Store, job: str) -> None:
    store = opened(client, job)
    store.add_part(3, 7, b"first")
    store.add_part(3, 7, b"second")
    store.add_part(3, 8, b"other")
    store.add_part(30, 7, b"of another evaluation")
    assert store.parts(3) == {7: b"first", 8: b"other"}
    store.drop_parts(3)
    assert store.parts(3) == {}
    assert store.parts(30) == {7: b"of another evaluation"}


def test_the_largest_metrics_fit_into_etcd_and_larger_ones_are_refused(client: Store, job: str) -> None:
    store = opened(client, job)
    store.add_part(1, 1, bytes(store_module.MAX_PART_BYTES))
    assert len(store.parts(1)[1]) == store_module.MAX_PART_BYTES
    with pytest.raises(InputError, match="--num_minibatches_per_task"):
        store.add_part(1, 2, bytes(store_module.MAX_PART_BYTES + 1))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"not JSON", "master's record is not JSON"),
        (b'{"version": 99, "state": {}}', "version 99, .*: give the job a new name, or submit it again"),
        (b'{"version": 1, "state": {}}', "version 1, .*: give the job a new name, or submit it again"),
    ],
    ids=["damaged", "newer", "of-an-older-master"],
)
def test_a_record_of_another_kind_is_an_error(client: Store, job: str, value: bytes, said: str) -> None:
    client.put(keys.elasticdl_state(job, "1"), value)
    with pytest.raises(ElasticDLError, match=said):
        opened(client, job).take_over()
    (entry,) = client.read(keys.elasticdl_state(job, "1")).entries
    assert entry.value == value


def test_memory_keeps_the_same_things() -> None:
    store = MemoryStore()
    assert store.take_over() is None
    store.save({"number": 1})
    assert store.take_over() == {"number": 1}
    store.add_part(1, 1, b"first")
    store.add_part(1, 1, b"second")
    assert store.parts(1) == {1: b"first"}
    store.drop_parts(1)
    assert store.parts(1) == {}


def test_the_record_of_a_run_that_has_ended_is_kept_for_a_day(job: str) -> None:
    now = 0.0
    client = FakeStore(lambda: now, idle_seconds=30)
    first, other = opened(client, job), opened(client, job, run="2")
    for each in (first, other):
        each.take_over()
        each.save({"stage": "done"})
    first.expire()
    now = KEPT_SECONDS - 1.0
    assert opened(client, job, "two").take_over() == {"stage": "done"}
    first.expire()  # a master that was taken over: the record of the other one stays
    opened(client, job, "three").expire()
    now = 3.0 * KEPT_SECONDS
    assert opened(client, job, "four").take_over() == {"stage": "done"}
    ended = opened(client, job, run="2")
    ended.take_over()
    ended.expire()
    now = 5.0 * KEPT_SECONDS
    assert client.read(keys.elasticdl_state(job, "2")).entries == ()


@pytest.mark.parametrize("error", [StoreError("etcd is away"), Refused("permission denied")], ids=["away", "refused"])
def test_a_record_that_can_not_expire_is_no_failure_of_a_job_that_has_ended(
    job: str, error: StoreError, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, calls = FakeStore(time.monotonic), list[int]()

    def grant(seconds: int) -> int:
        calls.append(seconds)
        raise error

    store = opened(client, job)
    store.take_over()
    monkeypatch.setattr(client, "grant", grant)
    monkeypatch.setattr(store_module, "RETRY_SECONDS", 0.0)
    store.interrupt()  # so that a wait would end the test
    store.expire()
    assert calls == [KEPT_SECONDS]
    assert str(error) in caplog.text


def test_a_record_that_another_master_takes_over_meanwhile_does_not_expire(
    job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    client = FakeStore(lambda: now)
    old, new, read = opened(client, job, "old"), opened(client, job, "new"), client.read

    def taken_over_then(prefix: str) -> Snapshot:
        found = read(prefix)
        monkeypatch.undo()
        new.take_over()
        return found

    old.take_over()
    monkeypatch.setattr(client, "read", taken_over_then)
    old.expire()
    now = 3.0 * KEPT_SECONDS
    new.save({"by": "new"})
