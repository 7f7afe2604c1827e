"""What an address names: a path, a `file://` address or an `s3://` address.

store = Store()                                   # or with a program's own errors
store.files("s3://bucket/mnist/train")            # [Entry("s3://bucket/mnist/train/0", "0", 3_145_728), …]
store.opened("/data/mnist/train/data-00000").read(100, 20)
store.written("s3://bucket/job/manifest.json", lambda file: file.write(data))
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import unquote, urlsplit

from tidewater.elastic.storage import local, s3
from tidewater.elastic.storage.blob import Blob, Entry
from tidewater.elastic.storage.errors import PLAIN, Errors

T = TypeVar("T")

_KNOWN = "known are paths, file:///path and s3://bucket/prefix"


def joined(address: str, *names: str) -> str:
    """Return the address of something in a folder."""
    return "/".join([address.rstrip("/"), *names])


@dataclass(frozen=True)
class Store:
    """Files of volumes and buckets. Every method raises one of the errors."""

    errors: Errors = PLAIN
    known: str = _KNOWN
    """The remedy for an address of another kind."""

    def files(self, address: str) -> list[Entry]:
        """Return the files at an address, sorted by path: all in a folder, however deep, or the file itself.

        Files and folders with a name that begins with a dot are left out. Raise an error if there is no file.
        """
        if address.startswith(s3.SCHEME):
            bucket, key = self.bucket(address)
            found = list(bucket.listed(key))
        else:
            path = self.path(address)
            with local.explained(address, self.errors):
                if not path.exists():
                    message = f"{address}: there is no such file or folder"
                    raise self.errors.missing(message, "check path and volume of the job")
                found = list(local.listed(path, self.errors))
        seen = [entry for entry in found if not any(part.startswith(".") for part in entry.path.split("/"))]
        if not seen:
            remedy = "check the address, and that the data was written there"
            raise self.errors.missing(f"{address}: there are no files", remedy)
        return sorted(seen, key=lambda entry: entry.path)

    def opened(self, address: str) -> Blob:
        """Return a file, opened for reading."""
        if address.startswith(s3.SCHEME):
            bucket, key = self.bucket(address)
            return bucket.opened(key)
        path = self.path(address)
        if path.is_dir():
            raise self.errors.wrong(f"{address} is a folder, not a file", "name a file in it")
        return local.LocalBlob(path, self.errors)

    def read(self, address: str) -> bytes:
        """Return the content of a small file."""
        with self.opened(address) as blob:
            return blob.read(0, blob.size)

    def written(self, address: str, write: Callable[[BinaryIO], T]) -> T:
        """Write a file under a name that may exist, as a whole or not at all. Return what `write` returned.

        A file on a volume gets its name when it is on the disk. An object in S3 exists once it is complete.
        """
        if address.startswith(s3.SCHEME):
            with tempfile.NamedTemporaryFile() as spool:
                result = write(spool)  # type: ignore[arg-type] # a wrapper with all methods of a file
                spool.flush()
                self.uploaded(Path(spool.name), address)
                return result
        path = self.path(address)
        with local.explained(address, self.errors):
            path.parent.mkdir(parents=True, exist_ok=True)
            result = local.write(path, write)
            local.sync(path.parent.parent)
        return result

    def uploaded(self, path: Path, address: str) -> None:
        """Upload a file to S3."""
        bucket, key = self.bucket(address)
        bucket.upload(path, key)

    def sizes(self, address: str) -> dict[str, int]:
        """Return the size in bytes of every file in a folder, however deep, by its path in it; empty if there is none.

        Files that are being written are there under another name. Files that are removed meanwhile are left out.
        """
        if address.startswith(s3.SCHEME):
            bucket, key = self.bucket(address)
            return {entry.path: entry.size for entry in bucket.listed(key)}
        root, found = self.path(address), {}
        with local.explained(address, self.errors):
            for folder, _, names in os.walk(root):
                for path in (Path(folder, name) for name in names):
                    with contextlib.suppress(FileNotFoundError):
                        found[path.relative_to(root).as_posix()] = path.stat().st_size
        return found

    def removed(self, address: str, first: str) -> None:
        """Remove a folder, one file of it before the others."""
        if address.startswith(s3.SCHEME):
            bucket, key = self.bucket(address)
            for name in sorted(self.sizes(address), key=lambda each: each != first):
                bucket.remove(f"{key}/{name}")
            return
        path = self.path(address)
        with local.explained(address, self.errors), contextlib.suppress(FileNotFoundError):
            (path / first).unlink(missing_ok=True)
            shutil.rmtree(path)

    def bucket(self, address: str) -> tuple[s3.Bucket, str]:
        """Return bucket and key of an `s3://` address."""
        name, key = s3.split(address, self.errors)
        return s3.Bucket(name, self.errors), key

    def path(self, address: str) -> Path:
        """Return the path that an address names."""
        if "://" not in address:
            return Path(address)
        parts = urlsplit(address)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise self.errors.wrong(f"{address}: unknown kind of address", self.known)
        return Path(unquote(parts.path))
