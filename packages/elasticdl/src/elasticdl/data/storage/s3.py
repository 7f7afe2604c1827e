"""Objects of a bucket, read by range. boto3 is imported when the first `s3://` address is used.

An object is read with the ETag that it had when it was listed: if it is replaced meanwhile, S3 refuses the read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from elasticdl.data.storage.blob import Blob, Entry
from elasticdl.errors import DamagedData, DataError, MissingData, Unavailable

SCHEME = "s3://"

_ATTEMPTS = 5
"""For one read, each with botocore's own retries: a connection may break in the middle of an answer."""
_MISSING = ("NoSuchKey", "NoSuchBucket", "404", "NotFound")
_DENIED = ("AccessDenied", "403", "Forbidden")
_CHANGED = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "500", "503")


class S3Blob(Blob):
    """An object of a bucket."""

    def __init__(self, name: str, size: int, etag: str) -> None:
        super().__init__(name, size)
        self._bucket, self._key = split(name)
        self._etag = etag

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the object by a GET with a range."""
        asked = {"Bucket": self._bucket, "Key": self._key, "Range": f"bytes={offset}-{offset + length - 1}"}
        if not length:
            return b""
        with _told(self.name):
            answer = client().get_object(**asked, IfMatch=self._etag)
            return self._whole(answer["Body"], asked, length)

    def _whole(self, body: Any, asked: dict[str, str], length: int) -> bytes:
        """Return the answer's bytes, asked for again if the connection breaks."""
        from botocore.exceptions import BotoCoreError

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                data = bytes(body.read())
                if len(data) == length:
                    return data
            except (BotoCoreError, OSError):  # urllib3's errors of a broken connection come as either
                if attempt == _ATTEMPTS:
                    raise
            body = client().get_object(**asked, IfMatch=self._etag)["Body"]
        raise Unavailable(f"{self.name}: S3 sends fewer than the {length} bytes asked for", "try again later")


@lru_cache(1)
def client() -> Any:
    """Return the client of this process: region, endpoint and credentials as boto3 finds them."""
    import boto3
    from botocore.config import Config

    connect: Any = boto3.client  # its type lists every service by name
    return connect("s3", config=Config(retries={"mode": "standard", "total_max_attempts": _ATTEMPTS}))


def split(address: str) -> tuple[str, str]:
    """Return bucket and key, without a slash at its end, of an `s3://` address."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise DataError(f"{address} names no bucket", "write s3://bucket/prefix")
    return bucket, key.rstrip("/")


def listed(address: str) -> Iterator[Entry]:
    """Yield the objects at an address: that of this key, or all below it."""
    bucket, key = split(address)
    if key and (alone := _first(address, bucket, key)):
        yield Entry(f"{SCHEME}{bucket}/{key}", key.rpartition("/")[2], alone["Size"])
    below = f"{key}/" if key else ""
    for each in _objects(address, bucket, below):
        if not each["Key"].endswith("/"):  # a console makes empty `folder/` objects
            yield Entry(f"{SCHEME}{bucket}/{each['Key']}", each["Key"].removeprefix(below), each["Size"])


def opened(address: str) -> S3Blob:
    """Return an object, opened for reading; raise MissingData if there is none."""
    bucket, key = split(address)
    found = _first(address, bucket, key)
    if found is None:
        raise MissingData(f"{address}: there is no such object", "check the bucket and the key")
    return S3Blob(f"{SCHEME}{bucket}/{key}", found["Size"], found["ETag"])


def upload(path: Path, address: str) -> None:
    """Upload a file."""
    bucket, key = split(address)
    with _told(address):
        client().upload_file(str(path), bucket, key)


def _first(address: str, bucket: str, key: str) -> dict[str, Any] | None:
    """Return the object of a key; None if there is none.

    Not by HEAD, which answers 403 for a missing key unless the whole bucket may be listed, and says no more.
    """
    with _told(address):
        page = client().list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    return next((each for each in page.get("Contents", ()) if each["Key"] == key), None)


def _objects(address: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a bucket by prefix, sorted by key as S3 does."""
    with _told(address):
        for page in client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from page.get("Contents", ())


@contextlib.contextmanager
def _told(address: str) -> Iterator[None]:
    """Make an error for people of what boto3 raises."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        raise _refused(address, error.response.get("Error", {}).get("Code", ""), error) from error
    except NoCredentialsError as error:
        raise DataError(f"{address}: boto3 finds no credentials", "set them, or give the pod an identity") from error
    except (BotoCoreError, Boto3Error) as error:
        raise Unavailable(f"{address}: {error}", "try again; check region and endpoint if it stays so") from error


def _refused(address: str, code: str, error: Exception) -> Exception:
    if code in _MISSING:
        return MissingData(f"{address}: {error}", "check the bucket and the key")
    if code in _DENIED:
        return DataError(f"{address}: {error}", "allow s3:ListBucket and s3:GetObject to the role of the pods")
    if code in _CHANGED:
        return DamagedData(f"{address} was replaced while it was read", "write a new dataset under a new prefix")
    if code in _BUSY:
        return Unavailable(f"{address}: {error}", "try again later")
    return DataError(f"{address}: {error}", "check the address and the role of the pods")
