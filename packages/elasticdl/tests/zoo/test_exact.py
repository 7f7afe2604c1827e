"""A sum is the exact one, rounded once, whatever the order."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from elasticdl.zoo.metrics import ExactSum
from hypothesis import given
from hypothesis import strategies as st

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE), st.integers(1, 1000), st.randoms(use_true_random=False))
def test_the_mean_is_exact_however_parts_are_merged(values: list[float], count: int, shuffle: random.Random) -> None:
    shuffled = shuffle.sample(values, len(values))
    cut = shuffle.randint(0, len(values))
    parts = [ExactSum(), ExactSum()]
    parts[0].add_all(shuffled[:cut])
    parts[1].add_all(shuffled[cut:])
    shuffle.shuffle(parts)
    whole = ExactSum()
    for part in parts:
        whole.merge(part.state())
    try:
        expected = float(sum(map(Fraction, values), Fraction()) / count)
    except OverflowError:
        expected = math.inf if sum(map(Fraction, values)) > 0 else -math.inf
    assert whole.divided_by(count) == expected


@given(FINITE, st.integers(0, 50))
def test_times_is_adding_so_often(value: float, times: int) -> None:
    once, often = ExactSum(), ExactSum()
    once.add(value, times)
    often.add_all([value] * times)
    assert once.state() == often.state()


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([], math.nan),
    ],
)
def test_what_is_not_finite_gives_what_adding_gives(values: list[float], mean: float) -> None:
    total = ExactSum()
    total.add_all(values)
    assert total.divided_by(len(values)) == pytest.approx(mean, nan_ok=True)
