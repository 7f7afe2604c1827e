"""RecordIO in a bucket is read by range."""

from __future__ import annotations

from typing import Any

import pytest
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Shard
from elasticdl.data.recordio.chunk import Compressor
from elasticdl.data.recordio.writer import RecordWriter
from elasticdl.errors import DamagedData

from tidewater.elastic.storage import s3

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


def test_a_task_reads_its_records_by_the_chunks_that_have_them(bucket: Any, data: bytes) -> None:
    bucket.put_object(Bucket=BUCKET, Key="set/data-00000", Body=data)
    asked: list[str] = []
    s3.client().meta.events.register("before-send.s3.GetObject", lambda request, **_: note(asked, request))
    with open_reader("s3://there/set") as reader:
        assert reader.shards() == [Shard("s3://there/set/data-00000", 0, len(RECORDS))]
        assert list(reader.read(Shard("s3://there/set/data-00000", 150, 350))) == RECORDS[150:350]
        asked.clear()
        assert list(reader.read(Shard("s3://there/set/data-00000", 12_345, 12_346))) == RECORDS[12_345:12_346]
    (range_,) = asked
    first, last = range_.removeprefix("bytes=").split("-")
    assert int(last) - int(first) < 12_000


def note(asked: list[str], request: Any) -> None:
    asked.append(request.headers["Range"].decode())


def test_a_truncated_object_is_named_with_its_place(bucket: Any, data: bytes) -> None:
    bucket.put_object(Bucket=BUCKET, Key="data", Body=data[:-1])
    with open_reader("s3://there/data") as reader, pytest.raises(DamagedData, match="s3://there/data: chunk 199 at"):
        reader.shards()
