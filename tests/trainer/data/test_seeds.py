"""Restoring a generator's state repeats its draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from trainer.data.seeds import GENERATORS, Generator, generators_kept, seed_generators, states

DRAWS: dict[str, list[Callable[[], float]]] = {
    # A second call of gauss uses the value cached by the first and does not advance the generator.
    "random": [random.random, lambda: random.gauss(0, 1), lambda: random.gauss(0, 1)],
    "numpy": [lambda: float(np.random.rand()), lambda: float(np.random.randint(9))],
    "torch": [lambda: float(torch.rand(())), lambda: float(torch.randn(()))],
}


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Restore the generators after the test, for other tests."""
    with generators_kept():
        yield


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
def test_every_draw_changes_the_state_and_restoring_it_repeats_the_draw(generator: Generator) -> None:
    seed_generators(1, 2, 3)
    for draw in DRAWS[generator.name]:
        before = generator.state()
        assert generator.state() == before
        first = draw()
        assert generator.state() != before
        generator.restore(before)
        assert generator.state() == before
        assert draw() == first


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.name)
def test_a_restored_state_is_correct_across_blocks_of_drawn_words(generator: Generator) -> None:
    draw = DRAWS[generator.name][0]
    seed_generators(1, 2, 3)
    before = generator.state()
    first = [draw() for _ in range(1000)]
    generator.restore(before)
    assert [draw() for _ in range(1000)] == first


def test_the_states_cover_all_three_generators() -> None:
    assert [generator.name for generator, _ in states()] == ["random", "numpy", "torch"]
