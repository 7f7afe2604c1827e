"""A worker that lost contact makes nothing final if others have continued without it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.session.fencing import Fence

GENERATION = Generation(1, 9, (Member("a", "a", "127.0.0.1", 1, "signature", 0),), "start")
NEXT = replace(GENERATION, number=2, uuid=10)
ANOTHER_FIRST = replace(GENERATION, uuid=11)
"""What workers agree on that find an etcd without data."""


class Etcd:
    """What a coordinator knows, and what it learns during a wait."""

    def __init__(self, current: Generation, *, leases_lost: int, in_touch: bool = True, answers: bool = True) -> None:
        self.view = View(current if in_touch else GENERATION)
        self.leases_lost, self._in_touch, self._current, self._answers = leases_lost, in_touch, current, answers

    def in_touch(self) -> bool:
        return self._in_touch

    def wait(self, *_: object) -> bool:
        if self._answers:
            self._in_touch, self.view = True, View(self._current)
        return False


def fence(etcd: Etcd, before: Fence | None = None, *, overdue: bool = False) -> Fence:
    worker: Any = SimpleNamespace(coordinator=etcd, group=SimpleNamespace(check=lambda: None))
    made = Fence(worker, overdue=lambda: overdue, waits=lambda generation: None)
    if before:
        made._leases_lost = before._leases_lost
    return made


def stayed(etcd: Etcd, before: Fence | None = None) -> Fence:
    made = fence(etcd, before)
    made.check(GENERATION)
    return made


def test_all_members_agree_on_a_membership_change_while_none_lost_contact() -> None:
    stayed(Etcd(NEXT, leases_lost=0))


@pytest.mark.parametrize("current", [NEXT, ANOTHER_FIRST], ids=["next", "after etcd lost its data"])
@pytest.mark.parametrize("in_touch", [True, False], ids=["back already", "still away"])
def test_a_worker_that_lost_its_lease_continues_only_if_no_other_worker_continued(
    in_touch: bool, current: Generation
) -> None:
    before = stayed(Etcd(GENERATION, leases_lost=1, in_touch=in_touch))
    with pytest.raises(GroupBroken, match="others continued"):
        stayed(Etcd(current, leases_lost=2, in_touch=in_touch), before)


def test_an_earlier_lost_lease_does_not_stop_a_worker_later() -> None:
    before = stayed(Etcd(GENERATION, leases_lost=1))
    stayed(Etcd(NEXT, leases_lost=1), before)


def test_an_overdue_worker_that_cannot_ask_etcd_makes_nothing_final() -> None:
    with pytest.raises(GroupBroken, match="can't ask etcd"):
        fence(Etcd(GENERATION, leases_lost=0, in_touch=False, answers=False), overdue=True).check(GENERATION)


@pytest.mark.parametrize(
    ("etcd", "expected"),
    [
        pytest.param(Etcd(NEXT, leases_lost=0), False, id="planned"),
        pytest.param(Etcd(GENERATION, leases_lost=1, in_touch=False), False, id="nobody-continued"),
        pytest.param(Etcd(NEXT, leases_lost=1, in_touch=False), True, id="others-continued"),
        pytest.param(Etcd(NEXT, leases_lost=1, in_touch=False, answers=False), None, id="no-answer"),
    ],
)
def test_a_leaving_worker_finds_out_whether_others_continued(etcd: Etcd, expected: bool | None) -> None:
    patience_seconds = 0 if expected is None else 60
    assert fence(etcd).left_behind(GENERATION, time.monotonic() + patience_seconds) is expected
