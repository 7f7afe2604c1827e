"""Where the chunks of a RecordIO file are, and which records they hold: read from the headers alone.

index = read_index(blob)
index.records                    # 16384
for chunk in index.between(100, 200): ...
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from elasticdl.data.recordio.chunk import HEADER_SIZE, Header, decoded
from elasticdl.errors import DamagedData
from tidewater.elastic.storage.blob import Blob, BlobFile

REMEDY = "copy or write the file again"
_AHEAD = 64 << 10
"""Bytes of one request for headers: small chunks come several at a time."""


@dataclass(frozen=True)
class Chunk:
    """A chunk and its place."""

    number: int
    offset: int
    """Of its header, in bytes."""
    first: int
    """Index of its first record in the file."""
    header: Header

    @property
    def end(self) -> int:
        """Return the index after its last record."""
        return self.first + self.header.records

    def where(self, name: str) -> str:
        """Return words for errors: the file, and the chunk's number, byte and first record."""
        return f"{name}: chunk {self.number} at byte {self.offset} (records from {self.first} on)"


@dataclass(frozen=True)
class Index:
    """The chunks of a file."""

    chunks: tuple[Chunk, ...]

    @property
    def records(self) -> int:
        """Return the number of records in the file."""
        return self.chunks[-1].end if self.chunks else 0

    def between(self, start: int, end: int) -> tuple[Chunk, ...]:
        """Return the chunks that hold the records [start, end)."""
        left = bisect.bisect_right(self.chunks, start, key=lambda chunk: chunk.end)
        right = bisect.bisect_left(self.chunks, end, key=lambda chunk: chunk.first)
        return self.chunks[left:right]


def read_index(blob: Blob) -> Index:
    """Return the index of a file; raise DamagedData if the file is cut off or a header is altered."""
    if not blob.size:
        raise DamagedData(f"{blob.name} is empty: it has 0 bytes", "write it again, or remove it")
    file = BlobFile(blob).buffered(_AHEAD)
    chunks: list[Chunk] = []
    offset, first = 0, 0
    while offset < blob.size:
        where = f"{blob.name}: chunk {len(chunks)} at byte {offset} (records from {first} on)"
        if blob.size - offset < HEADER_SIZE:
            raise DamagedData(f"{where} is cut off in its header, {blob.size - offset} bytes of {HEADER_SIZE}", REMEDY)
        file.seek(offset)
        header = _header(file.read(HEADER_SIZE), where)
        there = blob.size - offset - HEADER_SIZE
        if there < header.compressed_size:
            raise DamagedData(
                f"{where} is cut off: {there} bytes of {header.compressed_size} follow its header", REMEDY
            )
        chunks.append(Chunk(len(chunks), offset, first, header))
        offset += HEADER_SIZE + header.compressed_size
        first += header.records
    return Index(tuple(chunks))


def read_chunk(blob: Blob, chunk: Chunk) -> list[bytes]:
    """Return the records of a chunk; raise DamagedData, with file and place, if it is altered."""
    body = blob.read(chunk.offset + HEADER_SIZE, chunk.header.compressed_size)
    try:
        return decoded(chunk.header, body)
    except DamagedData as error:
        raise DamagedData(f"{chunk.where(blob.name)} is damaged: {error.message}", REMEDY) from error


def _header(data: bytes, where: str) -> Header:
    try:
        return Header.parse(data)
    except DamagedData as error:
        raise DamagedData(f"{where} has a damaged header: {error.message}", REMEDY) from error
