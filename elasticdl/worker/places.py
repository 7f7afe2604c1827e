"""A folder for what a job writes: on a volume, or a prefix in S3. A file in it is there as a whole or not at all.

target = place("s3://bucket/predictions")
target.put("part-0.npy", data)
"""

from __future__ import annotations

import abc
import os
import secrets
import tempfile
from pathlib import Path

from elasticdl.data.storage import addresses, local, s3
from elasticdl.errors import MissingData


class Place(abc.ABC):
    """A folder of files."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the names of the files directly in the folder, sorted; none if there is no folder."""

    @abc.abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write a file; one of that name is replaced as a whole. Raise DataError if that isn't possible."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; it is no error if there is none."""

    def get(self, name: str) -> bytes:
        """Return the content of a file; raise MissingData if there is none."""
        with addresses.open_blob(f"{self.address}/{name}") as blob:
            return blob.read(0, blob.size)


class Folder(Place):
    """A folder of a volume; it is made with the first file."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._path = addresses.local_path(address)

    def names(self) -> list[str]:
        """See `Place`."""
        with local.told(self.address):
            if not self._path.is_dir():
                return []
            return sorted(each.name for each in self._path.iterdir() if each.is_file() and each.name[0] != ".")

    def put(self, name: str, data: bytes) -> None:
        """See `Place`. The file is on the disk before it has its name."""
        with local.told(f"{self.address}/{name}"):
            self._path.mkdir(parents=True, exist_ok=True)
            fresh = self._path / f".{name}.{secrets.token_hex(4)}"
            try:
                _write(fresh, data)
                fresh.replace(self._path / name)
            finally:
                fresh.unlink(missing_ok=True)
            _sync(self._path)

    def remove(self, name: str) -> None:
        """See `Place`."""
        with local.told(f"{self.address}/{name}"):
            (self._path / name).unlink(missing_ok=True)


class Prefix(Place):
    """A prefix in S3, whose objects are replaced as a whole."""

    def names(self) -> list[str]:
        """See `Place`."""
        try:
            found = [entry.path for entry in s3.listed(f"{self.address}/")]
        except MissingData:
            return []
        return sorted(path for path in found if "/" not in path)

    def put(self, name: str, data: bytes) -> None:
        """See `Place`."""
        with tempfile.NamedTemporaryFile() as file:  # boto3 repeats a part that was not received, from the file
            file.write(data)
            file.flush()
            s3.upload(Path(file.name), f"{self.address}/{name}")

    def remove(self, name: str) -> None:
        """See `Place`."""
        bucket, key = s3.split(f"{self.address}/{name}")
        s3.client().delete_object(Bucket=bucket, Key=key)


def place(address: str) -> Place:
    """Return the folder at an address: a path, `file://` or `s3://`; raise DataError for another kind."""
    return Prefix(address) if address.startswith(s3.SCHEME) else Folder(address)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
