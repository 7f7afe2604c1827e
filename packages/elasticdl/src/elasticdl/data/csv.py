"""Rows of CSV files. The first line that isn't empty names the columns. A record is a list of texts.

    reader = CsvReader("/data/clicks.csv", columns=["user", "item"])
    reader.metadata.column_names      # ("user", "item")

Quoting is that of Python's module csv, strictly: quotes inside a quoted value are doubled, and may hold line breaks.
Every file is read through once for where its rows begin, then only where a task is.
"""

from __future__ import annotations

import csv
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.data.params import texts
from elasticdl.data.reader import Metadata, Reader, Shard
from elasticdl.data.storage import STORE
from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import Blob, Entry

log = logging.getLogger(__name__)

SUFFIX = ".csv"
_LARGEST_VALUE = 256 << 20
"""Characters. The limit of Python's module csv, which is one for the whole process, is 131,072."""
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
                'give the encoding, such as --data_reader_params "encoding=latin-1", or correct the file',
            ) from error
        begins_file = self.offset == 0
        self.offset += len(line)
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


class CsvReader(Reader):
    """Reads CSV. If files of a folder have the suffix `.csv`, the others, such as a README, are left out.

    Args:
        address: of a file, or of a folder of files with the same columns.
        sep: between values, one character.
        columns: to read, in this order; None for all.
        quote: around values with separators in them, one character.
        encoding: one that has the line break and the quote of ASCII, which UTF-16 has not.
    """

    def __init__(
        self,
        address: str,
        sep: str = ",",
        columns: Sequence[str] | None = None,
        quote: str = '"',
        encoding: str = "utf-8",
    ) -> None:
        for name, value in (("sep", sep), ("quote", quote)):
            if not isinstance(value, str) or len(value) != 1 or value in "\r\n":
                raise DataError(f"{name} is {value!r}", "give one character, which is no line break")
        if sep == quote:
            raise DataError(f"sep and quote are both {sep!r}", "give two characters that differ")
        self._address = address
        self._encoding = ascii_compatible(encoding)
        self._asked = texts("columns", columns)
        csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_VALUE))
        self._format: dict[str, Any] = {"delimiter": sep, "quotechar": quote, "strict": True}
        self._columns: tuple[str, ...] | None = None
        self._open: OrderedDict[str, Blob] = OrderedDict()
        self._indexes: dict[str, RowIndex] = {}

    @property
    def metadata(self) -> Metadata:
        """Return the names of the values in a record."""
        if self._columns is None:
            with STORE.opened(self._files()[0][0].name) as blob:
                self._begin(blob)
        return Metadata(column_names=self._asked or self._columns)

    def shards(self) -> list[Shard]:
        """Return one shard for each file. Counting rows means reading the files once: text has no index."""
        chosen, left_out = self._files()
        if left_out:
            shown = ", ".join(entry.path for entry in left_out[:_SHOWN]) + ", …" * (len(left_out) > _SHOWN)
            log.warning("%s: files without the suffix %s are not read: %s", self._address, SUFFIX, shown)
        found = [Shard(entry.name, 0, self._opened(entry.name)[1].rows) for entry in chosen]
        if not any(shard.count for shard in found):
            raise DataError(f"{self._address} has no rows", "check the address, and that the data was written there")
        return found

    def read(self, shard: Shard) -> Iterator[list[str]]:
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
        rows = self._rows(blob, Lines(blob, self._encoding, *index.range(first, shard.end)), first)
        for number, row in enumerate(rows, first):
            if number >= shard.end:
                return
            if number >= shard.start:
                yield row

    def close(self) -> None:
        """Close all files."""
        for blob in self._open.values():
            blob.close()
        self._open.clear()

    def _begin(self, blob: Blob) -> int:
        """Return the offset after the header; raise DataError if it isn't that of the other files."""
        lines = Lines(blob, self._encoding)
        header = self._header(blob, lines)
        if self._columns is not None and header != self._columns:
            raise DataError(
                f"{blob.name} has the columns {', '.join(header)}, and a file before it {', '.join(self._columns)}",
                "all files of a folder need the same header",
            )
        self._columns = header
        return lines.offset

    def _rows(self, blob: Blob, lines: Lines, first: int) -> Iterator[list[str]]:
        """Yield the rows in lines; the first one has the index `first`, and lines that are empty are none.

        After each row `lines.offset` is where the next one begins. Raise DamagedData for a row that is none.
        """
        if self._columns is None:
            self._begin(blob)
        columns = self._columns or ()
        chosen = None if self._asked is None else [columns.index(name) for name in self._asked]
        parsed = csv.reader(lines, **self._format)
        number = first
        while True:
            offset = lines.offset
            try:
                row = next(parsed, None)
            except csv.Error as error:
                raise DamagedData(
                    f"{blob.name}: row {number}, at byte {offset}: {error}", "correct the file"
                ) from error
            if row is None:
                return
            if row:
                if len(row) != len(columns):
                    has = f"{len(row)} values for {len(columns)} columns"
                    raise DamagedData(
                        f"{blob.name}: row {number}, at byte {offset}, has {has}",
                        "correct the file, or give its separator: --data_reader_params \"sep=';'\"",
                    )
                yield row if chosen is None else [row[index] for index in chosen]
                number += 1

    def _header(self, blob: Blob, lines: Lines) -> tuple[str, ...]:
        try:
            header = next((row for row in csv.reader(lines, **self._format) if row), [])
        except csv.Error as error:
            raise DamagedData(f"{blob.name}: the header, its first line: {error}", "correct the file") from error
        if not header:
            raise DamagedData(f"{blob.name} has no header", "its first line that isn't empty must name the columns")
        names = tuple(header)
        missing = [name for name in self._asked or () if name not in names]
        if missing or len(set(names)) != len(names):
            problem = f"no column {', '.join(missing)}" if missing else "the same column twice"
            raise DataError(
                f"{blob.name} has {problem}; its columns are {', '.join(names)}", "correct columns, sep or the file"
            )
        return names

    def _files(self) -> tuple[list[Entry], list[Entry]]:
        """Return the files that are read, and those that are left out."""
        entries = [entry for entry in STORE.files(self._address) if not entry.path.startswith("_")]
        named = [entry for entry in entries if entry.path.lower().endswith(SUFFIX)]
        others = [entry for entry in entries if not entry.path.lower().endswith(SUFFIX)]
        return (named, others) if named else (others, [])

    def _opened(self, name: str) -> tuple[Blob, RowIndex]:
        """Return a file, which may be open already, and its index."""
        if name not in self._open:
            self._open[name] = STORE.opened(name)
            if len(self._open) > _OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                oldest.close()
        self._open.move_to_end(name)
        if name not in self._indexes:
            self._indexes[name] = self._index(self._open[name])
        return self._open[name], self._indexes[name]

    def _index(self, blob: Blob) -> RowIndex:
        lines = Lines(blob, self._encoding, self._begin(blob))
        offsets, count, offset = [], 0, lines.offset
        for _ in self._rows(blob, lines, 0):
            if count % _EVERY == 0:
                offsets.append(offset)
            count, offset = count + 1, lines.offset
        return RowIndex(count, tuple(offsets), blob.size)


def ascii_compatible(encoding: str) -> str:
    """Return the encoding; raise DataError if it is unknown, or has other line breaks than ASCII."""
    try:
        fits = "\n,".encode(encoding) == b"\n,"
    except (LookupError, TypeError):
        fits = False
    if not fits:
        raise DataError(f"encoding is {encoding!r}", "give one that extends ASCII, such as utf-8 or latin-1")
    return encoding
