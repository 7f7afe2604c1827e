"""How lines of logs look."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.fake import job
from tidewater.cli.job.lines import line_of
from tidewater.cli.job.printer import layout


def test_prefixes_are_as_wide_as_the_longest_worker_can_be() -> None:
    shape = layout(job(high=12), prefix=True, timestamps=False, colour=False)
    assert shape.line(line_of("digits-worker-0", "2026-03-01T12:00:00Z a")) == "worker-0  | a"
    assert shape.line(line_of("digits-worker-11", "2026-03-01T12:00:00Z a")) == "worker-11 | a"


def test_prefixes_have_room_for_the_numbers_that_successors_have() -> None:
    found = job(high=2)
    found["status"]["replicaStatuses"] = {"Worker": {"active": 2, "nextIndex": 101}}
    shape = layout(found, prefix=True, timestamps=False, colour=False)
    assert shape.line(line_of("digits-worker-99", "2026-03-01T12:00:00Z a")) == "worker-99  | a"


def test_the_only_pod_of_a_type_has_its_types_colour() -> None:
    found = job()
    found["spec"]["replicaSpecs"]["Master"] = {}
    shape = layout(found, prefix=True, timestamps=False, colour=True)
    assert shape.code("master") == shape.code("master-0") != shape.code("worker-0")


def test_a_progress_bar_shows_its_last_state_behind_the_name_and_is_whole_without_names() -> None:
    bar = line_of("digits-worker-0", "2026-03-01T12:00:00Z 10%\r 20%")
    shape = layout(job(), prefix=True, timestamps=False, colour=False)
    assert shape.line(bar) == "worker-0 |  20%"
    assert replace(shape, prefix=False).line(bar) == "10%\r 20%"


def test_neighbours_differ_in_colour_and_a_worker_keeps_its_own() -> None:
    found = job()
    found["spec"]["replicaSpecs"]["PS"] = {}
    shape = layout(found, prefix=True, timestamps=False, colour=True)
    codes = [shape.code(f"worker-{index}") for index in range(8)]
    assert len(set(codes)) == 8
    assert shape.code("ps-0") != shape.code("worker-0")
    assert shape.line(line_of("digits-worker-0", "2026-03-01T12:00:00Z a")) == "\x1b[36mworker-0 |\x1b[0m a"
