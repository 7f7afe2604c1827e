"""Checkpoints in an S3 bucket.

    bucket = Bucket.open("s3://bucket/checkpoints/digits")       # ConfigError without boto3

    checkpoints/digits/step-000000000120-3f2a9c1d/manifest.json  # uploaded last: without it there is no checkpoint

boto3 finds the endpoint, region and credentials. Every upload has a unique name, so two writers of one step can't mix
their files. The only retry policy is botocore's "standard" with the limits below; after the last attempt an OSError has
the reason. Files are uploaded in parts from memory, without staging on a disk.

A bucket has no locks. So the age of an upload decides whether the writer of a checkpoint without a manifest is alive.
Only S3's own clock is used, and the limit is longer than all retries of one part.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidewater.elastic.checkpoint.manifest import step_of, unique_name_of
from tidewater.elastic.checkpoint.places import MANIFEST, SCHEME, Stored
from tidewater.elastic.checkpoint.s3 import S3, Groups
from tidewater.elastic.errors import ConfigError

_ATTEMPTS = 5
_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_PART = 32 << 20
"""S3 allows 10,000 parts, so files up to 320 GB. One part is in memory, and its upload is a sign of life."""
_SILENT = timedelta(minutes=15)
"""A writer without a new part or file for this time is dead: 5 attempts of 35 s with waits take 4 min."""


class Bucket:
    """A place for checkpoints under a prefix of a bucket."""

    def __init__(self, s3: S3) -> None:
        self._s3 = s3
        self.text = f"{SCHEME}{s3.bucket}/{s3.prefix}".rstrip("/")

    @classmethod
    def open(cls, text: str) -> Bucket:
        """Return the place of an ``s3://`` address, without a request to S3. Raise ConfigError."""
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        if not bucket:
            raise ConfigError(f"--checkpoints names {text!r}, which has no bucket: write {SCHEME}bucket/prefix")
        prefix = prefix.strip("/")
        return cls(S3(_client(text), bucket, f"{prefix}/" if prefix else ""))

    def stored(self) -> list[Stored]:
        """See ``Place``."""
        return _complete(self._s3.listed()[0])

    def begin(self, step: int) -> _Upload:
        """See ``Place``."""
        return _Upload(self._s3, unique_name_of(step))

    def manifest(self, name: str) -> bytes:
        """See ``Place``."""
        return self._s3.get(f"{name}/{MANIFEST}")

    @contextlib.contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """See ``Place``. The files are in ``$TMPDIR`` for that time."""
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            for file in self._s3.listed()[0].get(name, {}):
                self._s3.download(f"{name}/{file}", Path(folder) / file)
            yield Path(folder)

    def tidy(self, doomed: Callable[[list[Stored]], Collection[str]]) -> None:
        """See ``Place``."""
        groups, now = self._s3.listed()
        for name in doomed(_complete(groups)):
            self._s3.remove(name, groups.get(name, {}))
        busy = set()
        for upload in self._s3.uploads():
            if now - self._s3.sign_of_life(upload) > _SILENT:
                self._s3.cancel(upload["Key"], upload["UploadId"])
            else:
                busy.add(upload["Key"].removeprefix(self._s3.prefix).partition("/")[0])
        for name, files in groups.items():
            if MANIFEST not in files and name not in busy and now - max(files.values()) > _SILENT:
                self._s3.remove(name, files)

    def put(self, name: str, data: bytes) -> None:
        """See ``Place``."""
        self._s3.put(name, data)

    def has(self, name: str) -> bool:
        """See ``Place``."""
        return self._s3.has(name)


class _Upload:
    """The upload of one checkpoint."""

    def __init__(self, s3: S3, name: str) -> None:
        self._s3, self._name = s3, name
        self._files: list[_File] = []

    def create(self, name: str) -> _File:
        """See ``Upload``."""
        self._files.append(_File(self._s3, self._name, name))
        return self._files[-1]

    def commit(self, manifest: bytes) -> str:
        """See ``Upload``."""
        self._s3.put(f"{self._name}/{MANIFEST}", manifest)
        self._files.clear()
        return self._name

    def abort(self) -> None:
        """See ``Upload``."""
        # If that fails too, a later writer or the bucket's lifecycle rule removes it.
        with contextlib.suppress(OSError):
            for file in self._files:
                file.cancel()
            self._s3.remove(self._name, [file.name for file in self._files if file.there])
        self._files.clear()


class _File:
    """A file that is uploaded in parts, or in one request if it is small."""

    def __init__(self, s3: S3, folder: str, name: str) -> None:
        self._s3, self._key, self.name = s3, f"{s3.prefix}{folder}/{name}", name
        self._pending = bytearray()
        self._upload_id = ""
        self._parts: list[dict[str, Any]] = []
        self.there = False

    def write(self, data: memoryview, /) -> None:
        """See ``Stream``."""
        self._pending += data
        if len(self._pending) >= _PART:
            self._upload_id = self._upload_id or self._s3.start(self._key)
            self._send()

    def close(self) -> None:
        """See ``Stream``."""
        if self.there:
            return
        if not self._upload_id:
            self._s3.put(self._key.removeprefix(self._s3.prefix), bytes(self._pending))
        else:
            if self._pending:
                self._send()
            self._s3.complete(self._key, self._upload_id, self._parts)
        self.there = True

    def cancel(self) -> None:
        """Abort the upload unless it is complete. Raise OSError."""
        if self._upload_id and not self.there:
            self._s3.cancel(self._key, self._upload_id)

    def _send(self) -> None:
        number = len(self._parts) + 1
        self._parts.append(self._s3.send(self._key, self._upload_id, number, bytes(self._pending)))
        self._pending.clear()


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


def _client(text: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise ConfigError(f"--checkpoints names {text}, which needs boto3: pip install boto3") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"--checkpoints names {text}, and boto3's settings don't do: {error}") from error
