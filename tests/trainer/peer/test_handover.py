"""Which rank's state is used at the start of a generation, and which members are waited for if no rank has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.errors import GroupBroken
from trainer.membership.rules import Generation, Member, View
from trainer.peer.handover import _await_leavers, plan
from trainer.state import Position

at = Position
NOBODY = at()
A, B = (Member(name, name, "127.0.0.1", 1, 2, "signature", 0) for name in "ab")
ALONE = Generation(5, 9, (A,), "left")


def test_a_newcomer_gets_the_state_of_the_survivors() -> None:
    assert plan([at(4, 100, 1), at(4, 100, 1), NOBODY]) == (0, frozenset({2}))


def test_a_rank_that_missed_the_last_step_gets_the_state_of_a_rank_that_applied_it() -> None:
    assert plan([at(4, 100, 1), at(4, 101, 1), at(4, 100, 1)]) == (1, frozenset({0, 2}))


def test_the_survivors_step_replaces_a_step_that_only_a_disconnected_worker_applied() -> None:
    """Rank 1 applied step 101 in generation 4 and was left behind; rank 0 repeated it in generation 5."""
    assert plan([at(5, 101, 1), at(4, 101, 0)]) == (0, frozenset({1}))
    assert plan([at(5, 101, 1), at(4, 102, 0)]) == (0, frozenset({1}))


def test_if_no_rank_has_a_state_rank_0_loads_one_and_all_others_get_it() -> None:
    assert plan([NOBODY, NOBODY, NOBODY]) == (0, frozenset({1, 2}))


def test_equal_states_are_not_transferred() -> None:
    assert plan([at(4, 100, 1), at(4, 100, 1)]) == (0, frozenset())


def test_a_state_left_behind_is_compared_with_the_checkpoint_before_it_is_transferred() -> None:
    """Two ranks left behind have equal states. The first may find a newer checkpoint, so the second gets it too."""
    assert plan([at(4, 100, 0), at(4, 100, 0)]) == (0, frozenset({1}))


def test_of_equal_states_the_source_is_one_that_was_not_left_behind() -> None:
    assert plan([at(4, 100, 0), at(4, 100, 1)]) == (1, frozenset({0}))


def test_a_rank_without_the_result_of_an_evaluation_gets_it() -> None:
    assert plan([at(4, 100, 1, evaluated=2), at(4, 100, 1, evaluated=3)]) == (1, frozenset({0}))


def test_a_state_that_was_not_left_behind_has_priority_over_an_evaluation() -> None:
    assert plan([at(4, 100, 0, evaluated=3), at(4, 100, 1, evaluated=2)]) == (1, frozenset({0}))


class Etcd:
    """What a coordinator knows about one generation and some members."""

    def __init__(self, *members: Member) -> None:
        self.view = View(ALONE, 7, members)

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        return condition(self.view)


def await_leavers(etcd: Etcd, wanted: Callable[[], None]) -> None:
    parts: Any = SimpleNamespace(coordinator=etcd)
    _await_leavers(parts, ALONE, wanted)


def test_a_leaving_worker_is_waited_for_because_it_may_be_saving_the_latest_state() -> None:
    etcd = Etcd(A, replace(B, leaving=True))
    asked = []

    def wanted() -> None:
        asked.append(etcd.view)
        etcd.view = View(ALONE, 7, (A,))

    await_leavers(etcd, wanted)
    assert len(asked) == 1


def test_a_member_that_also_leaves_does_not_wait_for_itself() -> None:
    await_leavers(Etcd(replace(A, leaving=True)), lambda: pytest.fail("nobody is waited for"))


def test_waiting_for_a_leaving_worker_ends_with_the_generation() -> None:
    def superseded() -> None:
        raise GroupBroken("a newer generation came up")

    with pytest.raises(GroupBroken):
        await_leavers(Etcd(A, replace(B, leaving=True)), superseded)
