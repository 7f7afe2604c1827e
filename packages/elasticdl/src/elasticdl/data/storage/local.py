"""Files of a volume."""

from __future__ import annotations

import contextlib
import os
import stat
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
    """Yield the files at a path, however deep, or the file itself. The order is that of the file system.

    Links are followed, except to a folder that they are in.

    Raises:
        DataError: a link leads nowhere, or there is something else than files and folders.
    """
    if root.is_file():
        yield Entry(str(root), root.name, root.stat().st_size)
        return
    for folder, folders, files in os.walk(root, onerror=_raise, followlinks=True):
        ours = [name for name in folders if name not in _NOT_OURS and not name.startswith(".")]
        folders[:] = [name for name in ours if not _leads_back(Path(folder, name))]
        for path in (Path(folder, name) for name in files if not name.startswith(".")):
            with told(str(path)):
                found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise DataError(f"{path} is neither a file nor a folder", "remove it from the folder of the data")
            yield Entry(str(path), path.relative_to(root).as_posix(), found.st_size)


def _leads_back(folder: Path) -> bool:
    """Return whether a folder is a link to one that it is in: to follow it would never end."""
    return folder.is_symlink() and folder.resolve() in {each.resolve() for each in folder.absolute().parents}


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
