"""Traces of kills are reproducible, and spread over their time."""

from __future__ import annotations

import statistics

from benchmarks.elastic.goodput import absences, next_alive, scattered
from benchmarks.elastic.timeline import Span


def test_equal_seeds_give_equal_kills_and_different_seeds_give_different_kills() -> None:
    one = scattered(seed="1/0", count=3, seconds=200, nodes=3)
    assert one == scattered(seed="1/0", count=3, seconds=200, nodes=3)
    assert one != scattered(seed="1/1", count=3, seconds=200, nodes=3)


def test_kills_are_in_order_and_anywhere_in_their_time() -> None:
    kills = scattered(seed="3", count=10_000, seconds=200, nodes=3)
    times = [kill.at for kill in kills]
    assert times == sorted(times)
    assert 95 < statistics.mean(times) < 105
    assert 0 <= times[0] < 1 < 199 < times[-1] <= 200
    assert {kill.node for kill in kills} == {0, 1, 2}


def test_a_killed_worker_is_absent_until_it_is_started_and_loaded_or_killed_again() -> None:
    assert absences([(10.0, 1), (12.0, 2), (14.0, 1)], 8.0) == [Span(10, 14), Span(12, 20), Span(14, 22)]


def test_a_kill_for_a_worker_that_is_down_goes_to_the_next_worker() -> None:
    assert next_alive(1, [0, 1, 2], 3) == 1
    assert next_alive(1, [0, 2], 3) == 2
    assert next_alive(2, [1], 3) == 1
    assert next_alive(2, [], 3) is None
