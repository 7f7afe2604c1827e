"""Calls are counted from the audit log by their user, each once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.controller.audit import Call, Tail, call_of, working

ME, OTHER_USER = "bench-tidewater", "bench-training-operator"


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
