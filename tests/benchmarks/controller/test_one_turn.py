"""A whole turn with the real API server, the real controller and few jobs, and one with a single job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.controller import results
from benchmarks.controller.__main__ import opened
from benchmarks.controller.plan import Pace, blocks
from benchmarks.harness.command import Make, make_turns
from benchmarks.harness.plan import wanted
from benchmarks.harness.records import Records, rows

JOBS = 5
PACE = Pace(resizes=2, resize_seconds=0.1, quiet_seconds=1.0)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    with opened(tmp_path_factory.mktemp("site"), {results.TIDEWATER}, PACE) as make:
        yield make


def test_a_turn_measures_creation_and_resizes_and_its_calls_are_those_of_the_pods_and_more(
    make: Make, tmp_path: Path
) -> None:
    records = Records(tmp_path / "controller.jsonl", {}, {})
    turns = wanted(blocks([JOBS], [results.TIDEWATER], 2, PACE), records.count)
    assert make_turns(turns, make, records, print) == []
    found = {results.split(row.measure)[1]: row for row in rows(records.all)}
    always = {measure for measure in results.UNITS if "at rest" not in measure}
    assert {measure: found[measure].n for measure in always} == dict.fromkeys(always, 2)
    # Two pods for each job: none is created twice, and the second turn doesn't see the first one's.
    assert (found[results.call("create pods")].low, found[results.call("create pods")].high) == (2.0, 2.0)
    assert found[results.CALLS].low >= 3
    assert found[results.RATE].low > 0
    assert 0 < found[results.RESIZE_P50].median <= found[results.RESIZE_P99].median
    assert found[results.PSS].median > 1


def test_a_turn_with_one_job_measures_its_resizes_and_its_calls_for_each_pod(make: Make, tmp_path: Path) -> None:
    records = Records(tmp_path / "controller.jsonl", {}, {})
    turns = wanted(blocks((), [results.TIDEWATER], 1, PACE, pods=[20]), records.count)
    assert make_turns(turns, make, records, print) == []
    found = {results.pods_of(row.measure)[1]: row.median for row in rows(records.all)}
    assert results.LARGE_UNITS.keys() <= found.keys()
    assert found[results.pod_call("create pods")] == 1
    assert found[results.POD_CALLS] < 2
    assert found[results.ALL_CREATED] <= found[results.ALL_RUN]
    assert 0 <= found[results.SAID] <= found[results.ALL_RUN]
    assert 0 < found[results.GROWN_CREATED] <= found[results.GROWN]
