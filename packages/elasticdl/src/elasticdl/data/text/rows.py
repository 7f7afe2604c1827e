"""Rows of text by their index: every file is read through once for where its rows begin, then only where a task is."""

from __future__ import annotations

import abc
import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elasticdl.data.reader import Reader, Shard
from elasticdl.data.spool import unpacked
from elasticdl.data.storage import STORE
from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import Blob, Entry

log = logging.getLogger(__name__)

COMPRESSED = ("", ".gz")
"""Ends of the suffixes, see `spool`."""
_EVERY = 256
"""Rows from one offset that is kept to the next: a task reads at most so many rows before its first one."""
_OPEN_FILES = 32
_SHOWN = 3
_BOM = "\ufeff"


class Lines:
    """The lines of a part of a file, each with its end; says how far it has come."""

    def __init__(self, blob: Blob, encoding: str, start: int = 0, end: int | None = None) -> None:
        self.offset = start
        """Of the byte after the last line that was given out."""
        self.number = 0
        """Lines that were given out."""
        self._blob = blob
        self._encoding = encoding
        self._lines = self._split(start, end)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        try:
            text = line.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise DamagedData(
                f"{self._blob.name}: the line at byte {self.offset} is not {self._encoding}: {error.reason}",
                'give the encoding, such as --data_reader_params "encoding=latin-1", or mend the file',
            ) from error
        begins_file = self.offset == 0
        self.offset += len(line)
        self.number += 1
        return text.removeprefix(_BOM) if begins_file else text

    def _split(self, start: int, end: int | None) -> Iterator[bytes]:
        rest = b""
        for block in self._blob.stream(start, end):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line + b"\n"
        if rest:
            yield rest


@dataclass(frozen=True)
class RowIndex:
    """Where rows of a file begin."""

    rows: int
    offsets: tuple[int, ...]
    """Of every 256th row, from row 0 on."""
    size: int
    """Of the file, in bytes."""

    def range(self, start: int, end: int) -> tuple[int, int | None]:
        """Return between which offsets the rows [start, end) are; None: up to the end of the file."""
        after = -(-end // _EVERY)
        return self.offsets[start // _EVERY], self.offsets[after] if after < len(self.offsets) else None


class TextReader(Reader):
    """Reads rows of one file, or of the files in a folder. Compressed files are unpacked to a temporary file first.

    If files of a folder have the suffix of their kind, the others, such as a README, are left out.
    """

    encoding = "utf-8"
    suffixes: tuple[str, ...]
    """Of the kind, the uncompressed one first."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open: OrderedDict[str, Blob] = OrderedDict()
        self._indexes: dict[str, RowIndex] = {}

    def shards(self) -> list[Shard]:
        """Return one shard for each file. Counting rows means reading the files once: text has no index."""
        chosen, left_out = self._files()
        if left_out:
            shown = ", ".join(entry.path for entry in left_out[:_SHOWN]) + ", …" * (len(left_out) > _SHOWN)
            log.warning("%s: files without the suffix %s are not read: %s", self._address, self.suffixes[0], shown)
        found = [Shard(entry.name, 0, self._opened(entry.name)[1].rows) for entry in chosen]
        if not any(shard.count for shard in found):
            raise DataError(f"{self._address} has no rows", "check the address, and that the data was written there")
        return found

    def read(self, shard: Shard) -> Iterator[Any]:
        """Yield the rows of a shard."""
        blob, index = self._opened(shard.name)
        if shard.end > index.rows or blob.size != index.size:
            raise DamagedData(
                f"{shard.name} has {index.rows} rows, and the task is [{shard.start}, {shard.end})",
                "the file has changed since the job counted its rows: start the job again",
            )
        if not shard.count:
            return
        first = shard.start - shard.start % _EVERY
        rows = self.rows(blob, Lines(blob, self.encoding, *index.range(first, shard.end)), first)
        for number, row in enumerate(rows, first):
            if number >= shard.end:
                return
            if number >= shard.start:
                yield row

    @abc.abstractmethod
    def begin(self, blob: Blob) -> int:
        """Return the offset of the first row: after the header, if there is one."""

    @abc.abstractmethod
    def rows(self, blob: Blob, lines: Lines, first: int) -> Iterator[Any]:
        """Yield the rows in lines. The first one has the index `first`.

        After each row `lines.offset` is where the next one begins. Raise DamagedData for a row that is none.
        """

    def close(self) -> None:
        """Close all files."""
        for blob in self._open.values():
            blob.close()
        self._open.clear()

    def _files(self) -> tuple[list[Entry], list[Entry]]:
        """Return the files that are read, and those that are left out."""
        entries = [entry for entry in STORE.files(self._address) if not entry.path.startswith("_")]
        named = [entry for entry in entries if entry.path.lower().endswith(self.suffixes)]
        others = [entry for entry in entries if not entry.path.lower().endswith(self.suffixes)]
        return (named, others) if named else (others, [])

    def _opened(self, name: str) -> tuple[Blob, RowIndex]:
        """Return a file, which may be open already, and its index."""
        if name not in self._open:
            self._open[name] = unpacked(STORE.opened(name))
            if len(self._open) > _OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                oldest.close()
        self._open.move_to_end(name)
        if name not in self._indexes:
            self._indexes[name] = self._index(self._open[name])
        return self._open[name], self._indexes[name]

    def _index(self, blob: Blob) -> RowIndex:
        lines = Lines(blob, self.encoding, self.begin(blob))
        offsets, count, offset = [], 0, lines.offset
        for _ in self.rows(blob, lines, 0):
            if count % _EVERY == 0:
                offsets.append(offset)
            count, offset = count + 1, lines.offset
        return RowIndex(count, tuple(offsets), blob.size)
