"""What the pod prints that reads kept logs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from workloads.logs.in_pod import read


def at(second: int, text: str) -> str:
    return f"2026-03-01T12:00:{second:02}.000000000Z {text}\n"


def write(place: Path, name: str, *lines: str, written: float = 1000.0) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("".join(lines))
    os.utime(place / name, (written, written))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a directory with the logs of two jobs of one name. The second had two workers, and one was replaced."""
    write(tmp_path / "digits" / "uid-1", "digits-worker-0_a.log", at(1, "first job"))
    last = tmp_path / "digits" / "uid-2"
    write(last, "digits-worker-0_b.log.1", at(10, "oldest"), written=2000.0)
    write(last, "digits-worker-0_b.log", at(11, "b"), "unstamped\n", at(14, "d"), written=2000.0)
    write(last, "digits-worker-0_c.log", at(15, "successor"), written=1500.0)
    write(last, "digits-worker-1_d.log", at(12, "c"), at(16, "end"), written=1500.0)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], files: Path, *arguments: str) -> tuple[dict[str, Any], list[str]]:
    """Return the header, and the lines without their times."""
    read.main([f"--directory={files}", "--job=digits", *arguments])
    header, *lines = capsys.readouterr().out.splitlines()
    return json.loads(header), [line.replace("2026-03-01T12:00:", "").replace(".000000000Z", "") for line in lines]


def test_the_last_job_of_the_name_is_printed_in_the_order_of_the_times(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, lines = printed(capsys, files)
    assert header == {"files": 3, "lines": 7, "left_out": 0}
    assert lines == [
        "digits-worker-0 10 oldest",
        "digits-worker-0 11 b",
        "digits-worker-0 unstamped",
        "digits-worker-1 12 c",
        "digits-worker-0 14 d",
        "digits-worker-0 15 successor",
        "digits-worker-1 16 end",
    ]


def test_a_job_is_chosen_by_its_uid(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, files, "--uid=uid-1")[1] == ["digits-worker-0 01 first job"]
    assert printed(capsys, files, "--uid=uid-3") == ({"files": 0, "lines": 0, "left_out": 0}, [])


def test_of_an_unknown_job_nothing_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, tmp_path) == ({"files": 0, "lines": 0, "left_out": 0}, [])


def test_pods_and_the_last_lines_of_each_and_those_since_a_time_are_chosen(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, files, "--pod=digits-worker-1")[1] == ["digits-worker-1 12 c", "digits-worker-1 16 end"]
    last = ["digits-worker-0 14 d", "digits-worker-0 15 successor", "digits-worker-1 16 end"]
    assert printed(capsys, files, "--tail=1")[1] == last
    assert printed(capsys, files, "--since=2026-03-01T12:00:14")[1] == last
    assert printed(capsys, files, "--tail=0")[0] == {"files": 3, "lines": 0, "left_out": 0}


def test_more_than_a_pods_log_holds_is_left_out_from_the_beginning_and_counted(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MOST_BYTES", 110)
    header, lines = printed(capsys, files)
    assert header == {"files": 3, "lines": 2, "left_out": 5}
    assert lines == ["digits-worker-0 15 successor", "digits-worker-1 16 end"]


def test_bytes_that_are_no_text_and_carriage_returns_end_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "digits" / "uid"
    place.mkdir(parents=True)
    (place / "digits-worker-0_a.log").write_bytes(at(1, "").encode()[:-1] + b"10%\r\xff20%\n")
    read.main([f"--directory={tmp_path}", "--job=digits"])
    header, line, rest = capsys.readouterr().out.split("\n")
    assert json.loads(header)["lines"] == 1
    assert line.endswith("10%\r\ufffd20%")
    assert rest == ""
