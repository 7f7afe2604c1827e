"""S3: objects, from text, files and archives."""

from __future__ import annotations

import base64
import io
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

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
_BODIES: Final = words("content contentBase64 source")


def body(inputs: Tree) -> bytes:
    """Return the object's content from `content`, `contentBase64` or `source`; empty if none is given."""
    if inputs.get("content") is not None:
        return str(inputs["content"]).encode()
    if inputs.get("contentBase64") is not None:
        return base64.b64decode(inputs["contentBase64"])
    source = inputs.get("source")
    if source is None:
        return b""
    if isinstance(source, str):
        return Path(source).read_bytes()
    if hasattr(source, "assets") or _is_archive(source):
        return archive(source)
    return asset(source)


def asset(source: Any) -> bytes:
    """The bytes of a FileAsset, StringAsset or RemoteAsset."""
    if getattr(source, "text", None) is not None:
        return str(source.text).encode()
    if getattr(source, "path", None) is not None:
        return Path(source.path).read_bytes()
    if getattr(source, "uri", None) is not None:
        with urllib.request.urlopen(source.uri) as answer:
            return bytes(answer.read())
    raise PluginError(f"source is neither an asset nor an archive: {source!r}")


def _is_archive(source: Any) -> bool:
    import pulumi

    return isinstance(source, pulumi.Archive)


def archive(source: Any) -> bytes:
    """Return an archive as a zip; equal members give equal bytes. A file is returned as it is."""
    path = getattr(source, "path", None)
    if path is not None and Path(path).is_file():
        return Path(path).read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in sorted(_members(source, "")):
            target.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _members(source: Any, prefix: str) -> Iterator[tuple[str, bytes]]:
    if hasattr(source, "assets"):
        for name, member in source.assets.items():
            if _is_archive(member):
                yield from _members(member, f"{prefix}{name}/")
            else:
                yield prefix + name, asset(member)
        return
    root = Path(source.path)
    if not root.is_dir():
        raise PluginError(f"archive {source.path}: an archive within an archive must be a folder")
    for file in root.rglob("*"):
        if file.is_file():
            yield prefix + file.relative_to(root).as_posix(), file.read_bytes()


def _put(call: Call) -> None:
    inputs = call.inputs
    arguments = {key: inputs[name] for name, key in _HEADERS.items() if inputs.get(name)}
    if inputs.get("kmsKeyId"):
        arguments.setdefault("ServerSideEncryption", "aws:kms")
    if call.tags:
        arguments["Tagging"] = urlencode(call.tags)
    arguments.setdefault("ContentType", "application/octet-stream")
    s3, content = call.client("s3"), body(inputs)
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
        covers=_BODIES | frozenset(_HEADERS) | words("bucket key etag sourceHash forceDestroy"),
        replace_on=words("bucket key"),
        computed=words("bucketKeyEnabled contentType etag kmsKeyId serverSideEncryption storageClass"),
        defaults={"forceDestroy": False},
        naming=Naming(property="key", longest=1024, suffix=False),
        one_of=(_BODIES,),
        recomputed=words("etag versionId"),
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
