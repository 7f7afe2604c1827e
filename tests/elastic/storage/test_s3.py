"""Objects of a bucket are listed and read by range, as the files that they are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.elastic.storage.stores import STORE, Damaged, Missing, Unavailable, Wrong
from tidewater.elastic.storage import s3 as leaf

BUCKET = "there"


def test_objects_below_a_prefix_are_listed_sorted(s3: Any) -> None:
    for key in ("set/b", "set/a/1", "set/.hidden", "set/folder/", "settle/x", "set"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"xy")
    s3.delete_object(Bucket=BUCKET, Key="set")
    for address in ("s3://there/set", "s3://there/set/"):
        assert [(entry.name, entry.path, entry.size) for entry in STORE.files(address)] == [
            ("s3://there/set/a/1", "a/1", 2),
            ("s3://there/set/b", "b", 2),
        ]
    assert [entry.name for entry in STORE.files("s3://there/set/b")] == ["s3://there/set/b"]
    assert len(STORE.files("s3://there")) == 3


def test_more_objects_than_a_page_are_listed(s3: Any) -> None:
    for number in range(5):
        s3.put_object(Bucket=BUCKET, Key=f"many/{number}", Body=b"")
    leaf.client().meta.events.register("provide-client-params.s3.ListObjectsV2", pages_of_two)
    assert [entry.path for entry in STORE.files("s3://there/many")] == ["0", "1", "2", "3", "4"]


def pages_of_two(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    return params | {"MaxKeys": 2}


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="data", Body=b"old content")
    blob = STORE.opened("s3://there/data")
    s3.put_object(Bucket=BUCKET, Key="data", Body=b"new content")
    with pytest.raises(Damaged, match="s3://there/data was replaced"):
        blob.read(0, 3)


class Breaking(io.BytesIO):
    """The body of an answer on a connection that breaks."""

    def read(self, *_: Any) -> bytes:
        """Raise what urllib3's reader raises."""
        from botocore.exceptions import ResponseStreamingError

        raise ResponseStreamingError(error="the connection broke")


def broken(bodies: list[Any], parsed: dict[str, Any]) -> None:
    """Replace an answer's body by the next of `bodies`, if there is one."""
    if bodies:
        parsed["Body"] = bodies.pop()


@pytest.mark.parametrize("body", [Breaking, lambda: io.BytesIO(b"ab")], ids=["breaks", "ends-early"])
def test_a_read_goes_on_after_a_connection_that_breaks(s3: Any, body: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="data", Body=b"abcdef")
    bodies = [body(), body()]
    leaf.client().meta.events.register("after-call.s3.GetObject", lambda parsed, **_: broken(bodies, parsed))
    assert STORE.opened("s3://there/data").read(1, 4) == b"bcde"
    assert bodies == []


def test_a_connection_that_always_breaks_can_be_tried_again_later(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="data", Body=b"abcdef")
    bodies = [Breaking() for _ in range(100)]
    leaf.client().meta.events.register("after-call.s3.GetObject", lambda parsed, **_: broken(bodies, parsed))
    with pytest.raises(Unavailable, match="s3://there/data"):
        STORE.opened("s3://there/data").read(1, 4)


@pytest.mark.parametrize(
    ("address", "said"),
    [("s3://there/nothing", "there are no files"), ("s3://absent/data", r"s3://absent/data.*NoSuchBucket")],
)
def test_what_is_not_there_is_named(s3: Any, address: str, said: str) -> None:
    with pytest.raises(Missing, match=said):
        STORE.files(address)


def test_an_object_that_is_not_there_is_named(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="data-00000", Body=b"x")
    with pytest.raises(Missing, match="s3://there/data: there is no such object"):
        STORE.opened("s3://there/data")


def test_missing_credentials_are_told(s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials that it once found
    leaf.client.cache_clear()
    with pytest.raises(Wrong, match="boto3 finds no credentials"):
        STORE.files("s3://there/data")
