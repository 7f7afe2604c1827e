"""S3: objects, from files and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pulumi

from localcloud.standins.aws.entry import Call, Entry, Naming, Tree, absent_as_none, ignore_absent, retry, words
from localcloud.standins.serve import PluginError

_HEADERS: Final = {
    "acl": "ACL",
    "bucketKeyEnabled": "BucketKeyEnabled",
    "cacheControl": "CacheControl",
    "contentDisposition": "ContentDisposition",
    "contentEncoding": "ContentEncoding",
    "contentLanguage": "ContentLanguage",
    "contentType": "ContentType",
    "kmsKeyId": "SSEKMSKeyId",
    "metadata": "Metadata",
    "serverSideEncryption": "ServerSideEncryption",
    "storageClass": "StorageClass",
    "websiteRedirect": "WebsiteRedirectLocation",
}


def body(source: Any) -> bytes:
    """Return the bytes of a FileAsset or a StringAsset; nothing for None.

    Raises:
        PluginError: it is another asset, or an archive.
    """
    if source is None:
        return b""
    if getattr(source, "text", None) is not None:
        return str(source.text).encode()
    if isinstance(source, pulumi.FileAsset):
        return Path(source.path).read_bytes()
    raise PluginError(f"source {source!r} is not covered by the stand-in for pulumi-aws: give a FileAsset")


def _put(call: Call) -> None:
    inputs = call.inputs
    arguments = {key: inputs[name] for name, key in _HEADERS.items() if inputs.get(name)}
    if inputs.get("kmsKeyId"):
        arguments.setdefault("ServerSideEncryption", "aws:kms")
    if call.tags:
        arguments["Tagging"] = urlencode(call.tags)
    arguments.setdefault("ContentType", "application/octet-stream")
    s3, content = call.client("s3"), body(inputs.get("source"))
    put = lambda: s3.put_object(Bucket=inputs["bucket"], Key=inputs["key"], Body=content, **arguments)  # noqa: E731
    retry(call, put, "NoSuchBucket", seconds=20)


def _create(call: Call) -> str:
    _put(call)
    return f"{call.inputs['bucket']}/{call.inputs['key']}"


def _place(call: Call) -> Tree:
    known = call.inputs or call.state
    if known.get("bucket") and known.get("key"):
        return {"Bucket": known["bucket"], "Key": known["key"]}
    bucket, _, key = call.id.removeprefix("s3://").partition("/")  # import: BUCKET/KEY
    call.id = f"{bucket}/{key}"
    return {"Bucket": bucket, "Key": key}


def _read(call: Call) -> Tree | None:
    s3, place = call.client("s3"), _place(call)
    head = absent_as_none(lambda: s3.head_object(**place))
    if head is None:
        return None
    tags = absent_as_none(lambda: s3.get_object_tagging(**place)) or {}
    found = {
        "arn": f"arn:aws:s3:::{place['Bucket']}/{place['Key']}",
        "bucket": place["Bucket"],
        "key": place["Key"],
        "etag": head["ETag"].strip('"'),
        "versionId": head.get("VersionId") or "",
        "contentType": head.get("ContentType"),
        "storageClass": head.get("StorageClass") or "STANDARD",
        "metadata": head.get("Metadata") or {},
        "bucketKeyEnabled": bool(head.get("BucketKeyEnabled")),
        "serverSideEncryption": head.get("ServerSideEncryption") or "",
        "tags": {tag["Key"]: tag["Value"] for tag in tags.get("TagSet") or []},
    }
    headers = ("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "websiteRedirect")
    found |= {name: head[_HEADERS[name]] for name in headers if head.get(_HEADERS[name])}
    if head.get("SSEKMSKeyId"):
        found["kmsKeyId"] = head["SSEKMSKeyId"]
    return found


def _update(call: Call) -> None:
    if call.changed - {"tags"}:
        _put(call)
    else:
        tags = {"TagSet": call.tag_list()}
        call.client("s3").put_object_tagging(**_place(call), Tagging=tags)


def _delete(call: Call) -> None:
    """Delete all versions, as pulumi-aws does."""
    s3, place = call.client("s3"), _place(call)

    def remove() -> None:
        pages = s3.get_paginator("list_object_versions").paginate(Bucket=place["Bucket"], Prefix=place["Key"])
        for page in pages:
            for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                if entry["Key"] == place["Key"]:
                    s3.delete_object(**place, VersionId=entry["VersionId"])

    ignore_absent(remove)


ENTRIES: Final = [
    Entry(
        token="aws:s3/bucketObjectv2:BucketObjectv2",
        covers=frozenset(_HEADERS) | words("bucket key source etag sourceHash forceDestroy"),
        replace_on=words("bucket key"),
        computed=words("bucketKeyEnabled contentType etag kmsKeyId serverSideEncryption storageClass"),
        defaults={"forceDestroy": False},
        naming=Naming(property="key", longest=1024, suffix=False),
        recomputed=words("etag versionId"),
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
