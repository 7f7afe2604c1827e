"""Records by index are those of the reader, in memory or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from elasticdl.allreduce.records import Item, Records, fed
from elasticdl.data.reader import Metadata, Reader, Shard
from elasticdl.errors import DamagedData, MissingData
from elasticdl.zoo.spec import Batch, Mode


class Numbers(Reader):
    """Files with records that consist of the file's name and a number."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts
        self.reads: list[Shard] = []

    def shards(self) -> list[Shard]:
        return [Shard(f"file-{index}", 2, 2 + count) for index, count in enumerate(self._counts)]

    def read(self, shard: Shard) -> Iterator[str]:
        self.reads.append(shard)
        return (f"{shard.name}:{index}" for index in range(shard.start, shard.end))

    @property
    def metadata(self) -> Metadata:
        return Metadata(column_names=("a",))


@pytest.mark.parametrize("room", [0, 300, 10**6], ids=["none", "a little", "enough"])
def test_each_index_is_a_record_of_its_shard(room: int) -> None:
    records = Records(Numbers(300, 0, 3, 513), Mode.TRAINING, room=room)
    expected = [f"file-{file}:{2 + index}" for file, count in ((0, 300), (2, 3), (3, 513)) for index in range(count)]
    assert len(records) == 816
    for _ in range(2):
        assert [records[index].record for index in reversed(range(816))] == expected[::-1]


def test_what_fits_is_read_once() -> None:
    reader = Numbers(600)
    records = Records(reader, Mode.TRAINING)
    for _ in range(3):
        for index in (599, 0, 300, 1, 598):
            records[index]
    assert sorted(reader.reads) == [Shard("file-0", 2, 258), Shard("file-0", 258, 514), Shard("file-0", 514, 602)]


def test_without_room_only_what_is_asked_for_is_read() -> None:
    reader = Numbers(600)
    Records(reader, Mode.TRAINING, room=0)[7]
    assert reader.reads == [Shard("file-0", 9, 10)]


def test_a_reader_that_gives_fewer_records_than_it_has_counted_is_an_error() -> None:
    class Short(Numbers):
        def read(self, shard: Shard) -> Iterator[str]:
            return itertools.islice(super().read(shard), 3)

    with pytest.raises(DamagedData, match="file-0: the reader gave 3 of the 256 records"):
        Records(Short(600), Mode.TRAINING)[2]


def test_data_without_records_is_refused_with_its_address() -> None:
    with pytest.raises(MissingData, match="/data/empty has no records"):
        Records(Numbers(0), Mode.TRAINING, address="/data/empty")


def test_other_data_has_another_digest() -> None:
    assert Records(Numbers(3), Mode.TRAINING).digest == Records(Numbers(3), Mode.TRAINING).digest
    assert Records(Numbers(3), Mode.TRAINING).digest != Records(Numbers(2, 1), Mode.TRAINING).digest


def test_feed_learns_what_the_records_are_for() -> None:
    told: list[tuple[Mode, Metadata]] = []

    def feed(records: object, mode: Mode, metadata: Metadata) -> Batch:
        told.append((mode, metadata))
        return Batch(list(records), [1])  # type: ignore[call-overload]

    items: list[Item] = [Records(Numbers(3), Mode.EVALUATION)[index] for index in (2, 0)]
    assert fed(feed)(items) == (["file-0:4", "file-0:2"], [1])
    assert told == [(Mode.EVALUATION, Metadata(column_names=("a",)))]
