"""The processes that divide a model part nowhere: a failure of one is one of all, at whichever vote they are."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.elastic.sharded.threads import SIZE, at_once
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group.replica import Parted, Replica


@pytest.mark.parametrize("place", ["before the first vote", "between two votes", "after the last"])
def test_a_failure_of_one_process_is_one_of_all_wherever_it_is(place: str) -> None:
    def fails(replica: Replica, here: str) -> None:
        if replica.index == 1 and here == place:
            raise GroupBroken("its peer is lost")

    def do(replica: Replica) -> float:
        with replica.sharing():
            fails(replica, "before the first vote")
            replica.vote()
            (total,) = replica.sum([1.0])
            fails(replica, "between two votes")
            replica.vote()
            fails(replica, "after the last")
            replica.vote()
        return total

    found = at_once(do)
    assert [type(each) for each in found] == [Parted] * SIZE
    assert "its peer is lost" in str(found[1])


def test_failures_of_several_processes_are_one() -> None:
    def do(replica: Replica) -> list[float]:
        with contextlib.suppress(Parted), replica.sharing():
            if replica.index:
                raise GroupBroken(f"failure {replica.index}")
            replica.vote()
            return [-1.0]
        return replica.sum([replica.index])

    assert at_once(do) == [[3.0]] * SIZE


@pytest.mark.parametrize("who", [None, 0, 2])
def test_without_a_failure_no_process_parts_and_all_learn_what_one_says(who: int | None) -> None:
    def do(replica: Replica) -> bool:
        with replica.sharing():
            return replica.vote(says=replica.index == who)

    assert at_once(do) == [who is not None] * SIZE


def test_the_first_process_decides() -> None:
    assert at_once(lambda replica: replica.first(["go", replica.index])) == [["go", 0]] * SIZE
    assert at_once(lambda replica: replica.first()) == [None] * SIZE


def test_all_processes_get_what_each_has() -> None:
    assert at_once(lambda replica: replica.gathered([replica.index, 7])) == [[[0, 7], [1, 7], [2, 7]]] * SIZE
    assert at_once(lambda replica: replica.gathered([])) == [[[], [], []]] * SIZE


def test_all_processes_get_the_values_of_any_length_that_each_has() -> None:
    def do(replica: Replica) -> list[Any]:
        return replica.each([f"fd00::{replica.index}" * (1 + replica.index), 4000 + replica.index, "ä"])

    assert at_once(do) == [[["fd00::0", 4000, "ä"], ["fd00::1" * 2, 4001, "ä"], ["fd00::2" * 3, 4002, "ä"]]] * SIZE
