"""Files of a volume."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from elasticdl.data.storage.blob import Blob, Entry
from elasticdl.errors import DamagedData, DataError, MissingData, Unavailable

_NOT_OURS = ("lost+found",)
"""Folders that a file system keeps for itself; only root may read them."""


class LocalBlob(Blob):
    """A file of a volume."""

    _descriptor = -1

    def __init__(self, path: Path) -> None:
        with told(str(path)):
            self._descriptor = os.open(path, os.O_RDONLY)
            super().__init__(str(path), os.fstat(self._descriptor).st_size)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file."""
        data = bytearray()
        while len(data) < length:  # one pread returns at most 2 GiB
            with told(self.name):
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                raise DamagedData(
                    f"{self.name} ended at byte {offset + len(data)}; it had {self.size} bytes when it was opened",
                    "write files elsewhere and rename them; a file must not change while a job reads it",
                )
            data += more
        return bytes(data)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def listed(root: Path) -> Iterator[Entry]:
    """Yield the files at a path, however deep, or the file itself. The order is that of the file system."""
    if root.is_file():
        yield Entry(str(root), root.name, root.stat().st_size)
        return
    for folder, folders, files in os.walk(root, onerror=_raise, followlinks=True):
        folders[:] = [name for name in folders if name not in _NOT_OURS and not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            yield Entry(str(path), path.relative_to(root).as_posix(), path.stat().st_size)


def _raise(error: OSError) -> None:
    raise error


@contextlib.contextmanager
def told(address: str) -> Iterator[None]:
    """Make an error for people of an OSError."""
    try:
        yield
    except FileNotFoundError as error:
        raise MissingData(f"{address}: there is no such file", "check the path, and the job's --volume") from error
    except IsADirectoryError as error:
        raise DataError(f"{address} is a folder, not a file", "name a file in it") from error
    except PermissionError as error:
        raise DataError(
            f"{address}: {error.strerror}", "allow it to the user of the job's pods, see --volume"
        ) from error
    except OSError as error:
        raise Unavailable(f"{address}: {error.strerror or error}", "check the volume") from error
