"""Objects of a bucket. boto3 is imported when the first request is made; it finds endpoint, region and credentials.

    bucket = Bucket("bucket")
    bucket.put("checkpoints/digits/manifest.json", data)
    bucket.opened("data/train.csv").read(100, 20)        # bytes 100 to 119

The only retry policy is botocore's "standard" with the limits below. An object is read with the ETag that it had when
it was opened: if it is replaced meanwhile, S3 refuses the read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidewater.elastic.storage.blob import Blob, Entry
from tidewater.elastic.storage.errors import PLAIN, Errors, StorageError

SCHEME = "s3://"

_ATTEMPTS = 5
_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_MISSING = ("NoSuchKey", "404", "NotFound")
_DENIED = ("AccessDenied", "403", "Forbidden")
_CHANGED = ("PreconditionFailed", "412")
_BUSY = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "500", "503")
_ACTIONS = {
    "ListObjectsV2": "ListBucket",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListParts": "ListMultipartUploadParts",
}
"""What IAM calls an operation, if not by its name."""


@lru_cache(1)
def client() -> Any:
    """Return the client of this process. Raise StorageError."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise StorageError("S3 needs boto3", "pip install boto3") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        raise StorageError("boto3's settings are wrong", str(error)) from error


def split(address: str, errors: Errors = PLAIN) -> tuple[str, str]:
    """Return bucket and key, without a slash at its end, of an `s3://` address."""
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise errors.wrong(f"{address} names no bucket", f"write {SCHEME}bucket/prefix")
    return bucket, key.rstrip("/")


