"""A compressed file, unpacked once to a temporary file: what is compressed as a whole can't be read at an offset.

    blob = unpacked(STORE.opened("/data/clicks.csv.gz"))

The temporary file has no name and ends with the process. The file's own checksum is verified on the way.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from typing import IO

from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import BLOCK, Blob, BlobFile

SUFFIXES = (".gz", ".tgz")


class SpooledBlob(Blob):
    """A temporary file under the name of what it was unpacked from."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._file = file
        super().__init__(name, os.fstat(file.fileno()).st_size)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the unpacked file."""
        data = b""
        while len(data) < length:  # one pread returns at most 2 GiB
            data += os.pread(self._file.fileno(), length - len(data), offset + len(data))
        return data

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()


def unpacked(blob: Blob) -> Blob:
    """Return the unpacked content of a file, or the file itself if its name doesn't say that it is compressed."""
    if not blob.name.lower().endswith(SUFFIXES):
        return blob
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the blob closes it
    try:
        with blob, gzip.open(BlobFile(blob).buffered(BLOCK)) as source:
            shutil.copyfileobj(source, file, BLOCK)
        file.flush()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        file.close()
        raise DamagedData(f"{blob.name} ({blob.size} bytes) does not unpack: {error}", "copy it again") from error
    except OSError as error:
        file.close()
        raise DataError(
            f"{blob.name} can't be unpacked to {tempfile.gettempdir()}: {error.strerror}",
            "unpack it yourself, or set TMPDIR to a folder with more room",
        ) from error
    return SpooledBlob(blob.name, file)
