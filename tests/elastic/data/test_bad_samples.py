"""Samples that can't be read are left out where that is asked for, and their errors are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor, plan, without
from tidewater.elastic.errors import BadSamples, ConfigError, GroupBroken
from tidewater.elastic.training import Stop

TOTAL = 53
CPU = torch.device("cpu")


class Damaged(Dataset[Any]):
    """Each sample is its index, or raises an error."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        self._errors, self.reads = errors, 0

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        if index in self._errors:
            raise self._errors[index]
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_cannot_be_read_are_left_out_if_they_are_to_be_skipped(workers: int) -> None:
    errors = {7: KeyError("boxes"), 9: ConfigError("9.png is damaged"), 30: ValueError("no label")}
    damaged = Damaged(errors)
    loader = Loader(
        damaged, LoaderSettings(3, workers, max_bad_samples=5), collate=None, device=CPU, validation=damaged
    )
    try:
        loader.start(Place(Cursor(), rank=0, size=1, batch_size=TOTAL, epochs=4, micro_batch=10))
        with pytest.raises(BadSamples) as raised:
            loader.next()
        assert raised.value.errors == {
            7: "KeyError: 'boxes'",
            9: "ConfigError: 9.png is damaged",
            30: "ValueError: no label",
        }
        place = without(Cursor(), raised.value.errors, total=TOTAL, seed=3)
        loader.start(Place(place, rank=0, size=1, batch_size=TOTAL, epochs=4))
        assert sorted(loader.next().micro[0].batch.tolist()) == sorted(set(range(TOTAL)) - set(errors))
        assert loader.first_readable(9).tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 10]
        with pytest.raises((KeyError, ConfigError)):
            list(loader.validation([(7,)]))
    finally:
        loader.close()


def test_a_warm_up_without_data_ends_after_as_many_samples_as_may_be_bad() -> None:
    nothing = Damaged(dict.fromkeys(range(TOTAL), FileNotFoundError(2, "No such file or directory", "/data")))
    loader = Loader(nothing, LoaderSettings(3, max_bad_samples=5), collate=None, device=CPU)
    with pytest.raises(ConfigError, match=r"6 of 53 samples can't be read, and --max-bad-samples is 5: sample 4 of"):
        loader.first_readable(2)
    assert nothing.reads == 6


def raised_from(cause: Exception, *, explicit: bool) -> Exception:
    """Return an error as a decoder of images raises it when it can't open a file."""
    try:
        try:
            raise cause
        except type(cause):
            raise ValueError("cannot identify image file") from (cause if explicit else None)
    except ValueError as error:
        return error


MANY_FILES = OSError(24, "Too many open files")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(MANY_FILES, id="files"),
        pytest.param(raised_from(MANY_FILES, explicit=True), id="files-as-a-cause"),
        pytest.param(raised_from(MANY_FILES, explicit=False), id="files-as-a-hidden-context"),
        pytest.param(MemoryError(), id="memory"),
        pytest.param(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), id="torch-memory"),
        pytest.param(torch.OutOfMemoryError("CUDA out of memory"), id="gpu-memory"),
        pytest.param(torch.AcceleratorError("device-side assert"), id="gpu"),
        pytest.param(GroupBroken("it must leave"), id="leaving"),
        pytest.param(Stop("enough"), id="stop"),
    ],
)
def test_an_error_of_the_machine_or_of_the_job_is_not_the_fault_of_a_sample(error: Exception) -> None:
    loader = Loader(
        Damaged(dict.fromkeys(range(TOTAL), error)), LoaderSettings(3, max_bad_samples=5), collate=None, device=CPU
    )
    loader.start(Place(Cursor(), rank=0, size=1, batch_size=TOTAL, epochs=4))
    with pytest.raises(type(error)) as raised:
        loader.next()
    assert raised.value is error


def test_a_rank_without_samples_reports_the_one_that_it_cannot_read_in_their_place() -> None:
    """It may be the only one that can't read it, and would give up the same step in every generation."""
    first = plan(Cursor(), total=TOTAL, batch_size=1, seed=3).samples[0]
    loader = Loader(Damaged({first: KeyError()}), LoaderSettings(3, max_bad_samples=5), collate=None, device=CPU)
    loader.start(Place(Cursor(), rank=1, size=2, batch_size=1, epochs=4))
    with pytest.raises(BadSamples) as raised:
        loader.next()
    assert set(raised.value.errors) == {first}
