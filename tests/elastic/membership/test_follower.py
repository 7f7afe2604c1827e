"""A follower reads everything again as soon as it is asked to, whatever it is doing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tidewater.elastic.etcd.client import Event, Snapshot, Watch
from tidewater.elastic.etcd.ranges import Range
from tidewater.elastic.membership.follower import Follower
from tidewater.elastic.membership.rules import View


class Silent:
    """A watch without changes, and what closed it."""

    def __init__(self) -> None:
        self.is_closed = False

    def __iter__(self) -> Iterator[tuple[Event, ...]]:
        if not self.is_closed:
            pytest.fail("it waits for a change, which comes seconds later or never")
        return iter(())

    def close(self) -> None:
        self.is_closed = True


class Etcd:
    """An etcd without records. While its second watch opens, something else happens; with the third one it all ends."""

    def __init__(self, meanwhile: Callable[[Follower], None]) -> None:
        self.reads = self.watches = 0
        self.meanwhile = meanwhile
        store: Any = self
        role: Any = SimpleNamespace(decides=True, me="a")
        unused: Any = None
        self.follower = Follower(store, "j", role, update=lambda change, _: change(View()), away=unused)

    def read(self, prefix: str) -> Snapshot:
        self.reads += 1
        return Snapshot(1, ())

    def read_ranges(self, ranges: object) -> Snapshot:
        self.reads += 1
        return Snapshot(1, (), (0,))

    def watch(self, starts: Mapping[Range, int]) -> Watch:
        self.watches += 1
        if self.watches == 1:
            self.meanwhile(self.follower)
        else:
            self.follower.stop()
        return Silent()


def becomes_one_of_many(follower: Follower) -> None:
    follower._role.decides = False
    follower.look()


@pytest.mark.parametrize("meanwhile", [Follower.again, becomes_one_of_many], ids=["asked", "role"])
def test_what_is_asked_while_a_watch_opens_does_not_wait_for_its_next_change(
    meanwhile: Callable[[Follower], None],
) -> None:
    """The watch that is there to be closed then is the one before."""
    etcd = Etcd(meanwhile)
    etcd.follower.run(lambda: math.inf)
    assert (etcd.reads, etcd.watches) == (2, 2)
