"""A worker that lost contact commits no step if others have continued without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainer.errors import GroupBroken
from trainer.loop import Loop
from trainer.membership.rules import Generation, Member
from trainer.observe.log import Log

GENERATION = Generation(1, 9, (Member("a", "a", "127.0.0.1", 1, 2, "signature", 0),), "start")


class Etcd:
    """What a coordinator knows, and what it learns during a wait."""

    def __init__(self, *, number: int, leases_lost: int, in_touch: bool = True) -> None:
        self.view = SimpleNamespace(number=1 if not in_touch else number)
        self.leases_lost, self._in_touch, self._number = leases_lost, in_touch, number

    def in_touch(self) -> bool:
        return self._in_touch

    def wait(self, *_: object) -> bool:
        self._in_touch, self.view.number = True, self._number
        return False


def looked(etcd: Etcd, loop: Loop | None = None) -> Loop:
    group = SimpleNamespace(check=lambda: None)
    config: Any = SimpleNamespace(least_members=1, most_members=2)
    parts: Any = SimpleNamespace(coordinator=etcd, group=group)
    if loop is None:
        loop = Loop(config, parts, Log("a"))
    loop._parts = parts
    loop._stay_in_touch(GENERATION)
    return loop


def test_all_members_agree_on_a_membership_change_while_none_lost_contact() -> None:
    looked(Etcd(number=2, leases_lost=0))


@pytest.mark.parametrize("in_touch", [True, False], ids=["back already", "still away"])
def test_a_worker_that_lost_its_lease_continues_only_if_no_other_worker_continued(in_touch: bool) -> None:
    loop = looked(Etcd(number=1, leases_lost=1, in_touch=in_touch))
    with pytest.raises(GroupBroken, match="others continued"):
        looked(Etcd(number=2, leases_lost=2, in_touch=in_touch), loop)


def test_an_earlier_lost_lease_does_not_stop_a_worker_later() -> None:
    loop = looked(Etcd(number=1, leases_lost=1))
    looked(Etcd(number=2, leases_lost=1), loop)
