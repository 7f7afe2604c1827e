"""Records of a rehearsal arrive as they were written, and a line that is still being written is read later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewater.contract.rehearsal import SUFFIX, Begun, Final, Read, Record, Sketch, Writer, encoded, read_whole

RECORDS: list[Record] = [
    Begun(3, 2, 1, (4, 5), {"model/w": "x"}),
    Final(3, 0, 2, 2, 1, 0.1, 4, {"model/w": "x"}, {"model/w": Sketch(1.0, 0.5, (0.25, -1.0))}),
    Read("sample 4 of the dataset", "1f"),
]


def test_records_arrive_as_they_were_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "digits/0")
    for record in RECORDS:
        writer.write(record)
    done: dict[Path, int] = {}
    found = read_whole(tmp_path, done)
    assert [record for _, record in found] == RECORDS
    assert {process.partition(".")[0] for process, _ in found} == {"digits-0"}
    assert read_whole(tmp_path, done) == []


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path, record: Record) -> None:
    line = encoded(record)
    (tmp_path / f"a.1{SUFFIX}").write_bytes(line[:9])
    done: dict[Path, int] = {}
    assert read_whole(tmp_path, done) == []
    (tmp_path / f"a.1{SUFFIX}").write_bytes(line)
    assert read_whole(tmp_path, done) == [("a.1", record)]
