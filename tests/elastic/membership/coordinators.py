"""Workers with coordinators over an etcd in memory, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from weakref import WeakKeyDictionary

from tests.elastic.etcd.fake_client import FakeStore
from tidewater.contract import keys
from tidewater.elastic.membership.coordinator import Coordinator
from tidewater.elastic.membership.rules import View

Join = Callable[..., Coordinator]
PATIENCE_SECONDS = 60


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def names(view: View) -> str:
    return "".join(member.id for member in view.generation.members) if view.generation else ""


def record_of(store: FakeStore, name: str) -> int:
    """Return the revision at which the member's record was created; 0 if there is none."""
    entries = store.read(keys.member("job", name)).entries
    return entries[0].create_revision if entries else 0


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


seen: WeakKeyDictionary[Coordinator, list[str]] = WeakKeyDictionary()
"""The members of one generation after the other: some last only until a worker that was left out asks again."""


def reaches(coordinator: Coordinator, members: str) -> bool:
    """Return whether a generation of these members begins, or has begun since the last request."""
    views = seen[coordinator]
    found = within(PATIENCE_SECONDS, lambda: members in views)
    del views[: views.index(members) if found else 0]
    return found


def has(view: View, name: str, *, state_of: int, unreachable: tuple[str, ...]) -> bool:
    member = view.member(name)
    return member is not None and (member.state_of, member.unreachable) == (state_of, unreachable)


def answer(coordinator: Coordinator, votes: Mapping[str, str], turn: int) -> Collection[str]:
    """Return what a member answers to votes that another one sends it."""
    taken = coordinator.hear(votes)
    return coordinator.pass_on(votes, turn) if taken is None else taken
