"""The controllers' tables of the documentation are rendered from records."""

from __future__ import annotations

from pathlib import Path

from benchmarks import tables
from benchmarks.controller import results
from benchmarks.harness.records import Found, Record, Records

MACHINE = {"processor": "a processor", "cores": "2 cores"}


def recorded(folder: Path) -> list[Record]:
    records = Records(folder / "controller.jsonl", {"training-operator": "v1.9.2"}, MACHINE)
    for system, rates in ((results.TIDEWATER, (60.0, 70.0, 65.0)), (results.TUNED, (50.0, 52.0, 51.0))):
        for rate in rates:
            for measure, value in ((results.RATE, rate), (results.CALLS, 5.0), (results.REST_CALLS, 0.0)):
                name = results.named(1000, measure)
                records.add(Found(name, system, (value,), results.unit(name)))
    for jobs in (100, 5000):
        name = results.named(jobs, results.RATE)
        records.add(Found(name, results.TIDEWATER, (55.0,), results.unit(name)))
    for system, calls in ((results.TIDEWATER, ("create pods",)), (results.TUNED, ("create pods", "create services"))):
        for what in calls:
            name = results.named(1000, results.call(what))
            records.add(Found(name, system, (2.0,), results.unit(name)))
    return records.all


def test_the_comparison_has_a_column_for_each_measured_system(tmp_path: Path) -> None:
    text = tables.controllers(recorded(tmp_path))
    assert text is not None
    lines = text.splitlines()
    assert lines[0] == "| 1,000 jobs, median (least to most) | Tidewater | training-operator, tuned |"
    assert lines[2] == "| turns | 3 | 3 |"
    assert lines[3] == f"| {results.RATE} | 65.0 jobs/s (60.0 to 70.0) | 51.0 jobs/s (50.0 to 52.0) |"
    assert f"| {results.REST_CALLS} | 0 calls/s | 0 calls/s |" in lines
    assert f"| {results.PSS} | not measured | not measured |" in lines
    assert "training-operator v1.9.2" in lines[-1]


def test_growth_has_a_column_for_each_number_of_jobs(tmp_path: Path) -> None:
    lines = tables.growth(recorded(tmp_path)).splitlines()
    assert lines[0] == "| median (least to most) |  | 100 jobs | 1,000 jobs | 5,000 jobs |"
    assert lines[2] == f"| {results.RATE} | Tidewater | 55.0 jobs/s | 65.0 jobs/s (60.0 to 70.0) | 55.0 jobs/s |"
    assert lines[3].split("|")[2:4] == [" training-operator, tuned ", " not measured "]


def test_calls_are_listed_by_kind_and_a_kind_that_a_system_lacks_is_zero(tmp_path: Path) -> None:
    text = tables.calls(recorded(tmp_path))
    assert text is not None
    assert text.splitlines() == [
        "| API calls for each job | Tidewater | training-operator, tuned |",
        "| --- | --- | --- |",
        "| create pods | 2.00 | 2.00 |",
        "| create services | 0.00 | 2.00 |",
    ]


def test_without_the_comparisons_number_of_jobs_there_is_no_comparison(tmp_path: Path) -> None:
    few = [record for record in recorded(tmp_path) if results.split(record.measure)[0] == 100]
    assert tables.controllers(few) is None
    assert tables.calls(few) is None
