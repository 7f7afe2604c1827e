"""Writes the files of one checkpoint to a place, and records the size and sha256 of each.

files = Files(place.begin(120))
with files.create("tree.json") as file:
    file.write(data)
files.entries["tree.json"]              # for the manifest
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from tidewater.elastic.checkpoint.manifest import CHUNK, Entry
from tidewater.elastic.checkpoint.places import Stream, Upload

_SMALL = 64 << 10
_GATHER = 1 << 20
"""Small pieces are combined up to this size; copying larger ones would cost more than it saves."""


class File:
    """A file that is hashed while it is written."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._gathered = bytearray()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write all of ``data``; a memoryview must be of bytes. Raise OSError."""
        self.size += len(data)
        if len(data) < _SMALL:
            self._gathered += data
            if len(self._gathered) >= _GATHER:
                self._pass_on()
            return
        self._pass_on()
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            self._put(view[start : start + CHUNK])

    def end(self) -> Entry:
        """Return when the place has stored the file. Raise OSError."""
        self._pass_on()
        self._stream.close()
        return Entry(self.size, self._digest.hexdigest())

    def _pass_on(self) -> None:
        if self._gathered:
            self._put(memoryview(self._gathered))
            self._gathered = bytearray()

    def _put(self, view: memoryview) -> None:
        self._digest.update(view)
        self._stream.write(view)


class Files:
    """The files of an upload so far."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self.entries: dict[str, Entry] = {}

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[File]:
        """Yield a file to write to. Raise OSError."""
        file = File(self._upload.create(name))
        yield file
        self.entries[name] = file.end()