class Bucket:
    """A bucket. Every method raises one of the errors that were given."""

    def __init__(self, name: str, errors: Errors = PLAIN) -> None:
        self.name = name
        self.errors = errors

    def first(self, prefix: str) -> dict[str, Any] | None:
        """Return the object of a key; None if there is none.

        Not by HEAD, which answers 403 for a missing key unless the whole bucket may be listed, and says no more.
        """
        with self.explained(prefix):
            page = client().list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=1)
        return next((each for each in page.get("Contents", ()) if each["Key"] == prefix), None)

    def pages(self, operation: str, key: str, **arguments: str) -> Iterator[dict[str, Any]]:
        """Yield the answers of an operation that lists something."""
        with self.explained(key):
            yield from client().get_paginator(operation).paginate(Bucket=self.name, **arguments)

    def objects(self, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield the objects by prefix, sorted by key as S3 does."""
        for page in self.pages("list_objects_v2", prefix, Prefix=prefix):
            yield from page.get("Contents", ())

    def listed(self, key: str) -> Iterator[Entry]:
        """Yield the object of a key, and all below it."""
        if key and (alone := self.first(key)):
            yield Entry(self.address(key), key.rpartition("/")[2], alone["Size"])
        below = f"{key}/" if key else ""
        for each in self.objects(below):
            if not each["Key"].endswith("/"):  # a console makes empty `folder/` objects
                yield Entry(self.address(each["Key"]), each["Key"].removeprefix(below), each["Size"])

    def opened(self, key: str) -> S3Blob:
        """Return an object, opened for reading."""
        found = self.first(key)
        if found is None:
            raise self.errors.missing(f"{self.address(key)}: there is no such object", "check the bucket and the key")
        return S3Blob(self, key, found["Size"], found["ETag"])

    def get(self, key: str) -> bytes:
        """Return the content of a small object."""
        with self.explained(key):
            return bytes(client().get_object(Bucket=self.name, Key=key)["Body"].read())

    def put(self, key: str, data: bytes) -> None:
        """Upload a small object."""
        with self.explained(key):
            client().put_object(Bucket=self.name, Key=key, Body=data)

    def download(self, key: str, path: Path) -> None:
        """Download an object. boto3 continues where a connection broke."""
        with self.explained(key):
            client().download_file(self.name, key, str(path))

    def upload(self, path: Path, key: str) -> None:
        """Upload a file."""
        with self.explained(key):
            client().upload_file(str(path), self.name, key)

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self.explained(key):
            client().delete_object(Bucket=self.name, Key=key)

    def start(self, key: str) -> str:
        """Begin an upload in parts. Return its id."""
        with self.explained(key):
            return str(client().create_multipart_upload(Bucket=self.name, Key=key)["UploadId"])

    def send(self, key: str, upload: str, number: int, data: bytes) -> dict[str, Any]:
        """Upload a part. Return what ``complete`` needs to know about it."""
        with self.explained(key):
            done = client().upload_part(Bucket=self.name, Key=key, UploadId=upload, PartNumber=number, Body=data)
        sums = {name: value for name, value in done.items() if name.startswith("Checksum") and value}
        sums.pop("ChecksumType", None)
        return {"PartNumber": number, "ETag": done["ETag"], **sums}

    def complete(self, key: str, upload: str, parts: list[dict[str, Any]]) -> None:
        """Complete an upload: now the object exists."""
        made = {"Bucket": self.name, "Key": key, "UploadId": upload, "MultipartUpload": {"Parts": parts}}
        with self.explained(key):
            client().complete_multipart_upload(**made)

    def cancel(self, key: str, upload: str) -> None:
        """Abort an upload."""
        with self.explained(key):
            client().abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)

    def uploads(self, prefix: str) -> list[dict[str, Any]]:
        """Return the uploads in parts that are running or were abandoned."""
        pages = self.pages("list_multipart_uploads", prefix, Prefix=prefix)
        return [upload for page in pages for upload in page.get("Uploads", ())]

    def sign_of_life(self, upload: dict[str, Any]) -> datetime:
        """Return when the last part of an upload arrived, or when it began."""
        pages = self.pages("list_parts", upload["Key"], Key=upload["Key"], UploadId=upload["UploadId"])
        parts = [part["LastModified"] for page in pages for part in page.get("Parts", ())]
        latest: datetime = max([upload["Initiated"], *parts])
        return latest

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return f"{SCHEME}{self.name}/{key}"

    @contextlib.contextmanager
    def explained(self, key: str) -> Iterator[None]:
        """Raise what boto3 raises as an error with a remedy."""
        try:
            client()
        except StorageError as error:
            raise self.errors.wrong(self.address(key), str(error)) from error
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield
        except ClientError as error:
            raise self._refused(self.address(key), error) from error
        except NoCredentialsError as error:
            message = f"{self.address(key)}: boto3 finds no credentials"
            raise self.errors.wrong(message, "set them, or give the pod an identity") from error
        except (BotoCoreError, Boto3Error) as error:
            remedy = "try again; check region and endpoint if it stays so"
            raise self.errors.unavailable(f"{self.address(key)}: {error}", remedy) from error

    def _refused(self, address: str, error: Any) -> Exception:
        code, operation = error.response.get("Error", {}).get("Code", ""), error.operation_name
        if code == "NoSuchBucket":
            return self.errors.missing(
                f"{address}: there is no bucket {self.name} (NoSuchBucket)", "create it, or correct the address"
            )
        if code in _MISSING:
            return self.errors.missing(f"{address}: {error}", "check the bucket and the key")
        if code in _DENIED:
            action = _ACTIONS.get(operation, operation)
            return self.errors.wrong(f"{address}: {error}", f"allow s3:{action} to the role of the training pods")
        if code in _CHANGED:
            return self.errors.damaged(f"{address} was replaced while it was read", "write new data under a new prefix")
        if code in _BUSY:
            return self.errors.unavailable(f"{address}: {error}", "try again later")
        return self.errors.wrong(f"{address}: {error}", "check the address and the role of the training pods")


class S3Blob(Blob):
    """An object of a bucket."""

    def __init__(self, bucket: Bucket, key: str, size: int, etag: str) -> None:
        super().__init__(bucket.address(key), size)
        self._bucket, self._key, self._etag = bucket, key, etag

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the object by a GET with a range, repeated if the connection breaks within an answer."""
        from botocore.exceptions import BotoCoreError

        if not length:
            return b""
        asked = {"Bucket": self._bucket.name, "Key": self._key, "IfMatch": self._etag}
        asked["Range"] = f"bytes={offset}-{offset + length - 1}"
        with self._bucket.explained(self._key):
            for attempt in range(1, _ATTEMPTS + 1):
                body = client().get_object(**asked)["Body"]
                try:
                    data = bytes(body.read())
                    if len(data) == length:
                        return data
                except (BotoCoreError, OSError):  # urllib3's errors of a broken connection come as either
                    if attempt == _ATTEMPTS:
                        raise
        message = f"{self.name}: S3 sends fewer than the {length} bytes asked for"
        raise self._bucket.errors.unavailable(message, "try again later")
