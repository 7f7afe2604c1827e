"""Files of checkpoints, written whole or not at all, on a volume or in S3.

    written("s3://bucket/job/version-000000000200/manifest.json", lambda file: file.write(data))

A file on a volume gets its name when it is on the disk. An object in S3 exists once it is complete. Reading is
`elasticdl.data.storage`'s.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from elasticdl.data.storage import s3
from elasticdl.data.storage.addresses import local_path
from elasticdl.data.storage.local import told
from elasticdl.errors import Unavailable

T = TypeVar("T")


def joined(address: str, *names: str) -> str:
    """Return the address of something in a folder."""
    return "/".join([address.rstrip("/"), *names])


def written(address: str, write: Callable[[BinaryIO], T]) -> T:
    """Write a file under a name that may exist. Return what `write` returned."""
    if address.startswith(s3.SCHEME):
        with tempfile.NamedTemporaryFile() as spool:
            result = write(spool)  # type: ignore[arg-type] # a wrapper with all methods of a file
            spool.flush()
            s3.upload(Path(spool.name), address)
            return result
    path = local_path(address)
    with told(address):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.parent / f".{path.name}.{secrets.token_hex(4)}"
        try:
            with fresh.open("xb") as file:
                result = write(file)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        _sync(path.parent)
        _sync(path.parent.parent)
    return result


def sizes(address: str) -> dict[str, int]:
    """Return the size in bytes of every file in a folder, however deep, by its path in it; empty if there is none.

    Files that are being written are there under another name. Files that are removed meanwhile are left out.
    """
    if address.startswith(s3.SCHEME):
        return {entry.path: entry.size for entry in s3.listed(address)}
    found = {}
    with told(address):
        for folder, _, names in os.walk(local_path(address)):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    found[path.relative_to(local_path(address)).as_posix()] = path.stat().st_size
    return found


def removed(address: str, first: str) -> None:
    """Remove a folder, one file of it before the others."""
    if not address.startswith(s3.SCHEME):
        path = local_path(address)
        with told(address), contextlib.suppress(FileNotFoundError):
            (path / first).unlink(missing_ok=True)
            shutil.rmtree(path)
        return
    bucket, key = s3.split(address)
    with _refused(address):
        for name in sorted(sizes(address), key=lambda each: each != first):
            s3.client().delete_object(Bucket=bucket, Key=f"{key}/{name}")


def _sync(folder: Path) -> None:
    """Sync the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some file systems can't
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _refused(address: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    kinds: tuple[Any, ...] = (BotoCoreError, ClientError)
    try:
        yield
    except kinds as error:
        raise Unavailable(f"{address}: {error}", "allow s3:DeleteObject to the role of the pods") from error
