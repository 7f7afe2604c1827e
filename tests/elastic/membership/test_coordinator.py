"""Workers find each other and agree on a membership through a store."""

from __future__ import annotations

import json
import time

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Clock, Join, has, reaches, record_of, within
from tidewater.contract import keys
from tidewater.elastic.errors import RecordError, TrainerError
from tidewater.elastic.etcd.secret import obtain, restore
from tidewater.elastic.membership import coordinator as coordinator_module
from tidewater.elastic.membership.records import generation_to_json, member_to_json
from tidewater.elastic.membership.rules import Generation, Member, Saved, lost_members
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.observe.log import Log


def test_workers_find_each_other_and_agree(join: Join) -> None:
    a, b = join("a"), join("b")
    assert reaches(a, "ab")
    assert reaches(b, "ab")
    assert a.view.generation == b.view.generation


def test_all_workers_know_of_the_last_checkpoint_and_a_later_one_is_recorded_if_etcd_was_away(
    join: Join, store: FakeStore
) -> None:
    a, b = join("a"), join("b")
    a.saved(200, "/checkpoints")
    assert within(PATIENCE_SECONDS, lambda: b.view.saved == Saved(200, "/checkpoints"))
    store.away = True
    a.saved(400, "/checkpoints")
    store.away = False
    a.saved(600, "/checkpoints,s3://bucket/run")
    assert within(PATIENCE_SECONDS, lambda: b.view.saved == Saved(600, "/checkpoints,s3://bucket/run"))


def test_a_worker_that_wants_to_leave_is_removed(join: Join) -> None:
    a, b = join("a"), join("b")
    assert reaches(b, "ab")
    a.leave()
    assert reaches(b, "b")


def test_a_peer_whose_process_has_ended_is_removed_at_once(join: Join) -> None:
    gone: set[str] = set()
    a, b = join("a", lambda member: member.id in gone), join("b")
    assert reaches(a, "ab")
    assert reaches(b, "ab")
    gone.add("b")
    a.ready_after(a.view.number)
    assert reaches(a, "a")


