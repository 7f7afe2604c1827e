"""What a turn makes of its observations."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.controller import results
from benchmarks.controller.audit import Call
from benchmarks.controller.turn import at_rest, calls_for_each, percentile, spread
from benchmarks.controller.watch import created
from benchmarks.harness.command import TurnFailed


@pytest.mark.parametrize(
    ("count", "chosen", "numbers"),
    [(1000, 4, [0, 250, 500, 750]), (3, 100, [0, 1, 2]), (10, 3, [0, 3, 6])],
    ids=["some", "all", "uneven"],
)
def test_resized_jobs_are_spread_over_all(count: int, chosen: int, numbers: list[int]) -> None:
    assert spread(count, chosen) == numbers


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 99) == 99
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile([7.0], 50) == 7.0


def test_calls_are_told_for_each_job_in_all_and_by_kind() -> None:
    calls = Counter({Call("create", "pods"): 2000, Call("patch", "elasticjobs/status"): 1000, Call("list", "pods"): 1})
    assert calls_for_each(calls, 1000) == {
        results.CALLS: 3.001,
        results.call("create pods"): 2.0,
        results.call("patch elasticjobs/status"): 1.0,
    }


def test_rest_separates_work_from_the_lease_and_from_watches() -> None:
    calls = Counter(
        {
            Call("update", "leases"): 30,
            Call("watch", "pods"): 3,
            Call("watch", "leases"): 3,
            Call("patch", "elasticjobs/status"): 6,
        }
    )
    assert at_rest(calls, 60.0) == {
        results.REST_CALLS: 0.1,
        results.REST_LEASE: 0.5,
        results.REST_WATCHES: 0.1,
    }
    assert at_rest(Counter(), 60.0)[results.REST_CALLS] == 0


def test_the_watch_reports_new_pods_only() -> None:
    line = b'{"type":"%s","object":{"kind":"PartialObjectMetadata","metadata":{"name":"job-0-worker-1"}}}\n'
    assert created(line % b"ADDED") == "job-0-worker-1"
    assert created(line % b"MODIFIED") is None
    assert created(line % b"DELETED") is None


def test_the_end_of_a_watch_is_an_error_with_the_servers_words() -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'
    with pytest.raises(TurnFailed, match="too old resource version"):
        created(line)
