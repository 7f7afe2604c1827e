"""Traces of kills are reproducible and have the requested mean time between kills."""

from __future__ import annotations

import statistics
from itertools import pairwise

from benchmarks.elastic.goodput import next_alive
from benchmarks.elastic.trace import Kill, poisson


def test_equal_seeds_give_equal_kills_and_different_seeds_give_different_kills() -> None:
    one = poisson(seed=1, mean_seconds=60, seconds=600, nodes=3)
    assert one == poisson(seed=1, mean_seconds=60, seconds=600, nodes=3)
    assert one != poisson(seed=2, mean_seconds=60, seconds=600, nodes=3)


def test_a_shorter_trace_is_the_beginning_of_a_longer_one() -> None:
    long = poisson(seed=1, mean_seconds=60, seconds=600, nodes=3)
    assert poisson(seed=1, mean_seconds=60, seconds=200, nodes=3) == tuple(kill for kill in long if kill.at < 200)


def test_the_times_between_kills_have_the_requested_mean() -> None:
    kills = poisson(seed=3, mean_seconds=60, seconds=600_000, nodes=3)
    gaps = [later.at - earlier.at for earlier, later in pairwise(kills)]
    assert 58 < statistics.mean(gaps) < 62
    assert 58 < statistics.stdev(gaps) < 62  # equal to the mean, as in an exponential distribution
    assert {kill.node for kill in kills} == {0, 1, 2}


def test_a_kill_for_a_worker_that_is_down_goes_to_the_next_worker() -> None:
    assert next_alive(1, [0, 1, 2], 3) == 1
    assert next_alive(1, [0, 2], 3) == 2
    assert next_alive(2, [1], 3) == 1
    assert next_alive(2, [], 3) is None


def test_a_trace_of_no_duration_has_no_kills() -> None:
    assert poisson(seed=1, mean_seconds=60, seconds=0, nodes=3) == tuple[Kill]()
