"""Exits after a signal without a disruption: a few are free, then they count, and each waits longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decide.world import NOW, after, ago, created, deleted, events, job, pod, running, view
from tidewater.controller.decide.actions import status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.exits import FREE_SIGNALS
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob.choices import PodNames
from tidewater.elasticjob.model import ElasticJob


def killed(uid: str, code: int = 137, ran: float = 60, **changes: Any) -> PodView:
    """Return worker 1, which has just exited after a signal."""
    values = {"uid": uid, "exit_code": code, "started": ago(ran), "finished": NOW, "created": ago(ran), **changes}
    return pod(1, "Failed", **values)


def after_kills(of: ElasticJob, times: int, **changes: Any) -> ElasticJob:
    """Return the job after its worker 1 was killed so many times in a row, each time in a new pod."""
    for attempt in range(times):
        of = after(of, pod(0), killed(f"attempt-{attempt}", **changes), at=NOW)
    return of


@pytest.mark.parametrize("code", [137, 143])
def test_a_signal_without_a_disruption_counts_after_a_few_times_and_waits_longer_each_time(code: int) -> None:
    waits, restarts = [], []
    for times in range(FREE_SIGNALS + 3):
        tried = after_kills(job(2, low=1), times, code=code)
        decision = decide(view(tried, (pod(0), killed("next", code))), NOW)
        waits.append(decision.again and (decision.again - NOW).total_seconds())
        restarts.append(decision.status.restarts)
    assert waits == [None, None, 10, 20, 40, 80]
    assert restarts == [0, 0, 0, 1, 2, 3]


def test_each_of_them_is_reported_and_remembered_before_the_pod_is_replaced() -> None:
    ran = after(job(2, low=1), *running(0, 1))
    decision = decide(view(ran, (pod(0), killed("first"))), NOW)
    assert (events(decision), deleted(decision), created(decision)) == (["ExitedWithCode"], ["worker-1"], [1])
    assert (decision.status.signals, decision.status.restarts) == ({"j-worker-1": 1}, 0)
    assert status_comes_first(ran.status, decision.status)
    told = replace(ran, status=decision.status)
    again = decide(view(told, (pod(0), killed("first"))), NOW)
    assert (events(again), again.status.signals) == ([], {"j-worker-1": 1})


def test_a_disruption_and_a_deletion_are_no_signal() -> None:
    for lost in (killed("lost", disrupted=True), killed("lost", terminating=True)):
        assert decide(view(job(2, low=1), (pod(0), lost)), NOW).status.signals == {}


def test_a_long_run_begins_a_new_row() -> None:
    tried = after_kills(job(2, low=1), FREE_SIGNALS + 3, ran=600)
    assert (tried.status.signals, tried.status.restarts) == ({"j-worker-1": 1}, 0)


def test_another_failure_and_a_suspension_end_the_row() -> None:
    tried = after_kills(job(2, low=1), 2)
    assert after(tried, pod(0), killed("other", code=130), at=NOW).status.signals == {}
    assert after(replace(tried, spec=replace(tried.spec, suspend=True)), pod(0), at=NOW).status.signals == {}


def test_a_successor_inherits_the_row() -> None:
    of = job(2, low=1, worker={"pod_names": PodNames.SUCCESSIVE})
    first = decide(view(of, (pod(0, core=True), killed("first"))), NOW)
    assert (created(first), first.status.signals) == ([2], {"j-worker-2": 1})


def test_a_job_with_a_worker_that_is_always_killed_fails_at_the_back_off_limit() -> None:
    tried = after_kills(job(2, low=1, backoff_limit=3), FREE_SIGNALS + 2)
    decision = decide(view(tried, (pod(0), killed("last"))), NOW)
    assert "BackoffLimitExceeded" in events(decision)
