"""Minibatches of a task: exactly its records, with an error where the error was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from elasticdl.data.reader import Reader, Record, Shard, exactly
from elasticdl.errors import DamagedData, DataError
from elasticdl.worker.batches import Ahead, minibatches
from elasticdl.zoo.spec import Batch


class Numbers(Reader):
    """A file in which record i is the text of i. Yields `too_many` records more than it is asked for, or fewer."""

    def __init__(self, too_many: int = 0) -> None:
        self._too_many = too_many

    def shards(self) -> list[Shard]:
        return [Shard("numbers", 0, 1000)]

    def read(self, shard: Shard) -> Iterator[Record]:
        yield from (str(index) for index in range(shard.start, shard.end + self._too_many))


@pytest.mark.parametrize(
    ("too_many", "said"), [(-2, "gave 1 of the 3 records"), (-3, "gave 0 of"), (1, "more than the 3 records")]
)
def test_a_reader_that_does_not_give_exactly_the_records_of_a_task_is_an_error(too_many: int, said: str) -> None:
    with pytest.raises(DamagedData, match=rf"numbers: .*{said} .*\[3, 6\)") as caught:
        list(exactly(Numbers(too_many), Shard("numbers", 3, 6)))
    assert "custom_data_reader" in caught.value.remedy


def test_the_last_minibatch_has_what_is_left() -> None:
    found = list(minibatches(iter(range(10)), 4, lambda chosen: Batch(torch.tensor(chosen), None)))
    assert [each.batch.features.tolist() for each in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [each.records for each in found] == [4, 4, 2]


def test_an_error_comes_after_the_items_before_it() -> None:
    def damaged() -> Iterator[int]:
        yield from (1, 2, 3)
        raise DataError("chunk 3 is damaged")

    with Ahead(damaged()) as items:
        found = iter(items)
        assert [next(found), next(found), next(found)] == [1, 2, 3]
        with pytest.raises(DataError, match="chunk 3"):
            next(found)


def test_no_more_than_asked_for_is_read_ahead() -> None:
    read: list[int] = []

    def source() -> Iterator[int]:
        for index in range(100):
            read.append(index)
            yield index

    with Ahead(source(), ahead=3) as items:
        assert next(iter(items)) == 0
    assert len(read) <= 4


def test_the_thread_ends_when_the_rest_is_not_wanted() -> None:
    before = threading.active_count()
    with Ahead(iter(range(1_000_000))) as items:
        assert next(iter(items)) == 0
    assert threading.active_count() == before
