"""A schedule gives each version its rate; the smallest number of steps ends training."""

from __future__ import annotations

import pytest
from elasticdl.errors import ZooError
from elasticdl.zoo.callbacks import LearningRateScheduler, MaxSteps, learning_rate, max_steps


def test_a_schedule_gives_each_version_its_rate() -> None:
    callbacks = [MaxSteps(9), LearningRateScheduler(lambda version: 0.5**version)]
    assert [learning_rate(callbacks, version, 7.0) for version in range(3)] == [1.0, 0.5, 0.25]


def test_without_a_schedule_the_rate_is_the_optimizers() -> None:
    assert learning_rate([MaxSteps(9)], 5, 7.0) == 7.0


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1])
def test_a_rate_that_is_none_is_an_error(rate: float) -> None:
    with pytest.raises(ZooError, match=f"returned {rate} for version 3"):
        learning_rate([LearningRateScheduler(lambda version: rate)], 3, 0.1)


def test_the_smallest_number_of_steps_counts() -> None:
    assert max_steps([MaxSteps(9), MaxSteps(4)]) == 4
    assert max_steps([]) is None


def test_no_steps_at_all_is_an_error() -> None:
    with pytest.raises(ZooError, match="max_steps is 0"):
        MaxSteps(0)
