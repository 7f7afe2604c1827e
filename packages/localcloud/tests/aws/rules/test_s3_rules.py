"""A bucket with versions deletes objects as S3 does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import REGION

BUCKET = "in-use"


@pytest.fixture
def s3(operator: Clients) -> Iterator[Any]:
    """S3 with a bucket that keeps versions of its objects; its versioning is not suspended yet."""
    client = operator("s3")
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    set_versioning(client, "Enabled")
    yield client
    empty(client)
    client.delete_bucket(Bucket=BUCKET)


def set_versioning(s3: Any, status: str) -> None:
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": status})


def put(s3: Any, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=body)


def listed(s3: Any) -> list[dict[str, str]]:
    found = s3.list_object_versions(Bucket=BUCKET)
    entries = [*found.get("Versions", []), *found.get("DeleteMarkers", [])]
    return [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]


def empty(s3: Any) -> None:
    if objects := listed(s3):
        answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})
        assert len(answer["Deleted"]) == len(objects)


def test_a_used_bucket_can_be_emptied_and_deleted(s3: Any) -> None:
    put(s3, b"one")
    s3.delete_object(Bucket=BUCKET, Key="a")
    put(s3, b"two")
    s3.delete_object(Bucket=BUCKET, Key="a")
    set_versioning(s3, "Suspended")
    assert len(listed(s3)) == 4
    empty(s3)
    assert listed(s3) == []


def test_deleting_one_version_leaves_the_others(s3: Any) -> None:
    put(s3, b"one")
    put(s3, b"two")
    set_versioning(s3, "Suspended")
    newest = s3.head_object(Bucket=BUCKET, Key="a")["VersionId"]
    s3.delete_object(Bucket=BUCKET, Key="a", VersionId=newest)
    assert s3.get_object(Bucket=BUCKET, Key="a")["Body"].read() == b"one"


def test_deleting_without_a_version_hides_the_object_and_keeps_its_versions(s3: Any) -> None:
    put(s3, b"one")
    set_versioning(s3, "Suspended")
    for _ in range(2):  # the second replaces the marker
        s3.delete_object(Bucket=BUCKET, Key="a")
        assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)
        assert [entry["VersionId"] == "null" for entry in listed(s3)] == [False, True]


def test_a_bucket_without_versions_deletes_objects_as_before(s3: Any) -> None:
    s3.create_bucket(Bucket="plain", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="plain", Key="a", Body=b"")
    s3.delete_object(Bucket="plain", Key="a")
    s3.delete_bucket(Bucket="plain")


def test_a_bucket_is_emptied_while_its_versions_are_listed_page_by_page(s3: Any) -> None:
    for key in ("a", "b", "c"):
        for body in (b"1", b"2", b"3"):
            s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    s3.delete_object(Bucket=BUCKET, Key="b")
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 2})
    for page in pages:
        for each in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
            s3.delete_object(Bucket=BUCKET, Key=each["Key"], VersionId=each["VersionId"])
    assert listed(s3) == []
