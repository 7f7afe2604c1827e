"""What a coordinator spares in a job with many members."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Join, has, reaches, seen, within
from tidewater.contract import keys
from tidewater.elastic.etcd.client import Event
from tidewater.elastic.membership import following
from tidewater.elastic.membership.records import member_to_json
from tidewater.elastic.membership.rules import Member


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


def test_in_a_large_job_changes_that_come_shortly_after_one_another_are_one_view(
    join: Join, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view takes time for each member, so a view for each of their changes would take the square of it."""
    monkeypatch.setattr(following, "_REST_SECONDS_OF_EACH", 0.02)
    lease = store.grant(1000)
    others = [Member(f"m{index}", "m", "127.0.0.1", 1, "", ready_after=0, leaving=True) for index in range(72)]

    def write(each: Member) -> None:
        store.put(keys.member("job", each.id), member_to_json(each), lease)

    for each in others:
        write(each)
    a = join("a")
    assert reaches(a, "a")
    for index, each in enumerate(others[:20], 1):
        write(replace(each, state_of=index))
        time.sleep(0.01)
    assert within(PATIENCE_SECONDS, lambda: has(a.view, "m19", state_of=20, unreachable=()))
    assert len(seen[a]) <= 8
