"""The parts of carrying out a decision that need no API server; `test_loop` shows the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.controller.fakes.api import merged
from tidewater.controller.act import AT_A_TIME, batches, difference, together, waves
from tidewater.controller.decide.actions import CreatePod
from tidewater.kube.errors import Unavailable

LEAVES = st.integers() | st.text() | st.lists(st.integers(), max_size=3)
OBJECTS = st.recursive(
    st.dictionaries(st.text(max_size=2), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=2), LEAVES | inner, max_size=4),
    max_leaves=12,
)


@given(old=OBJECTS, new=OBJECTS)
def test_the_difference_of_two_statuses_turns_one_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, difference(old, new)) == new


@given(status=OBJECTS)
def test_a_status_does_not_differ_from_itself(status: dict[str, Any]) -> None:
    assert difference(status, status) == {}


def test_what_is_no_longer_set_is_removed() -> None:
    old = {"snoozedUntil": "x", "counted": {"u": 1, "v": 1}, "replicas": 2}
    assert difference(old, {"counted": {"v": 1}, "replicas": 2}) == {"snoozedUntil": None, "counted": {"u": None}}


def test_batches_keep_the_order_and_lose_nothing() -> None:
    items = list(range(2 * AT_A_TIME + 1))
    found = list(batches(items))
    assert [item for batch in found for item in batch] == items
    assert max(map(len, found)) == AT_A_TIME


def test_the_first_pods_are_created_one_by_one_and_the_minimum_before_all_others() -> None:
    """So under a quota, and in the scheduler's queue, the minimum and then the lowest indexes come first."""
    core = [CreatePod("Worker", index, core=True) for index in range(10)]
    surge = [CreatePod("Worker", index, core=False) for index in range(10, 24)]
    found = list(waves([*surge, *core]))
    assert [item for wave in found for item in wave] == [*core, *surge]
    assert [len(wave) for wave in found] == [*[1] * AT_A_TIME, 2, 8, 6]


async def test_requests_that_are_sent_together_all_end_before_an_error_goes_on() -> None:
    ended = list[int]()

    async def request(number: int) -> None:
        await asyncio.sleep(number)
        ended.append(number)
        if number == 1:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        await together(request(number) for number in range(4))
    assert ended == [0, 1, 2, 3]
