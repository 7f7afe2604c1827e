"""The calls to S3 that checkpoints need. All errors are OSErrors.

s3 = S3(boto3.client("s3"), "bucket", "checkpoints/digits/")
s3.put("step-000000000120-3f2a9c1d/manifest.json", data)      # names are relative to the prefix
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from tidewater.elastic.checkpoint.manifest import step_of
from tidewater.elastic.checkpoint.places import MANIFEST, Missing

Groups = Mapping[str, Mapping[str, datetime]]
"""For each checkpoint, when each of its files was written."""

_DENIED = ("AccessDenied", "403")


@dataclass(frozen=True)
class S3:
    """A prefix of a bucket. Every method raises OSError, and Missing if the bucket does not exist."""

    client: Any
    bucket: str
    prefix: str
    """Ends in a slash, unless it is empty."""

    def listed(self) -> tuple[Groups, datetime]:
        """Return the files of all checkpoints, and the time by S3's clock."""
        groups: dict[str, dict[str, datetime]] = {}
        date = ""
        with self._told():
            for page in self._pages("list_objects_v2", Prefix=f"{self.prefix}step-"):
                date = page["ResponseMetadata"]["HTTPHeaders"]["date"]
                for each in page.get("Contents", ()):
                    name, _, file = each["Key"].removeprefix(self.prefix).partition("/")
                    if step_of(name) is not None and file:
                        groups.setdefault(name, {})[file] = each["LastModified"]
        return groups, parsedate_to_datetime(date)

    def has(self, name: str) -> bool:
        """Return whether the file exists."""
        with self._told():
            # Not HEAD, which answers 403 for a missing key unless the whole bucket may be listed.
            found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + name, MaxKeys=1)
            return any(each["Key"] == self.prefix + name for each in found.get("Contents", ()))

    def put(self, name: str, data: bytes) -> None:
        """Upload a small file."""
        with self._told():
            self.client.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=data)

    def get(self, name: str) -> bytes:
        """Download a small file into memory."""
        with self._told():
            return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read())

    def download(self, name: str, path: Path) -> None:
        """Download a file. boto3 continues where a connection broke."""
        with self._told():
            self.client.download_file(self.bucket, self.prefix + name, str(path))

    def remove(self, name: str, files: Collection[str]) -> None:
        """Remove the files of a checkpoint, the manifest first: without it, the rest is no checkpoint."""
        with self._told():
            for file in sorted(files, key=lambda each: each != MANIFEST):
                self.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}{name}/{file}")

    def start(self, key: str) -> str:
        """Begin an upload in parts. Return its id."""
        with self._told():
            return str(self.client.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"])

    def send(self, key: str, upload: str, number: int, data: bytes) -> dict[str, Any]:
        """Upload a part. Return what ``complete`` needs to know about it."""
        with self._told():
            done = self.client.upload_part(Bucket=self.bucket, Key=key, UploadId=upload, PartNumber=number, Body=data)
            sums = {name: value for name, value in done.items() if name.startswith("Checksum") and value}
            sums.pop("ChecksumType", None)
            return {"PartNumber": number, "ETag": done["ETag"], **sums}

    def complete(self, key: str, upload: str, parts: list[dict[str, Any]]) -> None:
        """Complete an upload: now the file exists."""
        with self._told():
            self.client.complete_multipart_upload(
                Bucket=self.bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
            )

    def cancel(self, key: str, upload: str) -> None:
        """Abort an upload."""
        with self._told():
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload)

    def uploads(self) -> list[dict[str, Any]]:
        """Return the uploads in parts that are running or were abandoned."""
        with self._told():
            pages = self._pages("list_multipart_uploads", Prefix=f"{self.prefix}step-")
            return [upload for page in pages for upload in page.get("Uploads", ())]

    def sign_of_life(self, upload: dict[str, Any]) -> datetime:
        """Return when the last part of an upload arrived, or when it began."""
        with self._told():
            pages = self._pages("list_parts", Key=upload["Key"], UploadId=upload["UploadId"])
            parts = [part["LastModified"] for page in pages for part in page.get("Parts", ())]
        latest: datetime = max([upload["Initiated"], *parts])
        return latest

    def _pages(self, operation: str, **arguments: str) -> Iterator[dict[str, Any]]:
        yield from self.client.get_paginator(operation).paginate(Bucket=self.bucket, **arguments)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == "NoSuchBucket":
                raise Missing(f"there is no bucket {self.bucket}: create it, or correct --checkpoints") from error
            remedy = ": allow it to the role of the training pods" if code in _DENIED else ""
            raise OSError(f"{error}{remedy}") from error
        except NoCredentialsError as error:
            raise OSError("boto3 finds no credentials: set them, or give the pod an identity") from error
        except (BotoCoreError, Boto3Error) as error:
            raise OSError(str(error)) from error
