"""The time of steps and of checkpoints is a comparison within the same seconds."""

from __future__ import annotations

import pytest

from benchmarks.elastic import paced
from benchmarks.elastic.timeline import Pair


def test_the_ratio_of_steps_is_the_median_of_their_pairs() -> None:
    assert paced.ratio([Pair(2.0, 1.0), Pair(3.0, 2.0), Pair(90.0, 1.0)]) == 2.0


def test_checkpoint_time_is_a_share_of_the_run_with_checkpoints() -> None:
    turn = [1.0] * 4 + [3.0, 1.0, 2.0] + [1.0] * 20
    assert paced.shares_lost([turn], at=4) == pytest.approx([100 * 3 / sum(turn)])


def test_values_that_agree_have_no_spread() -> None:
    assert paced.spread([1.0, 1.0, 1.0, 1.0]) == 0.0
    assert paced.spread([1.0, 2.0, 3.0, 4.0]) > 0
