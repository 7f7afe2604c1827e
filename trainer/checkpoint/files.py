"""The files of one checkpoint on their way to a place, each with its size and sha256.

files = Files(place.begin(120))
with files.create("tree.json") as file:
    file.write(data)
files.entries["tree.json"]              # for the manifest
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from trainer.checkpoint.manifest import CHUNK, Entry
from trainer.checkpoint.places import Stream, Upload

_SMALL = 64 << 10
_GATHER = 1 << 20
"""Small pieces are put together up to this size; copying large ones would cost more than it saves."""


class File:
    """A file that is hashed as it goes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._gathered = bytearray()
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Take all of it. A memoryview must be of bytes. Raises OSError."""
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
        """Return when the place has all of it. Raises OSError."""
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
    """What an upload consists of so far."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self.entries: dict[str, Entry] = {}

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[File]:
        """A file to be written in the context. Raises OSError."""
        file = File(self._upload.create(name))
        yield file
        self.entries[name] = file.end()
