"""What each member of a large job pings is enough: a break, a gone machine and a divided network are all seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tidewater.elastic.membership.deciders import DECIDERS
from tidewater.elastic.membership.votes import relay_of
from tidewater.elastic.peer import neighbours

LARGE = (40, 200, 1000, 1024)


@pytest.mark.parametrize("number", LARGE)
def test_each_worker_of_a_large_job_is_pinged_by_some_and_only_those_that_decide_ping_all(number: int) -> None:
    found = [neighbours.of(rank, number) for rank in range(number)]
    assert all(len(found[rank]) == number - 1 for rank in range(DECIDERS))
    assert max(len(each) for each in found[DECIDERS:]) <= min(2 * 32, number - 1)
    by = Counter(each for ranks in found for each in ranks)
    assert min(by.values()) >= 32
    assert all(rank not in ranks for rank, ranks in enumerate(found))


@pytest.mark.parametrize("number", LARGE)
def test_the_next_ones_know_that_the_first_machine_is_gone(number: int) -> None:
    """It had all that decide. The next ones step in for those that they know to be silent; for others they wait."""
    assert all({*range(8)} <= neighbours.of(rank, number) for rank in range(8, 8 + DECIDERS))


@pytest.mark.parametrize("number", LARGE)
def test_a_member_knows_that_one_is_frozen_to_which_it_sends_its_vote(number: int) -> None:
    """It would wait for the answer of one that accepts its connection, and the others would go on without it."""
    for rank in range(DECIDERS, number):
        relay = relay_of(rank, number)
        assert ({*range(DECIDERS)} if relay in (0, rank) else {relay}) <= neighbours.of(rank, number)


SIDES: dict[str, Callable[[int, int], bool]] = {
    "halves": lambda rank, number: rank < number // 2,
    "a tenth": lambda rank, number: rank < number // 10,
    "the last quarter": lambda rank, number: rank >= number * 3 // 4,
    "every second worker": lambda rank, number: rank % 2 == 0,
    "every second machine": lambda rank, number: rank // 8 % 2 == 0,
    "every second rack": lambda rank, number: rank // 32 % 2 == 0,
    "one machine": lambda rank, number: 8 <= rank < 16,
}


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
@pytest.mark.parametrize("number", LARGE[1:])
def test_a_network_failure_is_seen_on_one_side_by_all(number: int, side: Callable[[int, int], bool]) -> None:
    """They then ping all and record whom they don't reach. Pairs that no record has would be put together again."""
    one = {rank for rank in range(number) if side(rank, number)}
    other = {*range(number)} - one
    few, many = sorted((one, other), key=len)
    assert all(neighbours.of(rank, number) & many for rank in few)


def test_of_few_workers_each_pings_all_and_one_that_is_none_of_them_too() -> None:
    assert neighbours.of(20, 32) == {*range(32)} - {20}
    assert neighbours.of(-1, 1000) == {*range(1000)}
    assert neighbours.of(0, 1) == set()
