"""Lines of text files. A record is a line without its end; an empty line is a record too.

reader = LineReader("/data/sentences.txt")
"""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.data.text.csv import ascii_compatible
from elasticdl.data.text.rows import COMPRESSED, Lines, TextReader
from tidewater.elastic.storage.blob import Blob


class LineReader(TextReader):
    """Reads lines of one file, or of the files in a folder."""

    suffixes = tuple(f".txt{end}" for end in COMPRESSED)

    def __init__(self, address: str, encoding: str = "utf-8") -> None:
        super().__init__(address)
        self.encoding = ascii_compatible(encoding)

    def begin(self, blob: Blob) -> int:
        """Return 0: there is no header."""
        return 0

    def rows(self, blob: Blob, lines: Lines, first: int) -> Iterator[str]:
        """Yield the lines."""
        for line in lines:
            yield line.removesuffix("\n").removesuffix("\r")
