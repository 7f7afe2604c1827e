"""Lines by task, empty ones too."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.data.reader import Shard
from elasticdl.data.text.lines import LineReader
from elasticdl.errors import DamagedData


@pytest.mark.parametrize("end", ["\n", ""], ids=["with-last-end", "without"])
def test_a_task_gets_exactly_its_lines(tmp_path: Path, end: str) -> None:
    lines = ["" if number % 7 == 0 else f"line {number}" for number in range(600)] + ["last"]
    path = tmp_path / "data.txt"
    path.write_bytes(("\n".join(lines) + end).encode())
    with LineReader(str(path)) as reader:
        assert reader.shards() == [Shard(str(path), 0, 601)]
        assert list(reader.read(Shard(str(path), 250, 601))) == lines[250:]


def test_line_ends_of_windows_are_no_part_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_bytes(b"a\r\n\r\nb\r\n")
    with LineReader(str(tmp_path)) as reader:
        (shard,) = reader.shards()
        assert list(reader.read(shard)) == ["a", "", "b"]


def test_a_file_that_lost_lines_since_it_was_counted_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_bytes(b"a\nb\n")
    with LineReader(str(tmp_path)) as reader, pytest.raises(DamagedData, match=r"has 2 rows, and the task is \[1, 3\)"):
        list(reader.read(Shard(str(tmp_path / "data.txt"), 1, 3)))
