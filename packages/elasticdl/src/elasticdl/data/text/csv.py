"""Rows of CSV files. The first line that isn't empty names the columns. A record is a list of texts.

    reader = CsvReader("/data/clicks.csv", columns=["user", "item"])
    reader.metadata.column_names      # ("user", "item")

Quoting is that of Python's module csv, strictly: quotes inside a quoted value are doubled, and may hold line breaks.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

from elasticdl.data.params import texts
from elasticdl.data.reader import Metadata
from elasticdl.data.spool import unpacked
from elasticdl.data.storage import STORE
from elasticdl.data.text.rows import COMPRESSED, Lines, TextReader
from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import Blob

_LARGEST_VALUE = 256 << 20
"""Characters. The limit of Python's module csv, which is one for the whole process, is 131,072."""


class CsvReader(TextReader):
    """Reads CSV.

    Args:
        address: of a file, or of a folder of files with the same columns.
        sep: between values, one character.
        columns: to read, in this order; None for all.
        quote: around values with separators in them, one character.
        encoding: one that has the line break and the quote of ASCII, which UTF-16 has not.
    """

    suffixes = tuple(f".csv{end}" for end in COMPRESSED)

    def __init__(
        self,
        address: str,
        sep: str = ",",
        columns: Sequence[str] | None = None,
        quote: str = '"',
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(address)
        for name, value in (("sep", sep), ("quote", quote)):
            if not isinstance(value, str) or len(value) != 1 or value in "\r\n":
                raise DataError(f"{name} is {value!r}", "give one character, which is no line break")
        if sep == quote:
            raise DataError(f"sep and quote are both {sep!r}", "give two characters that differ")
        self.encoding = ascii_compatible(encoding)
        self._asked = texts("columns", columns)
        csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_VALUE))
        self._format: dict[str, Any] = {"delimiter": sep, "quotechar": quote, "strict": True}
        self._columns: tuple[str, ...] | None = None

    @property
    def metadata(self) -> Metadata:
        """Return the names of the values in a record."""
        if self._columns is None:
            with unpacked(STORE.opened(self._files()[0][0].name)) as blob:
                self.begin(blob)
        return Metadata(column_names=self._asked or self._columns)

    def begin(self, blob: Blob) -> int:
        """Return the offset after the header; raise DataError if it isn't that of the other files."""
        lines = Lines(blob, self.encoding)
        header = self._header(blob, lines)
        if self._columns is not None and header != self._columns:
            raise DataError(
                f"{blob.name} has the columns {', '.join(header)}, and a file before it {', '.join(self._columns)}",
                "all files of a folder need the same header",
            )
        self._columns = header
        return lines.offset

    def rows(self, blob: Blob, lines: Lines, first: int) -> Iterator[list[str]]:
        """Yield the rows; lines that are empty are none."""
        if self._columns is None:
            self.begin(blob)
        columns = self._columns or ()
        chosen = None if self._asked is None else [columns.index(name) for name in self._asked]
        parsed = csv.reader(lines, **self._format)
        number = first
        while True:
            offset = lines.offset
            try:
                row = next(parsed, None)
            except csv.Error as error:
                raise DamagedData(f"{blob.name}: row {number}, at byte {offset}: {error}", "mend the file") from error
            if row is None:
                return
            if row:
                if len(row) != len(columns):
                    has = f"{len(row)} values for {len(columns)} columns"
                    raise DamagedData(
                        f"{blob.name}: row {number}, at byte {offset}, has {has}",
                        "mend the file, or give its separator: --data_reader_params \"sep=';'\"",
                    )
                yield row if chosen is None else [row[index] for index in chosen]
                number += 1

    def _header(self, blob: Blob, lines: Lines) -> tuple[str, ...]:
        try:
            header = next((row for row in csv.reader(lines, **self._format) if row), [])
        except csv.Error as error:
            raise DamagedData(f"{blob.name}: the header, its first line: {error}", "mend the file") from error
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


def ascii_compatible(encoding: str) -> str:
    """Return the encoding; raise DataError if it is unknown, or has other line breaks than ASCII."""
    try:
        fits = "\n,".encode(encoding) == b"\n,"
    except (LookupError, TypeError):
        fits = False
    if not fits:
        raise DataError(f"encoding is {encoding!r}", "give one that extends ASCII, such as utf-8 or latin-1")
    return encoding
