"""The tables of the documentation are rendered from records, which say where and when they were measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.controller import results as controllers
from benchmarks.elastic import faults, results
from benchmarks.elastic.workers import names
from benchmarks.elasticdl import systems
from benchmarks.harness.records import Found, Records, Row
from benchmarks.membership import results as membership

KILL = faults.KILL.headline
MACHINE = {"processor": "a processor", "cores": "2 cores"}


def records(folder: Path) -> Records:
    return Records(folder / "new" / "elastic.jsonl", {"torch": "2.15.0"}, MACHINE)


def test_the_table_of_failures_has_a_column_for_each_system_with_its_time_outs(tmp_path: Path) -> None:
    found = records(tmp_path)
    found.add(Found("short step", "tidewater", (26.0,), "ms"))
    found.add(Found(KILL, "torchft", (5.0, 5.2, 5.1), "s"))
    found.add(Found(KILL, "tidewater", (0.09, 0.12, 0.1), "s"))
    text = tables.failures(found.all).splitlines()
    assert text[0] == "| median (least to most) | Tidewater | torchft, its defaults |"
    assert text[2].startswith("| time-outs | heartbeat 1.5 s, lease 10 s, ")
    assert text[3] == (
        "| SIGKILL, until the next committed step (n = 3) | 0.10 s (0.090 to 0.12) | 5.10 s (5.00 to 5.20) |"
    )
    assert len(text) == 6
    assert text[5].startswith("a processor, 2 cores. tidewater ")
    assert "torch 2.15.0" in text[5]


def test_the_large_model_has_a_table_of_its_own_with_the_systems_that_were_measured(tmp_path: Path) -> None:
    found = records(tmp_path)
    found.add(Found(KILL, "torchft", (5.0,), "s"))
    assert tables.failures_large(found.all) is None
    found.add(Found(results.named(KILL, names.LARGE), "tidewater", (0.6, 0.7), "s"))
    found.add(Found(results.named("SIGKILL: steps lost", names.LARGE), "tidewater", (0, 0), "steps"))
    text = tables.failures_large(found.all)
    assert text
    lines = text.splitlines()
    assert lines[0] == "| median (least to most) | Tidewater |"
    assert lines[3:5] == [
        "| SIGKILL, until the next committed step (n = 2) | 0.65 s (0.60 to 0.70) |",
        "| of that, steps done again (n = 2) | 0 |",
    ]
    assert KILL.partition(":")[0] not in tables.others(found.all)


def test_two_elastic_jobs_are_compared_with_the_two_gangs_of_their_round(tmp_path: Path) -> None:
    found = records(tmp_path)
    found.add(Found(systems.PACED, systems.SYSTEMS[0].name, (2000.0,), "records/s"))
    found.add(Found(systems.REPLACED, systems.REPLACEMENT.name, (2.5,), "s"))
    for gangs, elastic in ((80.0, 60.0), (100.0, 70.0)):
        found.add(Found(systems.BOTH_DONE, systems.GANGS.name, (gangs,), "s"))
        found.add(Found(systems.BOTH_DONE, systems.ELASTIC.name, (elastic,), "s"))
    found.add(Found(systems.BOTH_DONE, systems.GANGS.name, (500.0,), "s"))  # of a round that was interrupted
    text = tables.elasticdl(found.all).splitlines()
    assert text[0] == "| records/s, median (least to most), n = 1 | all computing | 30 ms for a minibatch |"
    assert text[2] == "| plain PyTorch, one process | not measured | 2000 |"
    assert text[-4] == f"| {systems.BOTH_DONE} | elastic | 2 | 65.0 s (60.0 to 70.0) |"
    assert text[-3] == f"| {systems.BOTH_DONE} / gang-scheduled | elastic | 2 | 0.725 times (0.700 to 0.750) |"
    assert len(text) == 12


def test_a_median_equal_to_the_cap_is_shown_as_more_than_the_cap() -> None:
    row = Row(faults.STOP.headline, "torchrun", 3, 120.0, 120.0, 118.0, 120.0, "s")
    assert tables.cell(row) == "more than 120 s"
    assert tables.cell(Row(KILL, "torchrun", 1, 120.0, 120.0, 120.0, 120.0, "s")) == "120 s"
    assert tables.cell(None) == "not measured"


def test_a_table_replaces_what_is_between_its_marks() -> None:
    document = "before\n<!-- rows: gpu -->\nold\n<!-- end -->\nafter\n"
    assert tables.place(document, "gpu", "new \\1") == "before\n<!-- rows: gpu -->\nnew \\1\n<!-- end -->\nafter\n"
    with pytest.raises(ValueError, match="no '<!-- rows: other -->' with a following"):
        tables.place(document, "other", "new")


def test_the_documents_have_the_tables_of_the_committed_records() -> None:
    stale = [path.name for path, text in tables.rendered().items() if path.read_text() != text]
    assert not stale, f"run `python -m benchmarks.tables --write` for {', '.join(stale)}"


def test_the_cost_of_a_change_has_a_column_for_each_number_of_members_and_a_line_for_each_system(
    tmp_path: Path,
) -> None:
    found = records(tmp_path)
    for size, system, value in ((64, "before", 21), (4, "tidewater", 2), (64, "tidewater", 3)):
        name = membership.named(size, membership.FORM, membership.GENERATIONS)
        found.add(Found(name, system, (float(value),), "generations"))
    lines = tables.membership(found.all).splitlines()
    assert lines[0] == "| median (least to most) |  | 4 members | 64 members |"
    label = f"{membership.FORM}: {membership.GENERATIONS}"
    assert f"| {label} | before | not measured | 21.0 |" in lines
    assert f"| {label} | tidewater | 2.00 | 3.00 |" in lines


def test_one_job_with_many_pods_has_a_table_of_its_own_and_is_in_none_of_many_jobs(tmp_path: Path) -> None:
    found = records(tmp_path)
    found.add(Found(controllers.named(1000, controllers.RATE), "tidewater", (70.0,), "jobs/s"))
    small = [tables.controllers(found.all), tables.growth(found.all), tables.calls(found.all)]
    assert tables.large_job(found.all) is None
    for pods, seconds in ((1000, 7.5), (100, 0.9)):
        found.add(Found(controllers.large(pods, controllers.ALL_CREATED), "tidewater", (seconds,), "s"))
    call = controllers.pod_call("create pods")
    found.add(Found(controllers.large(1000, call), "tidewater", (1.0,), "calls"))
    text = tables.large_job(found.all)
    assert text
    lines = text.splitlines()
    assert lines[0] == "| median (least to most) | one job of 100 pods | one job of 1,000 pods |"
    assert f"| {controllers.ALL_CREATED} | 0.90 s | 7.50 s |" in lines
    assert f"| {call} | not measured | 1.00 calls |" in lines
    assert [tables.controllers(found.all), tables.growth(found.all), tables.calls(found.all)] == small
