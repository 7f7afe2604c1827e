"""Numbers drawn for a sample depend on seed, epoch and sample, not on the process or the time of preparation."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.data.source import Collate

TOTAL = 53
DRAWS: dict[str, Callable[[], float]] = {
    "random": random.random,
    "numpy": np.random.rand,
    "torch": lambda: float(torch.rand(())),
}


class Numbers(Dataset[Any]):
    """Each sample is its index, and 0 or the result of ``draw``; requests are recorded."""

    def __init__(self, draw: Callable[[], float] = lambda: 0.0, every: int = 1) -> None:
        self._draw, self._every = draw, every
        self.asked: list[int] = []

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> tuple[int, float]:
        self.asked.append(index)
        return index, self._draw() if index % self._every == 0 else 0.0


def opened(dataset: Numbers, *, workers: int = 0, collate: Collate | None = None) -> Loader:
    return Loader(dataset, LoaderSettings(seed=3, workers=workers), collate=collate, device=torch.device("cpu"))


def test_a_sample_is_drawn_differently_in_each_epoch() -> None:
    loader = opened(Numbers(random.random))
    first, second = loader.batch((5,), 0)[1], loader.batch((5,), 1)[1]
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", DRAWS)
def test_a_dataset_that_draws_for_some_samples_only_gives_equal_samples_in_every_process(name: str) -> None:
    seen = []
    for order in (range(TOTAL), reversed(range(TOTAL)), (*range(0, TOTAL, 9), *range(TOTAL))):
        loader, values = opened(Numbers(DRAWS[name], every=9)), {}
        for index in order:
            values[index] = float(loader.batch((index,), 0)[1])
        seen.append(dict(sorted(values.items())))
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0].values())) == 7


def test_a_dataset_without_randomness_is_read_once_per_sample() -> None:
    dataset = Numbers()
    loader = opened(dataset)
    for _ in range(3):
        loader.batch((1, 2), 0)
    assert dataset.asked == [1, 2] * 3


@pytest.mark.parametrize("name", DRAWS)
def test_a_collate_function_draws_new_numbers_for_each_batch_and_equal_ones_in_every_process(name: str) -> None:
    def mixed(items: list[Any]) -> Any:
        return torch.tensor([index for index, _ in items]), DRAWS[name]()

    def seen(workers: int) -> list[float]:
        with closing(opened(Numbers(), workers=workers, collate=mixed)) as loader:
            loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=1))
            return [float(loader.next().micro[0].batch[1]) for _ in range(6)]

    alone = seen(0)
    assert len(set(alone)) == 6
    assert seen(0) == seen(2) == alone


def test_numpys_global_generator_may_be_of_another_kind_and_is_not_changed() -> None:
    expected = opened(Numbers(np.random.rand)).batch((1, 2), 0)[1]
    modern, set_generator = np.random.PCG64(7), np.random.set_bit_generator  # type: ignore[attr-defined]
    before, state = np.random.get_bit_generator(), modern.state  # type: ignore[attr-defined]
    set_generator(modern)
    try:
        loader = opened(Numbers(np.random.rand))
        assert all(torch.equal(loader.batch((1, 2), 0)[1], expected) for _ in range(2))
        assert np.random.get_bit_generator() is modern  # type: ignore[attr-defined]
        assert modern.state == state
    finally:
        set_generator(before)


def test_a_dataset_without_randomness_keeps_the_models_cached_normal_value() -> None:
    np.random.seed(1)
    expected = [np.random.randn() for _ in range(2)]
    np.random.seed(1)
    first = np.random.randn()
    opened(Numbers()).batch((1, 2), 0)
    assert [first, np.random.randn()] == expected
