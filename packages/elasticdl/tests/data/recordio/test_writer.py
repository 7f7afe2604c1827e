"""A file has its name only once all of it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.data.recordio.chunk import Compressor
from elasticdl.data.recordio.reader import RecordIOReader, read_index
from elasticdl.data.recordio.writer import RecordWriter
from elasticdl.errors import InputError

from tidewater.elastic.storage.local import LocalBlob


def test_a_chunk_holds_records_up_to_its_size(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with RecordWriter(path, Compressor.NONE, chunk_size=10) as writer:
        for record in (b"1234", b"5678", b"9", b"12", b"x" * 50, b"y"):
            writer.write(record)
    with LocalBlob(path) as blob:
        assert [chunk.header.records for chunk in read_index(blob).chunks] == [3, 1, 1, 1]


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with RecordWriter(path) as writer:
        writer.write(b"record")
        assert not path.exists()
    with RecordIOReader(str(tmp_path)) as reader:
        assert [list(reader.read(shard)) for shard in reader.shards()] == [[b"record"]]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with RecordWriter(tmp_path / "data") as writer:
            writer.write(b"record")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_close_returns_is_what_was_written(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "data")
    for record in (b"a", b"b"):
        writer.write(record)
    said = writer.close()
    assert (said.records, said.bytes) == (2, (tmp_path / "data").stat().st_size)


def test_a_chunk_size_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="chunk size of 0"):
        RecordWriter(tmp_path / "data", chunk_size=0)


def test_a_file_that_can_not_be_completed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    def write() -> None:
        with RecordWriter(tmp_path / "data") as writer:
            writer.write(b"record")

    with pytest.raises(OSError, match="data"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
