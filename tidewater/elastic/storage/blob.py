"""Read one file at any offset, wherever it is stored.

with store.opened("s3://bucket/train/data-00000") as blob:
    header = blob.read(0, 20)
"""

from __future__ import annotations

import abc
import io
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

BLOCK = 4 << 20
"""Bytes of one request when a file is read from its beginning to its end."""


@dataclass(frozen=True)
class Entry:
    """A file that was listed."""

    name: str
    """The address to open it with."""
    path: str
    """Relative to the folder that was listed, with `/`; the last part of the name if a file was listed."""
    size: int
    """Bytes."""


class Blob(abc.ABC):
    """A file that is open. May be used by several threads at the same time."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        """The address, as messages show it."""
        self.size = size
        """Bytes, when it was opened."""

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset` on; the range must be within the size.

        Raise an error if the file has changed since it was opened, or cannot be read now.
        """

    def close(self) -> None:
        """Release what the blob holds. It is safe to call this twice."""
        return None

    def stream(self, start: int = 0, end: int | None = None, *, block: int = BLOCK) -> Iterator[bytes]:
        """Yield the bytes [start, end) in blocks."""
        end = self.size if end is None else end
        for offset in range(start, end, block):
            yield self.read(offset, min(block, end - offset))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlobFile(io.RawIOBase):
    """A blob as a file object that can be read and searched, for libraries that want one."""

    def __init__(self, blob: Blob) -> None:
        super().__init__()
        self._blob = blob
        self._offset = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset; return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._blob.size}[whence]
        self._offset = max(0, base + offset)
        return self._offset

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        """Fill a buffer from the current offset; return the number of bytes, 0 at the end."""
        length = max(0, min(len(buffer), self._blob.size - self._offset))
        if length:
            buffer[:length] = self._blob.read(self._offset, length)
        self._offset += length
        return length

    def buffered(self, size: int = 1 << 20) -> io.BufferedReader:
        """Return the same with a buffer of some bytes, so that many small reads are one request."""
        return io.BufferedReader(self, size)
