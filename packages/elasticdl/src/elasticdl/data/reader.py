"""What a reader of data is: shards that can be counted without reading them, and records by their index.

    class Lines(Reader):
        def shards(self) -> list[Shard]: ...
        def read(self, shard: Shard) -> Iterator[str]: ...

A reader of one's own is such a class; a model names it as `custom_data_reader`. The master calls `shards()` and cuts
the shards into tasks, which are shards too. A worker calls `read()` with a task, in another process and in any order.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from elasticdl.errors import DamagedData, DataError

Record = Any
"""One record as the model's `feed` gets it: bytes of RecordIO, a list of texts of CSV, anything of a reader of
one's own."""


@dataclass(frozen=True, order=True)
class Shard:
    """The records [start, end) of one file or table."""

    name: str
    """What the reader opens: a path or an address; an opaque name for a reader of one's own."""
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise DataError(
                f"{self.name}: records [{self.start}, {self.end}) are no range", "start is 0 <= start <= end"
            )

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self.end - self.start


@dataclass(frozen=True)
class Metadata:
    """What a reader knows about all of its records; `feed` gets it."""

    column_names: tuple[str, ...] | None = None
    """Of CSV: the names of the values of a record, in their order."""


class Reader(abc.ABC):
    """Reads records by shard. May be used by one thread at a time."""

    @abc.abstractmethod
    def shards(self) -> list[Shard]:
        """Return all records as one shard for each file, in the same order each time.

        It reads an index where there is one, not the content. Raise DataError if a file is missing or damaged.
        """

    @abc.abstractmethod
    def read(self, shard: Shard) -> Iterator[Record]:
        """Yield exactly the records of a shard, in order.

        Raise DataError if that is not possible: never yield fewer. What was yielded before the error is good.
        """

    @property
    def metadata(self) -> Metadata:
        """Return what is known about all records."""
        return Metadata()

    def close(self) -> None:
        """Release files and connections. It is safe to call this twice."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exactly(reader: Reader, shard: Shard) -> Iterator[Record]:
    """Yield the records of a shard; raise DamagedData if the reader, which may be a user's, gives fewer or more."""
    count = 0
    for record in reader.read(shard):
        count += 1
        if count > shard.count:
            break
        yield record
    if count != shard.count:
        gave = f"{count} of" if count < shard.count else "more than"
        raise DamagedData(
            f"{shard.name}: the reader gave {gave} the {shard.count} records [{shard.start}, {shard.end})",
            "if the data hasn't changed since the job began, correct read() of the custom_data_reader: it yields "
            "exactly the records of its shard",
        )
