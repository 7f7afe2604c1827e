"""What a turn makes of its observations."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.controller import results
from benchmarks.controller.turn import (
    Call,
    Memory,
    Tail,
    at_rest,
    call_of,
    calls_for_each,
    memory,
    parse,
    percentile,
    spread,
    working,
)
from benchmarks.controller.watch import created
from benchmarks.harness.command import TurnFailed

ROLLUP = """\
55d0c0a00000-7ffd1b5fe000 ---p 00000000 00:00 0                          [rollup]
Rss:              126976 kB
Pss:              120832 kB
Pss_Dirty:         90000 kB
Pss_Anon:          90000 kB
Shared_Clean:       6144 kB
"""
ME, OTHER_USER = "bench-tidewater", "bench-training-operator"


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


def test_resident_and_proportional_memory_are_read() -> None:
    assert parse(ROLLUP) == Memory(rss_mib=124.0, pss_mib=118.0)


def test_a_text_without_a_field_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="without Pss"):
        parse("Rss: 1 kB\n")


def test_ended_processes_are_left_out() -> None:
    own = memory([os.getpid(), 2**22])
    assert 0 < own.pss_mib <= own.rss_mib
    assert memory([]) == Memory(0, 0)


def event(
    verb: str, resource: str = "", subresource: str = "", *, stage: str = "ResponseComplete", user: str = ME
) -> dict[str, Any]:
    reference = {"resource": resource, "subresource": subresource, "namespace": "turn-1"}
    found = {"kind": "Event", "level": "Metadata", "stage": stage, "verb": verb, "user": {"username": user}}
    return {**found, "objectRef": {key: value for key, value in reference.items() if value}} if resource else found


def written(file: Path, *events: dict[str, Any]) -> None:
    with file.open("a") as log:
        log.writelines(f"{json.dumps(each)}\n" for each in events)


def test_a_call_has_its_verb_its_resource_and_its_subresource() -> None:
    assert str(call_of(event("create", "pods"), ME)) == "create pods"
    assert call_of(event("update", "pytorchjobs", "status"), ME) == Call("update", "pytorchjobs/status")
    assert call_of(event("get"), ME) == Call("get", "other paths")


def test_calls_of_other_users_are_not_counted() -> None:
    assert call_of(event("create", "pods", user=OTHER_USER), ME) is None


def test_a_watch_is_counted_when_it_begins_and_not_when_it_ends() -> None:
    assert call_of(event("watch", "pods", stage="ResponseStarted"), ME) == Call("watch", "pods")
    assert call_of(event("watch", "pods", stage="ResponseComplete"), ME) is None


def test_work_is_neither_watches_nor_the_lease() -> None:
    calls = Counter({Call("watch", "pods"): 2, Call("update", "leases"): 30, Call("create", "pods"): 1})
    assert working(calls) == {Call("create", "pods"): 1}


def test_the_tail_of_a_log_begins_where_the_log_was_and_takes_whole_lines_only(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    written(log, event("create", "pods"))
    tail = Tail(log, ME)
    assert tail.take() == Counter()
    written(log, event("create", "pods"), event("create", "pods"), event("delete", "pods", user=OTHER_USER))
    assert tail.take() == {Call("create", "pods"): 2}
    half = json.dumps(event("delete", "pods"))
    with log.open("a") as file:
        file.write(half[:20])
    assert tail.take() == Counter()
    with log.open("a") as file:
        file.write(f"{half[20:]}\n")
    assert tail.take() == {Call("delete", "pods"): 1}
