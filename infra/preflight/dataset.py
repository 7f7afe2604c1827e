"""Whether there is something at the dataset's address. Pure, but for `head`.

The deployer looks, and the pods read with a role of their own: what the deployer may not read is no mistake.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from dataclasses import dataclass

import settings

SECONDS = 10.0
"""How long a server may take to answer."""

_ABSENT = re.compile(r"couldn't find resource|empty result|NoSuchBucket|NotFound|StatusCode: 404")
"""The words of the plug-in and of S3 for a bucket that doesn't exist."""


@dataclass(frozen=True)
class Found:
    """What was at the address.

    Attributes:
        error: why it could not be looked at; empty if it could.
        region: of the bucket.
        keys: the first of the objects with names that begin as the address says.
        status: of the web server's answer.
    """

    error: str = ""
    region: str = ""
    keys: tuple[str, ...] = ()
    status: int = 200


def place(dataset: settings.Dataset) -> tuple[str, str] | None:
    """Return the bucket and the name, or the beginning of the names, of a dataset in S3; None for any other."""
    scheme, _, rest = (dataset.uri or "").partition("://")
    bucket, _, key = rest.partition("/")
    return (bucket, key) if scheme == "s3" else None


def head(uri: str) -> Found:
    """Ask a web server for the headers of what is at an address."""
    request = urllib.request.Request(uri, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return Found(status=answer.status)
    except urllib.error.HTTPError as error:
        return Found(status=error.code)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Found(error=str(error) or type(error).__name__)


def mistakes(stack: settings.Settings, found: Found | None) -> list[str]:
    """Return a mistake if the dataset job, or the mount, would find nothing."""
    dataset = stack.training.dataset
    if found is None:
        return []
    s3, here = place(dataset), f"dataset = {dataset.uri}: "
    if s3 is None:
        gone = found.status in (404, 410)
        return (
            [f"{here}the server has nothing there (its answer is {found.status}); correct the address"] if gone else []
        )
    bucket, key = s3
    if found.error:
        gone = bool(_ABSENT.search(found.error))
        return [f"{here}there is no bucket {bucket}; correct the address"] if gone else []
    if dataset.mounted and found.region != stack.region:
        return [
            f"{here}the bucket is in {found.region}, and workers would read each file from there in each epoch, for a "
            f"price by the GB; copy the folder to a bucket in {stack.region}"
        ]
    if dataset.mounted and not found.keys:
        return [f"{here}the bucket {bucket} has nothing in the folder {key}; correct the address"]
    if not dataset.mounted and key not in found.keys:
        return [f"{here}the bucket {bucket} has no object {key}; correct the address"]
    return []


def warnings(stack: settings.Settings, found: Found | None) -> list[str]:
    """Return what the deployer could not see, and what the dataset job would pay for."""
    dataset = stack.training.dataset
    if found is None or mistakes(stack, found):
        return []
    here = f"dataset = {dataset.uri}: "
    if found.error or found.status >= 400:
        why = found.error or f"the server's answer is {found.status}"
        return [
            f"{here}could not be looked at from here, so it was not checked; the pods may be able to read it: {why}"
        ]
    if place(dataset) and found.region != stack.region:
        return [f"{here}the bucket is in {found.region}, so AWS bills the transfer of the archive to {stack.region}"]
    return []
