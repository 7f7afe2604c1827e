"""A reader of one's own is a small class."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from elasticdl.data.reader import Metadata, Reader, Shard
from elasticdl.errors import DataError


class Squares(Reader):
    """Two shards of numbers."""

    closed = False

    def shards(self) -> list[Shard]:
        return [Shard("a", 0, 3), Shard("b", 0, 2)]

    def read(self, shard: Shard) -> Iterator[int]:
        yield from (number**2 for number in range(shard.start, shard.end))

    def close(self) -> None:
        self.closed = True


def test_two_methods_are_enough() -> None:
    with Squares() as reader:
        assert [list(reader.read(shard)) for shard in reader.shards()] == [[0, 1, 4], [0, 1]]
        assert reader.metadata == Metadata()
    assert reader.closed


def test_a_shard_knows_its_number_of_records() -> None:
    assert Shard("a", 3, 10).count == 7


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_a_range_that_is_none_is_an_error(start: int, end: int) -> None:
    with pytest.raises(DataError, match=rf"a: records \[{start}, {end}\) are no range"):
        Shard("a", start, end)
