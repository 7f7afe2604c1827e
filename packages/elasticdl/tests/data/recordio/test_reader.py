"""Records of files and folders by shard, each exactly once, and damage named with its place."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from elasticdl.data.reader import Shard
from elasticdl.data.recordio import manifest
from elasticdl.data.recordio.chunk import Compressor
from elasticdl.data.recordio.reader import RecordIOReader
from elasticdl.data.recordio.writer import RecordWriter
from elasticdl.errors import DamagedData, DataError, MissingData

from packages.elasticdl.tests.data.recordio import by_hand

MANY = [b"record %d" % number for number in range(1000)]


def written(path: Path, records: list[bytes], chunk_size: int = 200) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with RecordWriter(path, Compressor.SNAPPY, chunk_size) as writer:
        for record in records:
            writer.write(record)
    return path


def read_all(address: object) -> list[bytes]:
    got: list[bytes] = []
    read_into(got, address)
    return got


def read_into(got: list[bytes], address: object) -> None:
    with RecordIOReader(str(address)) as reader:
        for shard in reader.shards():
            got.extend(reader.read(shard))


@pytest.mark.parametrize("compressor", [0, 1, 2])
def test_a_file_that_elasticdl_wrote_is_read(tmp_path: Path, compressor: int) -> None:
    data = by_hand.chunk(by_hand.RECORDS, compressor) + by_hand.chunk([b"next"], compressor)
    (tmp_path / "data-00000").write_bytes(data)
    assert read_all(tmp_path) == [*by_hand.RECORDS, b"next"]


def test_a_folder_is_one_shard_for_each_file_in_the_order_of_their_names(tmp_path: Path) -> None:
    written(tmp_path / "data-00001", MANY[:3])
    written(tmp_path / "data-00000", MANY[:5])
    with RecordIOReader(str(tmp_path)) as reader:
        assert reader.shards() == [
            Shard(str(tmp_path / "data-00000"), 0, 5),
            Shard(str(tmp_path / "data-00001"), 0, 3),
        ]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 1), (0, 1000), (17, 18), (17, 900), (999, 1000), (1000, 1000)])
def test_a_task_gets_exactly_its_records(tmp_path: Path, start: int, end: int) -> None:
    path = written(tmp_path / "data", MANY)
    with RecordIOReader(str(path)) as reader:
        assert list(reader.read(Shard(str(path), start, end))) == MANY[start:end]


def test_a_record_is_read_without_reading_the_file(tmp_path: Path, asked: list[int]) -> None:
    path = written(tmp_path / "data", [b"%0100d" % number for number in range(20_000)], chunk_size=10_000)
    reader = RecordIOReader(str(path))
    reader.shards()
    asked.clear()
    assert list(reader.read(Shard(str(path), 12_345, 12_346))) == [b"%0100d" % 12_345]
    assert len(asked) == 1, "one chunk"
    assert asked[0] <= 12_000
    reader.close()


def test_more_files_than_are_kept_open_are_read(tmp_path: Path) -> None:
    for number in range(40):
        written(tmp_path / f"data-{number:05}", MANY[number : number + 2])
    assert read_all(tmp_path) == [record for number in range(40) for record in MANY[number : number + 2]]


def test_a_file_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    first = by_hand.chunk(by_hand.RECORDS, 1)
    whole = first + by_hand.chunk([b"next"], 1)
    path = tmp_path / "data"
    for length in range(len(whole)):
        if length == len(first):
            continue  # a file of whole chunks is a whole file: only a manifest shows that some are missing
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedData, match=str(path)):
            read_all(path)


def test_the_error_names_file_chunk_byte_and_record(tmp_path: Path) -> None:
    first, second = by_hand.chunk(by_hand.RECORDS, 1), by_hand.chunk([b"next"], 1)
    path = tmp_path / "data"
    path.write_bytes(first + second[:-1])
    with pytest.raises(DamagedData) as caught:
        read_all(path)
    assert str(caught.value).startswith(f"{path}: chunk 1 at byte {len(first)} (records from 4 on) is cut off")
    assert caught.value.remedy


def test_any_altered_byte_of_a_file_is_an_error_and_what_came_before_is_good(tmp_path: Path) -> None:
    whole = by_hand.chunk(by_hand.RECORDS, 1) + by_hand.chunk([b"next"], 1)
    path = tmp_path / "data"
    for offset in range(len(whole)):
        altered = bytearray(whole)
        altered[offset] ^= 0x10
        path.write_bytes(altered)
        got: list[bytes] = []
        with pytest.raises(DamagedData, match=str(path)):
            read_into(got, path)
        assert got == by_hand.RECORDS[: len(got)]


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(DamagedData, match="is empty"):
        read_all(tmp_path)


def test_a_file_that_lost_records_since_it_was_counted_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "data", MANY[:10])
    with RecordIOReader(str(path)) as reader, pytest.raises(DamagedData, match=r"has 10 records.*\[5, 20\)"):
        list(reader.read(Shard(str(path), 5, 20)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda folder: (folder / "b").unlink(), "b of its _manifest.json is missing", id="missing"),
        pytest.param(lambda folder: written(folder / "c", MANY), "c is not in its _manifest.json", id="strange"),
        pytest.param(lambda folder: written(folder / "b", MANY[:50]), "/b has .* bytes, and", id="chunks-missing"),
        pytest.param(
            lambda folder: (folder / manifest.NAME).write_text('{"version": 9}'), "has version 9", id="version"
        ),
        pytest.param(lambda folder: (folder / manifest.NAME).write_text("{"), "is no manifest", id="no-json"),
    ],
)
def test_a_folder_that_is_not_as_its_manifest_says_is_an_error(tmp_path: Path, change: object, said: str) -> None:
    files = {}
    for name in ("a", "b"):
        path = written(tmp_path / name, MANY)
        files[name] = manifest.Written(len(MANY), path.stat().st_size)
    (tmp_path / manifest.NAME).write_bytes(manifest.to_json(files, "for a test"))
    assert read_all(tmp_path) == MANY + MANY
    change(tmp_path)  # type: ignore[operator]
    with pytest.raises(DamagedData, match=said):
        read_all(tmp_path)


def test_a_folder_of_folders_is_refused_with_the_one_to_name(tmp_path: Path) -> None:
    written(tmp_path / "train" / "data", MANY[:2])
    with pytest.raises(DataError, match=f"such as {tmp_path}/train"):
        read_all(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=f"{tmp_path}/nothing"):
        read_all(tmp_path / "nothing")


def test_a_chunk_without_records_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(by_hand.chunk([b"a"], 0) + by_hand.chunk([], 0) + by_hand.chunk([b"b"], 0))
    assert read_all(tmp_path) == [b"a", b"b"]


def test_a_header_whose_size_is_too_large_is_an_error(tmp_path: Path) -> None:
    whole = bytearray(by_hand.chunk([b"a"], 0))
    whole[12:16] = struct.pack("<I", 2**32 - 1)
    (tmp_path / "data").write_bytes(whole)
    with pytest.raises(DamagedData, match="cut off: 5 bytes of 4294967295"):
        read_all(tmp_path)
