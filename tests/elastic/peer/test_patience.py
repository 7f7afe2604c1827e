"""A peer gets more time to answer where answers have been slow, and never more than the flag says."""

from __future__ import annotations

import itertools

import pytest

from tidewater.elastic.peer.patience import FACTOR, LEAST, MEMORY_SECONDS, Delay, limit, noted

MOST = 1.5
SLOW = MOST / FACTOR


def test_where_nothing_came_late_the_least_time_is_enough() -> None:
    assert limit(MOST, Delay()) == LEAST * MOST
    assert limit(MOST, Delay(0.001, 0)) == LEAST * MOST


@pytest.mark.parametrize("seconds", [SLOW, MOST, 100 * MOST])
def test_after_a_slow_answer_all_peers_get_the_most_time(seconds: float) -> None:
    assert limit(MOST, noted(Delay(), seconds, 10)) == MOST


def test_an_answer_after_the_limit_makes_the_limit_longer_than_this_answer_took() -> None:
    """So a peer that is only slow is not silent again and again."""
    before = limit(MOST, Delay())
    assert limit(MOST, noted(Delay(), before, 0)) > before


def test_the_longer_the_delay_the_longer_the_limit() -> None:
    limits = [limit(MOST, Delay(part * MOST / 100, 0)) for part in range(101)]
    assert all(one <= two for one, two in itertools.pairwise(limits))
    assert min(limits) == LEAST * MOST
    assert max(limits) == MOST


def test_a_quick_answer_does_not_hide_a_slow_one_that_is_not_long_ago() -> None:
    slow = noted(Delay(), SLOW, 10)
    assert noted(slow, 0.001, 10 + MEMORY_SECONDS) == slow
    assert noted(slow, 0.001, 10 + 1.01 * MEMORY_SECONDS) == Delay(0.001, 10 + 1.01 * MEMORY_SECONDS)
