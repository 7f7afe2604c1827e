"""Restoring a generator's state repeats its draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tidewater.elastic.data.seeds import (
    GENERATORS,
    Generator,
    generators_kept,
    seed_alike,
    seed_generators,
    seed_model,
    seed_script,
    states,
)

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


def test_what_a_sample_leaves_of_a_pair_of_numpys_normal_numbers_is_not_drawn_by_the_model() -> None:
    def drawn(disturb: Callable[[], object]) -> float:
        seed_generators(1, 2, 3)
        np.random.rand()
        with generators_kept():
            disturb()
        return np.random.randn()

    assert drawn(np.random.randn) == drawn(lambda: None)


def test_the_states_cover_all_three_generators() -> None:
    assert [generator.name for generator, _ in states()] == ["random", "numpy", "torch"]


@pytest.mark.parametrize("name", DRAWS)
def test_what_a_model_draws_depends_on_seed_step_rank_and_micro_batch_and_on_nothing_else(name: str) -> None:
    def drawn(seed: int, step: int, rank: int, micro: int) -> float:
        seed_model(seed, step, rank, micro, torch.device("cpu"))
        return DRAWS[name][0]()

    places = [(0, 7, 1, 2), (1, 7, 1, 2), (0, 8, 1, 2), (0, 7, 2, 2), (0, 7, 1, 3)]
    first = [drawn(*place) for place in places]
    assert len(set(first)) == len(places)
    assert [drawn(*place) for place in places] == first


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", [0, 7, -1, 2**40])
def test_a_split_of_the_data_by_any_global_generator_depends_on_the_seed_alone(name: str, seed: int) -> None:
    def drawn(seed: int) -> float:
        seed_script(seed)
        return DRAWS[name][0]()

    first = drawn(seed)
    for draw in DRAWS[name]:
        draw()  # as after any other history
    assert drawn(seed) == first
    assert drawn(seed + 1) != first
    seed_script(seed)
    mine = torch.rand(3)
    torch.manual_seed(seed)
    assert torch.equal(mine, torch.rand(3))


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_another_kind_of_numpys_global_generator_is_seeded_too(kind: type[np.random.BitGenerator]) -> None:
    replaced = np.random.get_bit_generator()  # type: ignore[attr-defined]
    np.random.set_bit_generator(kind(7))  # type: ignore[attr-defined]
    places: list[Callable[[], None]] = [
        lambda: seed_model(0, 1, 2, 3, torch.device("cpu")),
        lambda: seed_alike(0, "on_step", 1, torch.device("cpu")),
        lambda: seed_script(0),
    ]
    try:
        for seed in places:
            seed()
            first = np.random.rand()
            np.random.rand(3)  # as after any other history
            seed()
            assert np.random.rand() == first
        assert isinstance(np.random.get_bit_generator(), kind)  # type: ignore[attr-defined]
    finally:
        np.random.set_bit_generator(replaced)  # type: ignore[attr-defined]
