"""Records say where and when they were measured; rows sum them up."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.records import Found, Records, Row, ratios, read, rows

MACHINE = {"processor": "a processor", "cores": "2 cores"}


def records(folder: Path) -> Records:
    return Records(folder / "new" / "toy.jsonl", {"torch": "2.15.0"}, MACHINE)


def test_records_are_in_the_file_at_once_and_runs_are_appended(tmp_path: Path) -> None:
    first = records(tmp_path)
    first.add(Found("pause", "tidewater", (0.1,), "s"))
    again = records(tmp_path)
    again.add(Found("pause", "tidewater", (0.3,), "s"))
    assert again.count("pause", "tidewater") == 2
    assert again.count("pause", "torchft") == 0
    (row,) = rows(read(again.file))
    assert row == Row("pause", "tidewater", 2, 0.2, 0.3, 0.1, 0.3, "s")
    one = read(again.file)[0]
    assert (one.machine, one.versions["torch"]) == (MACHINE, "2.15.0")
    assert one.at.endswith("Z")


def test_a_ratio_compares_values_of_the_same_turn_and_leaves_out_an_interrupted_round(tmp_path: Path) -> None:
    found = records(tmp_path)
    for ours, theirs in ((1.0, 2.0), (2.0, 8.0), (0.0, 5.0)):
        found.add(Found("pause", "theirs", (theirs,), "s"))
        found.add(Found("pause", "ours", (ours,), "s"))
    found.add(Found("pause", "theirs", (100.0,), "s"))
    found.add(Found("memory", "theirs", (1.0,), "MiB"))
    assert ratios(found.all, ["ours", "theirs"]) == [Row("pause / ours", "theirs", 2, 3.0, 4.0, 2.0, 4.0, "ratio")]
