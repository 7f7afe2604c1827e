"""Writes RecordIO files.

    with RecordWriter(Path("data-00000")) as writer:
        writer.write(b"record")

The file has another name until it is complete, so that no reader gets half of it. After an error there is no file.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticdl.data.recordio.chunk import Compressor, encoded
from elasticdl.data.recordio.manifest import Written
from elasticdl.errors import InputError

CHUNK_SIZE = 1 << 20
"""Bytes of records in a chunk, before compression. To read one record, its chunk is read. ElasticDL's is 32 MiB."""
_HEADER_AND_LENGTH = 24


class RecordWriter:
    """Writes one file. Use it as a context manager."""

    def __init__(self, path: Path, compressor: Compressor = Compressor.SNAPPY, chunk_size: int = CHUNK_SIZE) -> None:
        if not 1 <= chunk_size < 2**31:
            raise InputError(f"a chunk size of {chunk_size} bytes", "give 1 byte to 2 GiB")
        self._path = path
        self._draft = path.with_name(f".{path.name}.draft")
        self._file = self._draft.open("wb")
        self._compressor = compressor
        self._chunk_size = chunk_size
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.records = 0
        """Records written so far."""

    def write(self, record: bytes) -> None:
        """Append a record."""
        if len(record) + _HEADER_AND_LENGTH >= 2**31:
            raise InputError(f"{self._path}: a record of {len(record)} bytes", "a record has less than 2 GiB")
        if self._waiting and self._waiting_bytes + len(record) > self._chunk_size:
            self._flush()
        self._waiting.append(record)
        self._waiting_bytes += len(record)
        self.records += 1

    def close(self) -> Written:
        """Give the file its name once all of it is on the disk; return what was written."""
        self._flush()
        self._file.flush()
        os.fsync(self._file.fileno())
        written = Written(self.records, self._file.tell())
        self._file.close()
        self._draft.rename(self._path)
        return written

    def discard(self) -> None:
        """Remove what was written. It is safe to call this twice."""
        self._file.close()
        self._draft.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._waiting:
            self._file.write(encoded(self._waiting, self._compressor))
        self._waiting, self._waiting_bytes = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._file.closed:
                self.close()
        finally:
            self.discard()  # of a file that is complete, there is nothing left to remove
