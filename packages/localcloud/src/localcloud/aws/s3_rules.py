"""Delete objects in a bucket with versions as S3 does.

    install()    # once, before the first request

moto ends a listing of versions if the last version of the previous page has been deleted since. So a bucket with more
versions than fit a page could not be emptied page by page, which is what most clients do.

moto treats a bucket with suspended versioning like one that never had versions: deleting one version deletes all of
them, and fails if one of them is a delete marker. So a bucket with old versions could not be emptied after a stack had
suspended its versioning. S3's rules:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/DeletingObjectsfromVersioningSuspendedBuckets.html
"""

from __future__ import annotations

from typing import Any

_NULL = "null"
"""The version id of objects and delete markers that are written while versioning is suspended."""


def install() -> None:
    """Wrap moto's methods. Call this once per process."""
    from moto.s3.models import S3Backend

    _delete_in_suspended(S3Backend)
    _list_after_deleted(S3Backend)


def _delete_in_suspended(backend: Any) -> None:
    original = backend.delete_object

    def delete_object(self: Any, bucket_name: str, key_name: str, version_id: str | None = None, **more: Any) -> Any:
        bucket = self.get_bucket(bucket_name)
        if getattr(bucket, "versioning_status", None) != "Suspended":
            return original(self, bucket_name, key_name, version_id=version_id, **more)
        versions = bucket.keys.getlist(key_name, [])
        kept = [version for version in versions if version.version_id != (version_id or _NULL)]
        if version_id is not None:
            _keep(bucket, key_name, kept)
            return len(kept) < len(versions), {"version-id": version_id}
        if versions:
            kept.append(_marker(versions[-1]))
        _keep(bucket, key_name, kept)
        return bool(versions), {"version-id": _NULL, "delete-marker": "true"}

    backend.delete_object = delete_object


def _list_after_deleted(backend: Any) -> None:
    original = backend.list_object_versions

    def list_object_versions(
        self: Any, bucket_name: str, key_marker: str | None = None, version_id_marker: str | None = None, **more: Any
    ) -> Any:
        keys = self.get_bucket(bucket_name).keys
        if version_id_marker and version_id_marker not in [each.version_id for each in keys.getlist(key_marker, [])]:
            # After what comes before the key: its versions that are left may be listed twice, and none is left out.
            key_marker = max((key for key in keys if key < key_marker), default=None)
            # The oldest version is the last of its key in a listing.
            version_id_marker = min(keys.getlist(key_marker), key=_written).version_id if key_marker else None
        return original(self, bucket_name, key_marker=key_marker, version_id_marker=version_id_marker, **more)

    backend.list_object_versions = list_object_versions


def _written(version: Any) -> Any:
    return version.last_modified


def _marker(latest: Any) -> Any:
    from moto.s3.models import FakeDeleteMarker

    marker = FakeDeleteMarker(latest)
    marker._version_id = _NULL
    return marker


def _keep(bucket: Any, key: str, versions: list[Any]) -> None:
    if key in bucket.keys:
        bucket.keys.setlist(key, versions)  # frees the memory of the other versions
        if not versions:
            bucket.keys.pop(key)
