"""Checkpoints in an S3 bucket.

    bucket = Bucket.open("s3://bucket/checkpoints/digits")       # StorageError without boto3

    checkpoints/digits/step-000000000120-3f2a9c1d/manifest.json  # uploaded last: without it there is no checkpoint

Every upload has a unique name, so two writers of one step can't mix their files. Files are uploaded in parts from
memory, without staging on a disk.

A bucket has no locks. So the age of an upload decides whether the writer of a checkpoint without a manifest is alive.
Only S3's own clock is used, and the limit is longer than all retries of one part.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from tidewater.elastic.checkpoint.manifest import step_of, unique_name_of
from tidewater.elastic.checkpoint.places import MANIFEST, Stored
from tidewater.elastic.storage import s3

Groups = Mapping[str, Mapping[str, datetime]]
"""For each checkpoint, when each of its files was written."""

_PART = 32 << 20
"""S3 allows 10,000 parts, so files up to 320 GB. One part is in memory, and its upload is a sign of life."""
_SILENT = timedelta(minutes=15)
"""A writer without a new part or file for this time is dead: 5 attempts of 35 s with waits take 4 min."""


class Bucket:
    """A place for checkpoints under a prefix of a bucket."""

    def __init__(self, bucket: s3.Bucket, prefix: str) -> None:
        """Make no request. `prefix` ends in a slash, unless it is empty."""
        self._bucket, self._prefix = bucket, prefix
        self.text = bucket.address(prefix).rstrip("/")

    @classmethod
    def open(cls, text: str) -> Bucket:
        """Return the place of an ``s3://`` address, without a request to S3. Raise StorageError."""
        bucket, key = s3.split(text)
        s3.client()
        prefix = key.strip("/")
        return cls(s3.Bucket(bucket), f"{prefix}/" if prefix else "")

    def stored(self) -> list[Stored]:
        """See ``Place``."""
        return _complete(self._listed()[0])

    def begin(self, step: int) -> _Upload:
        """See ``Place``."""
        return _Upload(self._bucket, f"{self._prefix}{unique_name_of(step)}")

    def manifest(self, name: str) -> bytes:
        """See ``Place``."""
        return self._bucket.get(f"{self._prefix}{name}/{MANIFEST}")

    @contextlib.contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """See ``Place``. The files are in ``$TMPDIR`` for that time."""
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            for file in self._listed()[0].get(name, {}):
                self._bucket.download(f"{self._prefix}{name}/{file}", Path(folder) / file)
            yield Path(folder)

    def tidy(self, doomed: Callable[[list[Stored]], Collection[str]]) -> None:
        """See ``Place``."""
        groups, now = self._listed()
        for name in doomed(_complete(groups)):
            _remove(self._bucket, f"{self._prefix}{name}", groups.get(name, {}))
        busy = set()
        for upload in self._bucket.uploads(f"{self._prefix}step-"):
            if now - self._bucket.sign_of_life(upload) > _SILENT:
                self._bucket.cancel(upload["Key"], upload["UploadId"])
            else:
                busy.add(upload["Key"].removeprefix(self._prefix).partition("/")[0])
        for name, files in groups.items():
            if MANIFEST not in files and name not in busy and now - max(files.values()) > _SILENT:
                _remove(self._bucket, f"{self._prefix}{name}", files)

    def put(self, name: str, data: bytes) -> None:
        """See ``Place``."""
        self._bucket.put(f"{self._prefix}{name}", data)

    def has(self, name: str) -> bool:
        """See ``Place``."""
        return self._bucket.first(f"{self._prefix}{name}") is not None

    def _listed(self) -> tuple[Groups, datetime]:
        """Return the files of all checkpoints, and the time by S3's clock."""
        groups: dict[str, dict[str, datetime]] = {}
        date, prefix = "", f"{self._prefix}step-"
        for page in self._bucket.pages("list_objects_v2", prefix, Prefix=prefix):
            date = page["ResponseMetadata"]["HTTPHeaders"]["date"]
            for each in page.get("Contents", ()):
                name, _, file = each["Key"].removeprefix(self._prefix).partition("/")
                if step_of(name) is not None and file:
                    groups.setdefault(name, {})[file] = each["LastModified"]
        return groups, parsedate_to_datetime(date)


class _Upload:
    """The upload of one checkpoint."""

    def __init__(self, bucket: s3.Bucket, folder: str) -> None:
        self._bucket, self._folder = bucket, folder
        self._files: list[_File] = []

    def create(self, name: str) -> _File:
        """See ``Upload``."""
        self._files.append(_File(self._bucket, self._folder, name))
        return self._files[-1]

    def commit(self, manifest: bytes) -> str:
        """See ``Upload``."""
        self._bucket.put(f"{self._folder}/{MANIFEST}", manifest)
        self._files.clear()
        return self._folder.rpartition("/")[2]

    def abort(self) -> None:
        """See ``Upload``."""
        # If that fails too, a later writer or the bucket's lifecycle rule removes it.
        with contextlib.suppress(OSError):
            for file in self._files:
                file.cancel()
            _remove(self._bucket, self._folder, [file.name for file in self._files if file.there])
        self._files.clear()


class _File:
    """A file that is uploaded in parts, or in one request if it is small."""

    def __init__(self, bucket: s3.Bucket, folder: str, name: str) -> None:
        self._bucket, self._key, self.name = bucket, f"{folder}/{name}", name
        self._pending = bytearray()
        self._upload_id = ""
        self._parts: list[dict[str, Any]] = []
        self.there = False

    def write(self, data: memoryview, /) -> None:
        """See ``Stream``."""
        self._pending += data
        if len(self._pending) >= _PART:
            self._upload_id = self._upload_id or self._bucket.start(self._key)
            self._send()

    def close(self) -> None:
        """See ``Stream``."""
        if self.there:
            return
        if not self._upload_id:
            self._bucket.put(self._key, bytes(self._pending))
        else:
            if self._pending:
                self._send()
            self._bucket.complete(self._key, self._upload_id, self._parts)
        self.there = True

    def cancel(self) -> None:
        """Abort the upload unless it is complete. Raise OSError."""
        if self._upload_id and not self.there:
            self._bucket.cancel(self._key, self._upload_id)

    def _send(self) -> None:
        number = len(self._parts) + 1
        self._parts.append(self._bucket.send(self._key, self._upload_id, number, bytes(self._pending)))
        self._pending.clear()


def _remove(bucket: s3.Bucket, folder: str, files: Collection[str]) -> None:
    """Remove the files of a checkpoint, the manifest first: without it, the rest is no checkpoint."""
    for file in sorted(files, key=lambda each: each != MANIFEST):
        bucket.remove(f"{folder}/{file}")


def _complete(groups: Groups) -> list[Stored]:
    """Return the checkpoints that have a manifest, newest first."""
    return sorted(
        (
            Stored(step_of(name) or 0, files[MANIFEST].timestamp(), name)
            for name, files in groups.items()
            if MANIFEST in files
        ),
        reverse=True,
    )