def test_a_change_soon_after_a_renewal_of_the_lease_is_one_request(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The survivors of a loss wait for it: a renewal before it would be a second round trip."""
    one = join("a", lease_seconds=3600)
    assert reaches(one, "a")
    renewed: list[int] = []

    def keep_alive(lease: int) -> bool:
        renewed.append(lease)
        return True

    monkeypatch.setattr(store, "keep_alive", keep_alive)
    one.ready_after(one.view.number)
    one.synced(one.view.number)
    assert within(PATIENCE_SECONDS, lambda: one.view.members[0].state_of > 0)
    assert one.view.members[0].ready_after > 0
    assert renewed == []


def test_a_worker_whose_lease_expired_registers_again(join: Join, clock: Clock, store: FakeStore) -> None:
    a = join("a")
    assert reaches(a, "a")
    before = record_of(store, "a")
    clock.now += 60
    store.read("/")
    assert within(PATIENCE_SECONDS, lambda: record_of(store, "a") not in (0, before))


@pytest.mark.usefixtures("long_grace")
def test_after_an_outage_longer_than_a_lease_all_continue_in_the_same_generation(
    join: Join, clock: Clock, store: FakeStore
) -> None:
    a, b = join("a", sign=Sign.ANSWERS), join("b", sign=Sign.ANSWERS)
    assert reaches(a, "ab")
    assert reaches(b, "ab")
    before, records = a.view.generation, [record_of(store, name) for name in "ab"]
    store.away = True
    time.sleep(1)
    clock.now += 60
    store.away = False
    assert within(PATIENCE_SECONDS, lambda: all(record_of(store, name) not in (0, *records) for name in "ab"))
    time.sleep(1.5)
    for each in (a, b):
        assert each.view.generation == before
        assert before
        assert lost_members(each.view, before, each.view.members[0].id) == []


@pytest.mark.parametrize(
    ("sign", "grace", "bounds"),
    [
        pytest.param(Sign.SILENT, 30.0, (0.0, 20.0), id="no-answer"),
        pytest.param(Sign.ANSWERS, 1.0, (0.8, 30.0), id="answers-but-writes-none"),
    ],
)
def test_a_member_without_a_record_is_lost_unless_it_answers_and_soon_writes_it_again(
    join: Join,
    store: FakeStore,
    monkeypatch: pytest.MonkeyPatch,
    sign: Sign,
    grace: float,
    bounds: tuple[float, float],
) -> None:
    monkeypatch.setattr(coordinator_module, "_LEAST_GRACE_SECONDS", grace)
    lease = store.grant(1000)
    b = Member("b", "b", "127.0.0.1", 1, "signature", ready_after=0)
    store.put(keys.member("job", "b"), member_to_json(b), lease)
    a = join("a", sign=sign)
    assert reaches(a, "ba") or reaches(a, "ab")
    generation = a.view.generation
    assert generation
    began = time.monotonic()
    store.revoke(lease)
    assert a.wait(lambda view: lost_members(view, generation, "a") == ["b"], began + PATIENCE_SECONDS)
    least, most = bounds
    assert least <= time.monotonic() - began <= most


def test_members_with_a_record_are_not_asked_while_the_others_can_continue_without_them(join: Join) -> None:
    """Waiting for the answer of a frozen peer would delay the survivors."""
    asked: list[Member] = []
    a, _ = join("a", dead=lambda member: member.id == "b", look=asked.append), join("b")
    assert reaches(a, "ab")
    a.ready_after(a.view.number)
    assert reaches(a, "a")
    assert asked == []


def test_a_newcomer_asks_for_holders_of_the_state_before_it_starts_from_a_checkpoint(
    join: Join, store: FakeStore
) -> None:
    a = Member("a", "a", "127.0.0.1", 1, "signature", ready_after=0, state_of=3)
    me = Member("b", "b", "127.0.0.1", 1, "signature", ready_after=0)
    lease = store.grant(1000)
    store.put(keys.member("job", "a"), member_to_json(a), lease)
    store.put(keys.generation("job"), generation_to_json(Generation(4, 9, (a, me), "joined", state_of=3)))
    sign = [Sign.SILENT]
    b = join("b", dead=lambda member: True, look=lambda member: sign[0])
    b.ready_after(4)
    assert not b.wait(lambda view: view.number > 4, time.monotonic() + 2)
    sign[0] = Sign.ENDED
    assert reaches(b, "b")


@pytest.mark.usefixtures("long_grace")
def test_a_worker_that_ended_gracefully_does_not_count_as_missing(join: Join) -> None:
    a, b = join("a", sign=Sign.ANSWERS), join("b", sign=Sign.ANSWERS)
    assert reaches(a, "ab")
    b.stop()
    assert a.wait(lambda view: view.member("b") is None, time.monotonic() + 20)


def test_a_worker_that_lost_contact_commits_no_step_before_it_knows_the_others_progress(
    join: Join, store: FakeStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = [0.0]
    now = time.monotonic
    monkeypatch.setattr(coordinator_module, "_clock", lambda: now() + skipped[0])
    a = join("a", lease_seconds=20)  # so that the limit is four times as many seconds, and no pause matters
    assert reaches(a, "a")
    assert a.in_touch()
    store.away = True
    skipped[0] = 70
    assert a.in_touch()
    skipped[0] = 80
    assert not a.in_touch()
    generation = Generation(2, 9, (Member("n", "n", "127.0.0.1", 1, "signature", 0),), "lost")
    clock.now += 60
    store.away = False
    store.put(keys.generation("job"), generation_to_json(generation))
    assert within(PATIENCE_SECONDS, a.in_touch)
    assert a.view.number >= 2
    assert a.leases_lost == 1


def test_a_workers_record_has_its_state_and_its_unreachable_peers(join: Join) -> None:
    unreachable = {"b"}
    a = join("a", unreachable=lambda: frozenset(unreachable))
    assert reaches(a, "a")
    a.synced(1)
    assert a.wait(lambda view: has(view, "a", state_of=1, unreachable=()), time.monotonic() + PATIENCE_SECONDS)
    a.ready_after(1)
    assert a.wait(lambda view: has(view, "a", state_of=1, unreachable=("b",)), time.monotonic() + PATIENCE_SECONDS)
    unreachable.clear()
    assert a.wait(lambda view: has(view, "a", state_of=1, unreachable=()), time.monotonic() + PATIENCE_SECONDS)


def test_training_continues_while_etcd_is_unreachable(join: Join, store: FakeStore) -> None:
    a, b = join("a"), join("b")
    assert reaches(a, "ab")
    generation = a.view.generation
    store.away = True
    time.sleep(3)
    assert a.view.generation == generation
    assert generation
    assert lost_members(a.view, generation, "a") == []
    store.away = False
    assert reaches(b, "ab")


def test_after_a_compaction_all_records_are_read_again(join: Join, store: FakeStore) -> None:
    a = join("a")
    assert reaches(a, "a")
    store.compact()
    join("b")
    assert reaches(a, "ab")


@pytest.mark.parametrize("version", [3, 99])
def test_a_newcomer_with_a_record_of_another_version_is_refused_by_name_and_the_others_go_on(
    join: Join, store: FakeStore, quiet: Log, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    said: list[dict[str, str]] = []
    monkeypatch.setattr(quiet, "event", lambda name, **more: said.append({"event": name, **more}))
    a = join("a")
    assert reaches(a, "a")
    store.put(keys.member("job", "x"), json.dumps({"version": version}).encode())
    join("b")
    assert reaches(a, "ab")
    (refused,) = [each for each in said if each["event"] == "member_refused" and each["member"] == "x"][:1]
    assert f"has version {version}" in refused["reason"]
    assert a.view.member("x") is None


def test_a_worker_among_members_with_records_of_another_version_ends_with_the_cause(
    join: Join, store: FakeStore
) -> None:
    """Otherwise they would count as lost, and it would take their job over."""
    x = Member("x", "x", "127.0.0.1", 1, "signature", ready_after=0)
    store.put(keys.member("job", "x"), b'{"version": 99}')
    store.put(keys.generation("job"), generation_to_json(Generation(4, 9, (x,), "joined")))
    with pytest.raises(RecordError, match="version 99"):
        join("a")


def test_a_generation_of_another_version_is_reported_to_the_waiting_caller(join: Join, store: FakeStore) -> None:
    a = join("a")
    assert reaches(a, "a")
    store.put(keys.generation("job"), b'{"version": 99}')
    with pytest.raises(RecordError, match="version 99"):
        a.wait(lambda view: False, time.monotonic() + PATIENCE_SECONDS)


def test_a_worker_that_returns_to_an_etcd_without_data_restores_the_jobs_secret_first(
    join: Join, store: FakeStore, clock: Clock
) -> None:
    key = keys.secret("job")
    secret = obtain(store, key)
    a = join("a", returning=lambda: restore(store, key, secret))
    assert reaches(a, "a")
    store.delete(key)
    clock.now += 60  # its lease is lost
    assert within(PATIENCE_SECONDS, lambda: a.leases_lost == 1 and a.view.member("a") is not None)
    assert obtain(store, key) == secret


def test_a_worker_that_finds_another_secret_of_its_job_ends_with_the_cause(
    join: Join, store: FakeStore, clock: Clock
) -> None:
    key = keys.secret("job")
    secret = obtain(store, key)
    a = join("a", returning=lambda: restore(store, key, secret))
    assert reaches(a, "a")
    store.delete(key)
    obtain(store, key)
    clock.now += 60
    with pytest.raises(TrainerError, match="must start again"):
        a.wait(lambda view: False, time.monotonic() + PATIENCE_SECONDS)


def test_an_unreachable_etcd_is_said_once_and_not_at_every_attempt(
    join: Join, store: FakeStore, quiet: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(quiet, "event", lambda name, **_: said.append(name))
    coordinator = join("a")
    store.away = True
    for _ in range(5):
        coordinator._publish()
    store.away = False
    assert said.count("etcd_unreachable") == 1
