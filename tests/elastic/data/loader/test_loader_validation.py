"""The processes that prepare training data also prepare validation data, and training loses no sample."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tidewater.elastic.data.loader import Loader, LoaderSettings, Place, Prepared
from tidewater.elastic.data.sampler import Cursor, plan

TOTAL, HELD_OUT = 53, 20
PARTS = [(0, 1, 2, 3), (8, 9, 10, 11), (16,)]


class Numbers(Dataset[Any]):
    """Each sample is a sign, its index, a drawn number and the process that loaded it."""

    def __init__(self, sign: int, length: int) -> None:
        self._sign, self._length = sign, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, int, float, int]:
        return self._sign, index, float(torch.rand(())), os.getpid()


@pytest.fixture(params=[0, 2], ids=["in-process", "two-processes"])
def loader(request: pytest.FixtureRequest) -> Iterator[Loader]:
    settings = LoaderSettings(seed=3, workers=request.param)
    loader = Loader(
        Numbers(1, TOTAL), settings, collate=None, device=torch.device("cpu"), validation=Numbers(-1, HELD_OUT)
    )
    yield loader
    loader.close()


def samples(prepared: Prepared) -> list[int]:
    return [int(index) for micro in prepared.micro for index in micro.batch[1]]


def planned(steps: int, batch_size: int) -> Iterator[list[int]]:
    cursor = Cursor()
    for _ in range(steps):
        step = plan(cursor, total=TOTAL, batch_size=batch_size, seed=3)
        yield list(step.samples)
        cursor = step.after


@pytest.mark.parametrize("taken", range(len(PARTS) + 1))
@pytest.mark.parametrize("ahead", [False, True])
def test_training_continues_with_the_next_step_after_a_partial_or_complete_validation(
    loader: Loader, taken: int, ahead: bool
) -> None:
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=3))
    seen = [samples(loader.next()) for _ in range(4)]
    if ahead:
        loader.prefetch()
    batches = loader.validation(PARTS)
    for part in PARTS[:taken]:
        signs, indices, _, _ = next(batches)
        assert set(signs.tolist()) == {-1}
        assert tuple(indices.tolist()) == part
    seen += [samples(loader.next()) for _ in range(4)]
    assert seen == list(planned(8, 10))


def test_the_processes_that_prepare_training_data_also_prepare_validation_data(loader: Loader) -> None:
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=10, epochs=3))
    processes = {int(pid) for batch in loader.validation(PARTS) for pid in batch[3]}
    assert processes <= set(loader.processes or (os.getpid(),))


def test_a_random_validation_sample_is_the_same_each_time_and_changes_no_generator(loader: Loader) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, second = ([batch[2].tolist() for batch in loader.validation(PARTS)] for _ in range(2))
    assert first == second
    assert torch.equal(torch.rand(3), expected)
