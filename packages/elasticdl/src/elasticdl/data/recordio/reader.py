"""Records of RecordIO files by shard: of one file, or of all files in a folder.

reader = RecordIOReader("/data/mnist/train")
for shard in reader.shards():            # one for each file, counted from the headers
    for record in reader.read(shard): ...
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from elasticdl.data.reader import Reader, Shard
from elasticdl.data.recordio import manifest
from elasticdl.data.recordio.chunk import HEADER_SIZE, Header, decoded
from elasticdl.data.storage import STORE
from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import Blob, BlobFile, Entry

_OPEN_FILES = 32
REMEDY = "copy or write the file again"
_AHEAD = 64 << 10
"""Bytes of one request for headers: small chunks come several at a time."""


class RecordIOReader(Reader):
    """Reads RecordIO. Memory: one chunk, and the index of up to 32 files."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open: OrderedDict[str, tuple[Blob, Index]] = OrderedDict()
        self._last: tuple[str, Chunk, list[bytes]] | None = None

    def shards(self) -> list[Shard]:
        """Return one shard for each file. Counts come from the folder's manifest, or from the headers of the chunks."""
        entries = STORE.files(self._address)
        said = self._manifest(entries)
        data = [entry for entry in entries if not entry.path.startswith("_")]
        deep = sorted({entry.path.rpartition("/")[0] for entry in data if "/" in entry.path})
        if deep:
            raise DataError(
                f"{self._address} holds folders with files: {', '.join(deep[:3])}",
                f"name one of them, such as {self._address.rstrip('/')}/{deep[0]}",
            )
        if said is None:
            return [Shard(entry.name, 0, self._opened(entry.name)[1].records) for entry in data]
        manifest.check(self._address, said, data)
        return [Shard(entry.name, 0, said[entry.path].records) for entry in data]

    def read(self, shard: Shard) -> Iterator[bytes]:
        """Yield the records of a shard. Only the chunks that hold them are read."""
        blob, index = self._opened(shard.name)
        if shard.end > index.records:
            raise DamagedData(
                f"{shard.name} has {index.records} records, and the task is [{shard.start}, {shard.end})",
                "the file has changed since the job counted its records: start the job again",
            )
        for chunk in index.between(shard.start, shard.end):
            records = self._records(blob, chunk)
            yield from records[max(0, shard.start - chunk.first) : shard.end - chunk.first]

    def close(self) -> None:
        """Close all files."""
        for blob, _ in self._open.values():
            blob.close()
        self._open.clear()
        self._last = None

    def _manifest(self, entries: list[Entry]) -> dict[str, manifest.Written] | None:
        for entry in entries:
            if entry.path == manifest.NAME:
                return manifest.from_json(entry.name, STORE.read(entry.name))
        return None

    def _opened(self, name: str) -> tuple[Blob, Index]:
        """Return a file and its index, opened before if it is among the last used ones."""
        if name not in self._open:
            blob = STORE.opened(name)
            self._open[name] = (blob, read_index(blob))
            if len(self._open) > _OPEN_FILES:
                _, (oldest, _) = self._open.popitem(last=False)
                oldest.close()
        self._open.move_to_end(name)
        return self._open[name]

    def _records(self, blob: Blob, chunk: Chunk) -> list[bytes]:
        """Return a chunk's records; the last chunk is kept, as the next task often begins in it."""
        if self._last is None or self._last[:2] != (blob.name, chunk):
            self._last = (blob.name, chunk, read_chunk(blob, chunk))
        return self._last[2]


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
