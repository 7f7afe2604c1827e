"""The records of a reader by index, as the trainer's sampler chooses them.

    records = Records(reader, Mode.TRAINING)
    len(records), records[7]                 # the record with what `feed` needs to know about it
    fed(spec.feed)([records[7], records[3]]) # features and labels of a minibatch

A reader reads ranges. A record is read together with its neighbours, which are kept as long as there is room: in the
usual case the whole data is in memory after one epoch, otherwise the rest is read one by one.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from elasticdl.data.reader import Metadata, Reader, Record, Shard, exactly
from elasticdl.errors import MissingData
from elasticdl.zoo.spec import Batch, Feed, Mode

NEIGHBOURS = 256
"""Records that are read at once."""
ROOM = 512 * 2**20
"""Bytes of records that are kept, as they are read."""


class Item(NamedTuple):
    """A record, and what `feed` needs to know about it."""

    record: Record
    mode: Mode
    metadata: Metadata


class Records(Dataset[Item]):
    """All records of a reader, in the order of its shards.

    Raise MissingData if there is none. Reading raises the reader's errors. Only one thread may use it.
    """

    def __init__(self, reader: Reader, mode: Mode, *, address: str = "", room: int = ROOM) -> None:
        self._reader, self._mode, self._room = reader, mode, room
        self._shards = [shard for shard in reader.shards() if shard.count]
        self._ends = list(itertools.accumulate(shard.count for shard in self._shards))
        if not self._ends:
            raise MissingData(f"{address or 'the data'} has no records", "Name data that has some.")
        self._kept: dict[int, Record] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Item:
        record = self._kept[index] if index in self._kept else self._read(index)
        return Item(record, self._mode, self._reader.metadata)

    @property
    def digest(self) -> str:
        """Return what identifies the data: workers with another one can't train together."""
        shards = [(shard.name, shard.start, shard.end) for shard in self._shards]
        return hashlib.sha256(repr(shards).encode()).hexdigest()[:16]

    def _read(self, index: int) -> Record:
        which = bisect.bisect_right(self._ends, index)
        shard, after = self._shards[which], self._ends[which]
        before = after - shard.count
        start, end = index, index + 1
        if self._room > 0:
            start = max(before, index - index % NEIGHBOURS)
            end = min(after, start + NEIGHBOURS)
        offset = shard.start - before
        found = list(exactly(self._reader, Shard(shard.name, start + offset, end + offset)))
        if self._room > 0:
            new = {place: record for place, record in enumerate(found, start) if place not in self._kept}
            self._kept |= new
            self._room -= sum(map(size_of, new.values()))
        return found[index - start]


def size_of(record: Record) -> int:
    """Return about how many bytes a record takes."""
    if isinstance(record, list | tuple):
        return sys.getsizeof(record) + sum(map(sys.getsizeof, record))
    return int(getattr(record, "nbytes", 0)) or sys.getsizeof(record)


def fed(feed: Feed) -> Callable[[Sequence[Item]], tuple[Any, Any]]:
    """Return a function from items to what `feed` makes of them: features, and labels."""

    def collate(items: Sequence[Item]) -> tuple[Any, Any]:
        first = items[0]
        batch: Batch = feed([item.record for item in items], first.mode, first.metadata)
        return batch.features, batch.labels

    return collate
