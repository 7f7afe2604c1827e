"""The parts of carrying out a decision that need no API server; `test_loop` shows the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.controller.fakes.api import merged
from tidewater.controller.act import AT_A_TIME, difference, paced, waves
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


def test_the_first_pods_are_created_one_by_one_and_the_minimum_before_all_others() -> None:
    """So under a quota, and in the scheduler's queue, the minimum and then the lowest indexes come first."""
    core = [CreatePod("Worker", index, core=True) for index in range(10)]
    surge = [CreatePod("Worker", index, core=False) for index in range(10, 24)]
    found = list(waves([*surge, *core]))
    assert [item for wave in found for item in wave] == [*core, *surge]
    assert [len(wave) for wave in found] == [*[1] * AT_A_TIME, 2, 14]


async def test_requests_are_sent_in_order_a_few_at_a_time_and_a_slow_one_holds_up_no_other() -> None:
    sent, running, most = list[int](), 0, 0

    async def request(number: int) -> None:
        nonlocal running, most
        sent.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(100 if number == 0 else 1)
        running -= 1

    count = 3 * AT_A_TIME
    await paced(range(count), request)
    assert sent == list(range(count))
    assert most == AT_A_TIME
    assert asyncio.get_running_loop().time() == 100, "the others were sent while the first one waited"


async def test_no_request_is_sent_after_one_that_failed_or_when_it_is_over() -> None:
    sent, ended = list[int](), list[int]()

    async def request(number: int) -> None:
        sent.append(number)
        await asyncio.sleep(number)
        ended.append(number)
        if number == 1:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        await paced(range(5 * AT_A_TIME), request)
    assert ended == sent, "what was sent has ended before the error goes on"
    assert len(sent) <= AT_A_TIME + 2
    sent.clear()
    await paced(range(2, 5 * AT_A_TIME), request, lambda: len(sent) >= 3)
    assert sent == [2, 3, 4]
