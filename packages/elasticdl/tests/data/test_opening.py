"""An address decides on its reader, and a parameter that the reader does not know is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.data.csv import CsvReader
from elasticdl.data.opening import open_reader
from elasticdl.data.reader import Reader
from elasticdl.data.recordio.reader import RecordIOReader
from elasticdl.errors import DamagedData, DataError, MissingData

from packages.elasticdl.tests.data.recordio import by_hand

RECORDIO = by_hand.chunk([b"x"], 0)


@pytest.mark.parametrize(
    ("name", "content", "opened", "kind"),
    [
        ("data-00000", RECORDIO, ".", RecordIOReader),
        ("data-00000", RECORDIO, "data-00000", RecordIOReader),
        ("clicks.csv", b"a\n1\n", ".", CsvReader),
    ],
)
def test_the_address_decides(tmp_path: Path, name: str, content: bytes, opened: str, kind: type[Reader]) -> None:
    (tmp_path / name).write_bytes(content)
    assert type(open_reader(str(tmp_path / opened))) is kind


def test_a_parameter_decides_against_the_address(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"a|b\n1|2\n")
    with open_reader(str(tmp_path), "reader_type=csv; sep='|'; columns=['b']") as reader:
        assert [list(reader.read(shard)) for shard in reader.shards()] == [[["2"]]]


def test_an_empty_file_is_damaged_recordio(tmp_path: Path) -> None:
    (tmp_path / "data-00000").touch()
    with open_reader(str(tmp_path)) as reader, pytest.raises(DamagedData, match="data-00000 is empty"):
        reader.shards()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("", r"data is no RecordIO \(it begins with 68 65 6c 6c\)"),
        ("reader_type=parquet", "unknown reader_type 'parquet'"),
        ("reader_type=Images", "unknown reader_type 'Images'"),
        ("reader_type=ODPS", "tables of MaxCompute are not supported"),
        ("reader_type=CSV; column=['a']", "the reader of CSV does not know column"),
        ("reader_type=RecordIO; sep=','", "the reader of RecordIO does not know sep"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, params: str, said: str) -> None:
    (tmp_path / "data").write_bytes(b"hello world")
    with pytest.raises(DataError, match=said) as caught:
        open_reader(str(tmp_path), params)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("clicks.csv.gz", "unpack it"),
        ("clicks.CSV.xz", "unpack it"),
        ("words.txt", "write it as CSV or RecordIO, or define a custom_data_reader"),
        ("pets.zip", "write it as CSV or RecordIO, or define a custom_data_reader"),
        ("1.png", "write it as CSV or RecordIO, or define a custom_data_reader"),
        ("words", 'say what it is: --data_reader_params "reader_type='),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_to_do(tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / name).write_bytes(b"BZh91AY&SY")
    with pytest.raises(DataError, match="is no RecordIO") as caught:
        open_reader(str(tmp_path / name))
    assert caught.value.remedy.startswith(remedy)


def test_an_address_with_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=f"{tmp_path}/nothing"):
        open_reader(f"{tmp_path}/nothing")
