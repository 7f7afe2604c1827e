"""The eight defects of the TorchElastic controller, each as a promise that it broke."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import (
    NOW,
    WORKER,
    after,
    ago,
    changes,
    condition,
    created,
    deleted,
    events,
    holds,
    job,
    later,
    pod,
    running,
    view,
)
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.finish import GRACE_SECONDS
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ReplicaSpec
from tidewater.elasticjob.status import Status


@pytest.mark.parametrize(
    ("replicas", "size"), [(1, 2), (2, 2), (3, 3), (4, 4), (5, 4)], ids=["below", "min", "between", "max", "above"]
)
def test_1_the_size_aimed_for_is_within_the_bounds(replicas: int, size: int) -> None:
    decision = decide(view(job(replicas, low=2, high=4)), NOW)
    assert created(decision) == list(range(size))
    assert decision.status.desired == size


def test_1_a_number_above_the_maximum_removes_what_is_above_the_maximum() -> None:
    assert deleted(decide(view(job(9, low=1, high=2), running(0, 1, 2)), NOW)) == ["worker-2"]


def test_2_an_evicted_pod_without_container_status_is_replaced_and_not_counted() -> None:
    evicted = pod(1, "Failed", exit_code=None, disrupted=True)
    decision = decide(view(job(2, low=1), (pod(0), evicted)), NOW)
    assert (deleted(decision), created(decision)) == (["worker-1"], [1])
    assert (decision.status.restarts, decision.status.state) == (0, State.RUNNING)


def test_3_permanent_exits_below_the_minimum_fail_the_job() -> None:
    decision = decide(view(job(2, low=1), (pod(0, "Failed"), pod(1, "Failed"))), NOW)
    assert decision.status.state is State.FAILED
    assert holds(decision.status, "Failed")
    assert not holds(decision.status, "Running")
    assert "ElasticJobFailed" in events(decision)


def test_3_a_job_without_running_pods_does_not_say_that_it_runs() -> None:
    ran = after(job(2, low=1), *running(0, 1))
    lost = [pod(index, "Failed", exit_code=137) for index in (0, 1)]
    status = decide(view(ran, lost), NOW).status
    assert not holds(status, "Running")
    assert holds(status, "Restarting")


def test_3_a_job_scaled_to_zero_does_not_succeed() -> None:
    ran = after(job(2, low=1, high=2), *running(0, 1))
    zero = replace(ran.spec, replica_specs={WORKER: ReplicaSpec(replicas=0, template={})})
    status = decide(view(replace(ran, spec=zero), running(0, 1)), NOW).status
    assert (status.desired, status.state) == (1, State.RUNNING)


def test_4_the_start_is_recorded_and_the_deadline_ends_the_job() -> None:
    begun = after(job(2, active_deadline_seconds=600), *running(0, 1), at=ago(599))
    assert begun.status.start_time == ago(599)
    waits = decide(view(begun, running(0, 1)), NOW)
    assert (waits.status.state, waits.again) == (State.RUNNING, later(1))
    ends = decide(view(begun, running(0, 1)), later(1))
    assert holds(ends.status, "Failed")
    ended = replace(begun, status=ends.status)
    assert deleted(decide(view(ended, running(0, 1)), later(1 + GRACE_SECONDS))) == ["worker-0", "worker-1"]


def test_4_a_failed_job_is_deleted_after_its_time_to_live() -> None:
    failed = after(job(1, ttl_seconds_after_finished=60), pod(0, "Failed"), at=ago(60))
    assert failed.status.completion_time == ago(60)
    assert decide(view(failed, [pod(0, "Failed")]), ago(1)).again == NOW
    assert [type(action).__name__ for action in changes(decide(view(failed), NOW))] == ["DeleteJob"]


def test_5_the_status_serves_scale_and_tells_which_spec_it_is_about() -> None:
    status = decide(view(replace(job(2), generation=7), (pod(0), pod(1, "Pending"))), NOW).status
    assert (status.replicas, status.observed_generation) == (2, 7)
    assert status.selector == "group-name=elastic.pytorch.org,job-name=j,replica-type=worker"
    assert {each.observed_generation for each in status.conditions} == {7}


def test_6_a_pending_worker_leaves_before_a_running_one_with_a_higher_index() -> None:
    decision = decide(view(job(2, low=1, high=3), (pod(0), pod(1, "Pending"), pod(2))), NOW)
    assert deleted(decision) == ["worker-1"]


def test_7_a_job_succeeds_with_rank_0_although_a_late_worker_still_runs() -> None:
    decision = decide(view(job(2), (pod(0, "Succeeded"), pod(1))), NOW)
    assert holds(decision.status, "Succeeded")
    assert decision.status.completion_time == NOW
    running_condition = condition(decision.status, "Running")
    assert running_condition.status == "False"


def test_8_what_the_decision_gives_is_a_value_that_a_test_can_compare() -> None:
    observed = view(job(2), running(0, 1))
    assert decide(observed, NOW) == decide(observed, NOW)
    assert observed.job.status == Status()
