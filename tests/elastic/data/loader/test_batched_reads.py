"""A dataset that reads many samples in one call is asked in one call, with the same samples as one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import datasets
import pytest
import torch
from torch.utils.data import Dataset, Subset

from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import BadSamples, ConfigError

TOTAL = 40


class Table(Dataset[Any]):
    """Has the interface of a `datasets.Dataset` that torch's DataLoader uses: len, [i], and rows of many indices."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> dict[str, Any]:
        assert type(index) is int
        self.calls.append(index)
        return self._row(index)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        assert type(indices) is list
        self.calls.append(indices)
        return [self._row(index) for index in indices]

    def _row(self, index: int) -> dict[str, Any]:
        return {"y": index, "text": f"row {index}"}


class Drawn(Table):
    """Some rows are random."""

    def _row(self, index: int) -> dict[str, Any]:
        return {"y": index, "x": random.random() if index % 3 == 0 else 0.0}


class Spoilt(Table):
    def _row(self, index: int) -> dict[str, Any]:
        if index == 7:
            raise ValueError("it is spoilt")
        return super()._row(index)


class Alone(Dataset[Any]):
    """The same dataset without batched reads."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> Any:
        return self.table[index]


def opened(dataset: Dataset[Any], *, workers: int = 0, collate: Any = None, bad: int = 0) -> Loader:
    chosen = LoaderSettings(seed=3, workers=workers, max_bad_samples=bad)
    return Loader(dataset, chosen, collate=collate, device=torch.device("cpu"))


def epoch(dataset: Dataset[Any], *, workers: int = 0, collate: Any = None, size: int = 1) -> list[Any]:
    """Return the batches of an epoch: a step has 10 samples, and each rank's share of it is a batch."""
    found = []
    for rank in range(size):
        with closing(opened(dataset, workers=workers, collate=collate)) as loader:
            loader.start(Place(Cursor(), rank, size, batch_size=10, epochs=1))
            found += [loader.next().micro[0].batch for _ in range(TOTAL // 10)]
    return found


def rows(batches: Sequence[Any]) -> dict[int, Any]:
    """Return the value of each row."""
    return {int(y): float(batch["x"][index]) for batch in batches for index, y in enumerate(batch["y"])}


def test_a_batch_is_one_call() -> None:
    table = Table()
    with closing(opened(table)) as loader:
        batch = loader.batch((3, 1, 2), 0)
    assert batch["y"].tolist() == [3, 1, 2]
    assert batch["text"] == ["row 3", "row 1", "row 2"]
    assert table.calls == [[3, 1, 2]]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_row_of_a_table_of_the_library_is_read_once(workers: int) -> None:
    given = {"y": list(range(TOTAL)), "x": [index / 2 for index in range(TOTAL)]}
    table: Any = datasets.Dataset.from_dict(given).with_format("torch")
    batches = epoch(table, workers=workers, size=2)
    assert rows(batches) == dict(zip(*given.values(), strict=True))
    assert batches[0]["y"].dtype == torch.int64


def test_a_part_of_it_is_one_call_too() -> None:
    table = Table()
    with closing(opened(Subset(table, range(5, 15)))) as loader:
        loader.batch((0, 1), 0)
    assert table.calls == [[5, 6]]


class Cropped(Table):
    """Changes what the class below it returns, which has both methods."""

    def __getitem__(self, index: int) -> Any:
        return {**super().__getitem__(index), "text": "cropped"}


class Delegating(Alone):
    """Has all attributes of what it wraps."""

    def __getitem__(self, index: int) -> Any:
        return {**super().__getitem__(index), "text": "cropped"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


@pytest.mark.parametrize("dataset", [Cropped(), Delegating(Table())])
def test_a_class_that_changes_single_samples_only_is_read_one_by_one(dataset: Dataset[Any]) -> None:
    with closing(opened(dataset)) as loader:
        assert loader.batch((3, 1), 0)["text"] == ["cropped"] * 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [1, 3])
def test_random_rows_are_those_that_are_read_one_by_one(workers: int, size: int) -> None:
    found = rows(epoch(Drawn(), workers=workers, size=size))
    assert found == rows(epoch(Alone(Drawn())))
    assert len(set(found.values())) == 1 + len(range(0, TOTAL, 3))


def test_what_collate_draws_is_as_if_read_one_by_one_and_costs_no_call() -> None:
    def masked(samples: list[Any]) -> list[Any]:
        return [random.random(), *(sample["y"] for sample in samples)]

    table = Table()
    found = epoch(table, collate=masked)
    assert found == epoch(table, collate=masked, workers=2) == epoch(Alone(Table()), collate=masked)
    assert all(isinstance(call, list) for call in table.calls)


def test_a_row_that_cannot_be_read_is_named() -> None:
    with closing(opened(Spoilt())) as loader, pytest.raises(ValueError, match="spoilt") as raised:
        loader.batch((6, 7, 8), 0)
    assert raised.value.__notes__ == ["while preparing sample 7 of the dataset"]


def test_only_the_row_that_cannot_be_read_is_left_out() -> None:
    with closing(opened(Spoilt(), bad=5)) as loader, pytest.raises(BadSamples) as raised:
        loader.batch((6, 7, 8), 0)
    assert raised.value.errors == {7: "ValueError: it is spoilt"}


def test_another_number_of_rows_is_refused_with_the_remedy() -> None:
    class Short(Table):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
            return super().__getitems__(indices)[1:]

    with closing(opened(Short())) as loader, pytest.raises(ConfigError, match=r"__getitems__ .* 1 .* 2 indices"):
        loader.batch((6, 8), 0)


@pytest.mark.parametrize("kind", [dict, tuple])
def test_two_columns_are_not_taken_for_two_rows(kind: type) -> None:
    class Columns(Table):
        def __getitems__(self, indices: list[int]) -> Any:
            return kind({"x": indices, "y": indices})

    with closing(opened(Columns())) as loader, pytest.raises(ConfigError, match=rf"a {kind.__name__}: return a list"):
        loader.batch((6, 8), 0)


def test_an_error_of_this_machine_is_not_tried_again() -> None:
    class Full(Table):
        def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
            self.calls.append(indices)
            raise OSError(24, "Too many open files")

    table = Full()
    with closing(opened(table)) as loader, pytest.raises(OSError, match="open files"):
        loader.batch((6, 8), 0)
    assert table.calls == [[6, 8]]
