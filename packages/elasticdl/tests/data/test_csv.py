"""Rows of CSV by task: exactly those of Python's module csv, or an error that names row and byte."""

from __future__ import annotations

import csv
import io
import resource
from pathlib import Path
from typing import Any

import pytest
from elasticdl.data.csv import CsvReader
from elasticdl.data.reader import Shard
from elasticdl.errors import DamagedData, DataError
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewater.elastic.storage.blob import BLOCK

ROWS = [[str(number), f"name, {number}", "x\ny" if number % 3 else ""] for number in range(1000)]


def written(path: Path, rows: list[list[str]], header: tuple[str, ...] = ("id", "name", "text")) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def read_all(reader: CsvReader) -> list[list[str]]:
    with reader:
        return [row for shard in reader.shards() for row in reader.read(shard)]


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 1), (255, 257), (256, 512), (300, 301), (999, 1000), (5, 5)])
def test_a_task_gets_exactly_its_rows(tmp_path: Path, start: int, end: int) -> None:
    path = written(tmp_path / "data.csv", ROWS)
    with CsvReader(str(path)) as reader:
        assert reader.shards() == [Shard(str(path), 0, 1000)]
        assert list(reader.read(Shard(str(path), start, end))) == ROWS[start:end]


@settings(max_examples=50)
@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0")), min_size=2, max_size=2)))
def test_rows_are_those_of_pythons_module_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = written(tmp_path_factory.mktemp("csv") / "data.csv", [["0", "0"], *rows], ("a", "b"))
    expected = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))[1:]
    assert read_all(CsvReader(str(path))) == expected


def test_a_row_is_read_without_reading_the_file(tmp_path: Path, asked: list[int]) -> None:
    path = written(tmp_path / "data.csv", [["7", "n", "x" * 10_000] for _ in range(3 * BLOCK // 10_000)])
    reader = CsvReader(str(path))
    (shard,) = reader.shards()
    asked.clear()
    assert list(reader.read(Shard(shard.name, 700, 701))) == [["7", "n", "x" * 10_000]]
    assert sum(asked) < 260 * 10_020, "256 rows and no more"
    reader.close()


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "data.csv", ROWS[:2])
    reader = CsvReader(str(path), columns=["name", "id"])
    assert reader.metadata.column_names == ("name", "id")
    assert read_all(reader) == [["name, 0", "0"], ["name, 1", "1"]]


@pytest.mark.parametrize(
    "content",
    ["\n\r\na;b\n1;2\n", "\ufeff\na;b\n1;2\n", "a;b\n1;2\n", "\ufeffa;b\r\n1;2\r\n", "a;b\n\n1;2", "a;b\n'1';'2'\n\n"],
)
def test_forms_of_csv_that_people_have_are_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "data.csv").write_bytes(content.encode())
    reader = CsvReader(str(tmp_path), sep=";", quote="'")
    assert reader.metadata.column_names == ("a", "b")
    assert read_all(reader) == [["1", "2"]]


def test_an_encoding_is_used(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes("a\nü\n".encode("latin-1"))
    assert read_all(CsvReader(str(tmp_path), encoding="latin-1")) == [["ü"]]
    with pytest.raises(DamagedData, match=r"(?s)line at byte 2 is not utf-8.*encoding=latin-1"):
        read_all(CsvReader(str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no header"),
        ("\n\r\n", "has no header"),
        ("\na,b\n1,2\n3\n", "row 1, at byte 9, has 1 values for 2 columns"),
        ("a,a\n1,2\n", "the same column twice; its columns are a, a"),
        ("a,b\n1,2\n3\n", "row 1, at byte 8, has 1 values for 2 columns"),
        ("a,b\n1,2\n3,4,5\n", "row 1, at byte 8, has 3 values for 2 columns"),
        ('a,b\n1,2\n3,"4\n', "row 1, at byte 8: unexpected end of data"),
        ('a,b\n1,2\n3,"4"5\n', "row 1, at byte 8: ',' expected after '\"'"),
        ("a,b\n", "has no rows"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "data.csv").write_text(content)
    with pytest.raises(DataError, match=said) as caught:
        read_all(CsvReader(str(tmp_path)))
    assert str(tmp_path) in caught.value.message


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "data.csv", ROWS)
    with pytest.raises(DataError, match="no column user; its columns are id, name, text"):
        read_all(CsvReader(str(path), columns=["id", "user"]))


def test_files_of_a_folder_need_the_same_header(tmp_path: Path) -> None:
    written(tmp_path / "1.csv", ROWS)
    written(tmp_path / "2.csv", ROWS, ("id", "text", "name"))
    with pytest.raises(DataError, match=r"2.csv has the columns id, text, name"):
        read_all(CsvReader(str(tmp_path)))


def test_files_without_the_suffix_are_left_out_if_others_have_it_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "1.csv", ROWS[:1])
    written(tmp_path / "2.CSV", ROWS[1:2])
    (tmp_path / "README.txt").write_text("hi\n")
    reader = CsvReader(str(tmp_path))
    assert reader.metadata.column_names == ("id", "name", "text")
    assert read_all(reader) == ROWS[:2]
    assert [each.getMessage() for each in caplog.records] == [
        f"{tmp_path}: files without the suffix .csv are not read: README.txt"
    ]


def test_a_folder_in_which_no_file_has_the_suffix_is_read_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "part-0", ROWS[:1])
    written(tmp_path / "part-1", ROWS[1:2])
    assert read_all(CsvReader(str(tmp_path))) == ROWS[:2]
    assert not caplog.records


def test_a_value_may_be_large(tmp_path: Path) -> None:
    rows = [["1", "n", "x" * 1_000_000]]
    assert read_all(CsvReader(str(written(tmp_path / "data.csv", rows)))) == rows


def test_a_folder_may_have_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    for number in range(100):
        written(tmp_path / f"{number:03}.csv", ROWS[number : number + 2])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 60, hard))
    try:
        assert len(read_all(CsvReader(str(tmp_path)))) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_byte_order_mark_is_no_part_of_a_quoted_name(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(b'\xef\xbb\xbf"a,1",b\n1,2\n')
    reader = CsvReader(str(tmp_path / "data.csv"))
    assert read_all(reader) == [["1", "2"]]
    assert reader.metadata.column_names == ("a,1", "b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sep": ";;"}, "sep is ';;'"),
        ({"quote": ""}, "quote is ''"),
        ({"columns": "a"}, "columns is 'a'"),
        ({"encoding": "utf-16"}, "encoding is 'utf-16'"),
        ({"encoding": "klingon"}, "encoding is 'klingon'"),
        ({"sep": '"'}, "sep and quote are both"),
        ({"sep": "\n"}, "sep is"),
        ({"columns": 1}, "columns is 1"),
        ({"columns": [1]}, "columns is"),
        ({"columns": []}, "columns is"),
        ({"encoding": None}, "encoding is None"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        CsvReader(str(tmp_path / "data.csv"), **arguments)
    assert caught.value.remedy
