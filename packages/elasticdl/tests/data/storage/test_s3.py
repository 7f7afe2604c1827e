"""Objects of a bucket are read by range, as the files that they are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import boto3
import pytest
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Shard
from elasticdl.data.recordio.chunk import Compressor
from elasticdl.data.recordio.writer import RecordWriter
from elasticdl.data.storage import s3
from elasticdl.data.storage.addresses import files, open_blob
from elasticdl.errors import DamagedData, DataError, MissingData, Unavailable

BUCKET = "there"
RECORDS = [b"%0100d" % number for number in range(20_000)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a RecordIO file of 200 chunks."""
    path = tmp_path_factory.mktemp("data") / "data"
    with RecordWriter(path, Compressor.NONE, 10_000) as writer:
        for record in RECORDS:
            writer.write(record)
    return path.read_bytes()


def test_objects_below_a_prefix_are_listed_sorted(bucket: Any) -> None:
    for key in ("set/b", "set/a/1", "set/.hidden", "set/folder/", "settle/x", "set"):
        bucket.put_object(Bucket=BUCKET, Key=key, Body=b"xy")
    bucket.delete_object(Bucket=BUCKET, Key="set")
    for address in ("s3://there/set", "s3://there/set/"):
        assert [(entry.name, entry.path, entry.size) for entry in files(address)] == [
            ("s3://there/set/a/1", "a/1", 2),
            ("s3://there/set/b", "b", 2),
        ]
    assert [entry.name for entry in files("s3://there/set/b")] == ["s3://there/set/b"]
    assert len(files("s3://there")) == 3


def test_more_objects_than_a_page_are_listed(bucket: Any) -> None:
    for number in range(5):
        bucket.put_object(Bucket=BUCKET, Key=f"many/{number}", Body=b"")
    s3.client().meta.events.register("provide-client-params.s3.ListObjectsV2", pages_of_two)
    assert [entry.path for entry in files("s3://there/many")] == ["0", "1", "2", "3", "4"]


def pages_of_two(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    return params | {"MaxKeys": 2}


def test_recordio_in_a_bucket_is_read_by_task(bucket: Any, data: bytes) -> None:
    bucket.put_object(Bucket=BUCKET, Key="set/data-00000", Body=data)
    with open_reader("s3://there/set") as reader:
        assert reader.shards() == [Shard("s3://there/set/data-00000", 0, len(RECORDS))]
        assert list(reader.read(Shard("s3://there/set/data-00000", 150, 350))) == RECORDS[150:350]


def test_a_task_reads_its_chunks_alone(bucket: Any, data: bytes) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=data)
    asked: list[str] = []
    s3.client().meta.events.register("before-send.s3.GetObject", lambda request, **_: note(asked, request))
    with open_reader("s3://there/data") as reader:
        (shard,) = reader.shards()
        asked.clear()
        assert list(reader.read(Shard(shard.name, 12_345, 12_346))) == RECORDS[12_345:12_346]
    (range_,) = asked
    first, last = range_.removeprefix("bytes=").split("-")
    assert int(last) - int(first) < 12_000


def note(asked: list[str], request: Any) -> None:
    asked.append(request.headers["Range"].decode())


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=b"old content")
    blob = open_blob("s3://there/data")
    bucket.put_object(Bucket=BUCKET, Key="data", Body=b"new content")
    with pytest.raises(DamagedData, match="s3://there/data was replaced"):
        blob.read(0, 3)


def test_a_truncated_object_is_named_with_its_place(bucket: Any, data: bytes) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=data[:-1])
    with open_reader("s3://there/data") as reader, pytest.raises(DamagedData, match="s3://there/data: chunk 199 at"):
        reader.shards()


class Breaking(io.BytesIO):
    """The body of an answer whose connection breaks."""

    def read(self, *_: Any) -> bytes:
        """Raise what urllib3's reader raises."""
        from botocore.exceptions import ResponseStreamingError

        raise ResponseStreamingError(error="the connection broke")


def broken(bodies: list[Any], parsed: dict[str, Any]) -> None:
    """Replace an answer's body by the next of `bodies`, if there is one."""
    if bodies:
        parsed["Body"] = bodies.pop()


@pytest.mark.parametrize("body", [Breaking, lambda: io.BytesIO(b"ab")], ids=["breaks", "ends-early"])
def test_a_read_goes_on_after_a_connection_that_breaks(bucket: Any, body: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=b"abcdef")
    bodies = [body(), body()]
    s3.client().meta.events.register("after-call.s3.GetObject", lambda parsed, **_: broken(bodies, parsed))
    assert open_blob("s3://there/data").read(1, 4) == b"bcde"
    assert bodies == []


def test_a_connection_that_always_breaks_can_be_tried_again_later(bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=b"abcdef")
    bodies = [Breaking() for _ in range(100)]
    s3.client().meta.events.register("after-call.s3.GetObject", lambda parsed, **_: broken(bodies, parsed))
    with pytest.raises(Unavailable, match="s3://there/data"):
        open_blob("s3://there/data").read(1, 4)


@pytest.mark.parametrize(
    ("address", "said"),
    [("s3://there/nothing", "there are no files"), ("s3://absent/data", r"s3://absent/data.*NoSuchBucket")],
)
def test_what_is_not_there_is_named(bucket: Any, address: str, said: str) -> None:
    with pytest.raises(MissingData, match=said):
        files(address)


def test_an_object_that_is_not_there_is_named(bucket: Any) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data-00000", Body=b"x")
    with pytest.raises(MissingData, match="s3://there/data: there is no such object"):
        open_blob("s3://there/data")


def test_missing_credentials_are_told(bucket: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials that it once found
    s3.client.cache_clear()
    with pytest.raises(DataError, match="boto3 finds no credentials"):
        files("s3://there/data")
