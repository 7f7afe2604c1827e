"""Files of a volume."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from tidewater.elastic.storage.blob import Blob, Entry
from tidewater.elastic.storage.errors import PLAIN, Errors, StorageError

_NOT_OURS = ("lost+found",)
"""Folders that a file system keeps for itself; only root may read them."""

T = TypeVar("T")


class LocalBlob(Blob):
    """A file of a volume."""

    _descriptor = -1

    def __init__(self, path: Path, errors: Errors = PLAIN) -> None:
        self._errors = errors
        with explained(str(path), self._errors):
            self._descriptor = os.open(path, os.O_RDONLY)
            super().__init__(str(path), os.fstat(self._descriptor).st_size)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file."""
        data = bytearray()
        while len(data) < length:  # one pread returns at most 2 GiB
            with explained(self.name, self._errors):
                more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                raise self._errors.damaged(
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


def listed(root: Path, errors: Errors) -> Iterator[Entry]:
    """Yield the files at a path, however deep, or the file itself. The order is that of the file system.

    Links are followed, except to a folder that they are in. A link that leads nowhere is an error, and so is something
    else than files and folders.
    """
    if root.is_file():
        yield Entry(str(root), root.name, root.stat().st_size)
        return
    for folder, folders, files in os.walk(root, onerror=_raise, followlinks=True):
        ours = [name for name in folders if name not in _NOT_OURS and not name.startswith(".")]
        folders[:] = [name for name in ours if not _leads_back(Path(folder, name))]
        for path in (Path(folder, name) for name in files if not name.startswith(".")):
            with explained(str(path), errors):
                found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise errors.wrong(f"{path} is neither a file nor a folder", "remove it from the folder of the data")
            yield Entry(str(path), path.relative_to(root).as_posix(), found.st_size)


def write(path: Path, content: Callable[[BinaryIO], T]) -> T:
    """Write a file under a name that may exist: it gets its name when it is on the disk. Raise OSError.

    Args:
        path: In a folder that exists.
        content: Writes the content.

    Returns:
        What `content` returned.
    """
    fresh = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with fresh.open("xb") as file:
            result = content(file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    sync(path.parent)
    return result


def sync(folder: Path) -> None:
    """Sync the names in a folder. Some file systems do not support that and return EINVAL."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _leads_back(folder: Path) -> bool:
    """Return whether a folder is a link to one that it is in: to follow it would never end."""
    return folder.is_symlink() and folder.resolve() in {each.resolve() for each in folder.absolute().parents}


def _raise(error: OSError) -> None:
    raise error


@contextlib.contextmanager
def explained(address: str, errors: Errors) -> Iterator[None]:
    """Raise an OSError as an error with a remedy."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise errors.missing(f"{address}: there is no such file", "check path and volume of the job") from error
    except IsADirectoryError as error:
        raise errors.wrong(f"{address} is a folder, not a file", "name a file in it") from error
    except PermissionError as error:
        remedy = "allow it to the user of the job's pods"
        raise errors.wrong(f"{address}: {error.strerror}", remedy) from error
    except OSError as error:
        raise errors.unavailable(f"{address}: {error.strerror or error}", "check the volume") from error
