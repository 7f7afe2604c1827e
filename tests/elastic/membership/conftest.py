"""Workers that join a job in an etcd in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.membership.coordinators import PATIENCE_SECONDS, Clock, Join, names, seen
from tidewater.elastic.membership import coordinator as coordinator_module
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.hooks import Hooks
from tidewater.elastic.membership.rules import Limits, Member, Seat, View
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.observe.log import Log


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> FakeStore:
    return FakeStore(clock)


@pytest.fixture
def join(store: FakeStore, quiet: Log) -> Iterator[Join]:
    joined = []

    def join(
        name: str,
        dead: Callable[[Seat], bool] = lambda member: False,
        sign: Sign = Sign.SILENT,
        lease_seconds: int = 2,
        most: int = 3,
        **hooks: Any,
    ) -> Coordinator:
        hooks = {"look": lambda member: sign, **hooks}
        me = Member(name, name, "127.0.0.1", 1, "signature", ready_after=0)
        limits = Limits(1, most, 0.5)
        coordinator = Coordinator(store, "job", me, limits=limits, lease_seconds=lease_seconds, log=quiet)

        seen[coordinator] = []

        def ask_for_a_place(view: View) -> None:
            seen[coordinator].append(names(view))
            if view.generation and view.generation.rank(name) is None and coordinator in joined:
                coordinator.ready_after(view.number)

        coordinator.start(Hooks(ask_for_a_place, dead, **hooks))
        assert coordinator.wait(lambda view: True, time.monotonic() + PATIENCE_SECONDS)
        coordinator.announce()
        joined.append(coordinator)
        ask_for_a_place(coordinator.view)
        return coordinator

    yield join
    for coordinator in joined:
        coordinator.stop()


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a missing record count for half a minute: no pause of this machine is as long."""
    monkeypatch.setattr(coordinator_module, "_LEAST_GRACE_SECONDS", 30.0)
