"""When a job has succeeded or failed, and what happens to it after that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import (
    NOW,
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
from tidewater.controller.decide.actions import DeleteJob, DeletePod
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.finish import GRACE_SECONDS
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob.choices import CleanPodPolicy, RestartPolicy, State, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec
from tidewater.elasticjob.status import Condition, Status

MASTER = {"Master": ReplicaSpec(replicas=1, template={})}
ALL_PODS = SuccessPolicy.ALL_PODS
DONE = {index: pod(index, "Succeeded") for index in range(4)}


def master(phase: str, **changed: object) -> PodView:
    return pod(0, phase, type="Master", **changed)


def state(of: ElasticJob, *pods: PodView) -> State | None:
    return decide(view(of, pods), NOW).status.state


def test_rank_0_decides_and_no_other_worker() -> None:
    assert state(job(2, low=1), pod(0), DONE[1]) is State.RUNNING
    assert state(job(2, low=1), DONE[0], pod(1)) is State.SUCCEEDED


def test_a_deadline_is_looked_at_also_if_nothing_happens_until_then() -> None:
    assert decide(view(job(2, active_deadline_seconds=60)), NOW).again == later(60)


def test_a_deadline_of_zero_is_none_as_the_old_controller_had_it() -> None:
    ran = after(job(2, active_deadline_seconds=0), *running(0, 1), at=ago(9))
    assert state(ran, *running(0, 1)) is State.RUNNING


def test_only_what_was_reached_is_the_settled_size_of_a_failed_job() -> None:
    failed = decide(view(job(1), [pod(0, "Failed", exit_code=1)]), NOW).status
    assert (failed.state, failed.settled_replicas) == (State.FAILED, None)
    assert decide(view(replace(job(1), status=failed, generation=2), []), later(5)).status.settled_replicas is None


def test_a_job_that_the_old_controller_ended_has_a_state_and_keeps_no_pod_if_it_failed() -> None:
    earlier = Condition(type="Failed", status="True", reason="ElasticJobFailed", message="", observed_generation=0)
    old, pods = job(2, status=Status(conditions=(earlier,))), [pod(0), pod(1, "Failed")]
    found = decide(view(old, pods), NOW)
    assert found.status.state is State.FAILED
    assert deleted(decide(view(replace(old, status=found.status), pods), later(GRACE_SECONDS))) == ["worker-0"]


def test_the_master_decides_if_there_is_one() -> None:
    made = job(2, low=1, others=MASTER)
    assert state(made, master("Running"), DONE[0], DONE[1]) is State.RUNNING
    assert state(made, master("Succeeded"), pod(0), pod(1)) is State.SUCCEEDED


def test_without_pod_0_the_lowest_index_that_is_left_decides() -> None:
    assert state(job(2, low=1, high=3), DONE[1], pod(2)) is State.SUCCEEDED
    assert state(job(3, low=1), pod(0, "Failed"), DONE[1], pod(2)) is State.SUCCEEDED


@pytest.mark.parametrize("rank0", [(), (pod(0, terminating=True),), (pod(0, "Failed", exit_code=130),)])
def test_a_pod_0_that_is_being_replaced_is_waited_for(rank0: tuple[PodView, ...]) -> None:
    assert state(job(2, low=1), *rank0, DONE[1]) is not State.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "expected"), [(CleanPodPolicy.NONE, []), (CleanPodPolicy.RUNNING, ["worker-0"])], ids=str
)
def test_a_pod_whose_sidecar_still_runs_is_one_that_runs_when_the_job_is_cleaned_up(
    policy: CleanPodPolicy, expected: list[str]
) -> None:
    pods = (pod(0, "Succeeded", lingers=True), DONE[1])
    ended = after(job(2, clean_pod_policy=policy), *pods, at=NOW)
    assert deleted(decide(view(ended, pods), later(GRACE_SECONDS))) == expected


def test_a_failed_job_keeps_no_sidecar_running() -> None:
    pods = [pod(0, "Failed", lingers=True)]
    ended = after(job(1), *pods, at=NOW)
    assert (ended.status.state, deleted(decide(view(ended, pods), later(GRACE_SECONDS)))) == (
        State.FAILED,
        ["worker-0"],
    )


def test_any_worker() -> None:
    made = job(2, success_policy=SuccessPolicy.ANY_WORKER)
    assert state(made, pod(0), DONE[1]) is State.SUCCEEDED


def test_all_workers() -> None:
    made = job(2, low=1, success_policy=SuccessPolicy.ALL_WORKERS)
    assert state(made, DONE[0], pod(1)) is State.RUNNING
    assert state(made, DONE[0]) is not State.SUCCEEDED
    assert state(made, DONE[0], DONE[1]) is State.SUCCEEDED
    assert state(made, DONE[0], pod(1, "Failed")) is State.SUCCEEDED


def test_all_pods() -> None:
    made = job(2, low=1, others={**MASTER, "PS": ReplicaSpec(replicas=0, template={})}, success_policy=ALL_PODS)
    assert state(made, DONE[0], DONE[1], master("Running")) is State.RUNNING
    assert state(made, DONE[0], pod(1), master("Succeeded")) is State.RUNNING
    assert state(made, DONE[0], DONE[1]) is not State.SUCCEEDED
    assert state(made, DONE[0], pod(1, "Failed", exit_code=143), master("Succeeded")) is not State.SUCCEEDED
    assert state(made, DONE[0], DONE[1], master("Succeeded")) is State.SUCCEEDED


def test_all_pods_of_a_fixed_type_can_no_longer_succeed_when_one_has_failed_for_good() -> None:
    made = job(3, low=3, success_policy=ALL_PODS)
    decision = decide(view(made, (pod(0), DONE[1], pod(2, "Failed"))), NOW)
    assert decision.status.state is State.FAILED
    failed = condition(decision.status, "Failed")
    assert "among them j-worker-2: at most 2 can run and at least 3 are needed" in failed.message


def test_all_pods_are_those_that_have_not_failed_for_good_if_each_type_has_its_minimum() -> None:
    lost = [pod(index, "Failed") for index in range(3)]
    made = job(3, low=2, others=MASTER, success_policy=ALL_PODS)
    assert state(made, DONE[0], DONE[1], lost[2], master("Running")) is State.RUNNING
    assert state(made, DONE[0], pod(1), lost[2], master("Succeeded")) is State.RUNNING
    assert state(made, DONE[0], DONE[1], lost[2], master("Succeeded")) is State.SUCCEEDED
    assert state(made, DONE[0], DONE[1], lost[2], master("Failed")) is State.FAILED
    assert state(made, DONE[0], lost[1], lost[2], master("Succeeded")) is State.FAILED
    assert state(job(3, low=1, success_policy=ALL_PODS), *lost) is State.FAILED


def test_all_pods_do_not_include_one_that_failed_for_good_and_leaves_by_shrinking() -> None:
    made = job(2, low=1, high=3, success_policy=ALL_PODS)
    decision = decide(view(made, (pod(0), pod(1), pod(2, "Failed"))), NOW)
    assert (decision.status.state, deleted(decision)) == (State.RUNNING, ["worker-2"])


def test_a_worker_that_succeeded_is_not_replaced() -> None:
    assert changes(decide(view(job(2), (pod(0), DONE[1])), NOW)) == []


def test_a_job_goes_on_with_the_minimum_and_fails_below_it() -> None:
    failed = [pod(index, "Failed") for index in (1, 2)]
    assert state(job(3, low=1), pod(0), *failed) is State.RUNNING
    assert state(job(3, low=2), pod(0), *failed) is State.FAILED


def test_a_shrunk_job_does_not_fail_for_a_worker_that_it_no_longer_needs() -> None:
    decision = decide(view(job(2, low=2, high=3), (pod(0), pod(1, "Failed"), pod(2))), NOW)
    assert (deleted(decision), decision.status.state) == (["worker-1"], State.RUNNING)


def test_another_type_that_fails_for_good_below_its_minimum_fails_the_job() -> None:
    decision = decide(view(job(1, others=MASTER), (pod(0), master("Failed"))), NOW)
    assert decision.status.state is State.FAILED
    assert events(decision) == ["ExitedWithCode", "PermanentFailure", "ElasticJobFailed"]
    spare = {"PS": ReplicaSpec(replicas=2, min_replicas=1, template={})}
    assert state(job(1, others=spare), pod(0), pod(0, "Failed", type="PS"), pod(1, type="PS")) is State.RUNNING


def test_a_failure_says_why_in_its_condition() -> None:
    failed = condition(decide(view(job(1), [pod(0, "Failed")]), NOW).status, "Failed")
    assert failed.reason == "ElasticJobFailed"
    told = "ElasticJob j has failed because pod j-worker-0 failed for good."
    assert failed.message == f"{told} Pod j-worker-0 exited with code 1."


def test_never_fails_the_job_at_the_first_exit_below_the_minimum() -> None:
    made = job(1, worker={"restart_policy": RestartPolicy.NEVER})
    assert state(made, pod(0, "Failed", exit_code=143)) is State.FAILED


def test_a_failed_job_keeps_no_pod_running() -> None:
    pods = (pod(0, "Failed"), pod(1))
    ended = after(job(2, clean_pod_policy=CleanPodPolicy.NONE), *pods, at=NOW)
    assert deleted(decide(view(ended, pods), later(GRACE_SECONDS))) == ["worker-1"]


@pytest.mark.parametrize(
    ("policy", "at_once", "gone"),
    [
        (CleanPodPolicy.NONE, ["worker-3"], ["worker-3"]),
        (CleanPodPolicy.RUNNING, ["worker-3"], ["worker-1", "worker-3"]),
        (
            CleanPodPolicy.ALL,
            ["worker-0", "worker-2", "worker-3"],
            ["worker-0", "worker-1", "worker-2", "worker-3"],
        ),
    ],
)
def test_a_succeeded_job_is_cleaned_by_its_policy(policy: CleanPodPolicy, at_once: list[str], gone: list[str]) -> None:
    pods = (DONE[0], pod(1), pod(2, "Failed"), pod(3, "Pending"))
    made = job(4, low=1, clean_pod_policy=policy)
    decision = decide(view(made, pods), NOW)
    assert holds(decision.status, "Succeeded")
    assert sorted(deleted(decision)) == at_once
    ended = replace(made, status=decision.status)
    assert sorted(deleted(decide(view(ended, pods), later(GRACE_SECONDS)))) == gone


@pytest.mark.parametrize("first", [DONE[0], pod(0, "Failed")], ids=["succeeded", "failed"])
def test_a_pod_that_runs_when_the_job_ends_has_time_to_end_by_itself(first: PodView) -> None:
    made = job(2, clean_pod_policy=CleanPodPolicy.RUNNING)
    decision = decide(view(made, (first, pod(1))), NOW)
    assert (deleted(decision), decision.again) == ([], later(GRACE_SECONDS))
    ended = replace(made, status=decision.status)
    waits = decide(view(ended, (first, pod(1))), later(GRACE_SECONDS - 1))
    assert (waits.actions, waits.again) == ((), later(GRACE_SECONDS))
    by_itself = decide(view(ended, (first, DONE[1])), later(1))
    assert (by_itself.actions, by_itself.again) == ((), None), "its log stays, and nothing is left to do"
    (action,) = decide(view(ended, (first, pod(1))), later(GRACE_SECONDS)).actions
    assert isinstance(action, DeletePod)
    assert action.reason.endswith(f", and it still ran {GRACE_SECONDS} s later")


def test_the_end_of_a_job_does_not_depend_on_how_the_pods_end_that_run_then() -> None:
    ended = after(job(2, clean_pod_policy=CleanPodPolicy.RUNNING), DONE[0], pod(1), at=NOW)
    status = decide(view(ended, (DONE[0], pod(1, "Failed"))), later(9)).status
    assert (status.state, status.completion_time, status.settled_replicas) == (State.SUCCEEDED, NOW, 2)


def test_what_was_not_cleaned_when_the_job_ended_is_cleaned_later() -> None:
    ended = after(job(2, clean_pod_policy=CleanPodPolicy.ALL), DONE[0], pod(1))
    decision = decide(view(ended, (DONE[0], pod(1))), NOW)
    assert sorted(deleted(decision)) == ["worker-0", "worker-1"]
    assert decide(view(ended), NOW).actions == ()


def test_a_finished_job_is_not_resized_nor_restarted() -> None:
    ended = after(job(2), DONE[0], DONE[1])
    worker = replace(ended.spec.worker, replicas=4)
    edited = replace(ended, generation=2, spec=replace(ended.spec, replica_specs={"Worker": worker}))
    decision = decide(view(edited, (DONE[0], pod(1, "Failed", exit_code=143))), NOW)
    assert decision.actions == ()
    assert (decision.status.observed_generation, decision.status.settled_replicas) == (2, 4)


def test_a_finished_job_keeps_the_numbers_of_its_ended_pods() -> None:
    ended = after(job(2, low=1, clean_pod_policy=CleanPodPolicy.ALL), DONE[0], pod(1, "Failed"))
    status = decide(view(ended), NOW).status
    assert (status.replica_statuses["Worker"].succeeded, status.replica_statuses["Worker"].failed) == (1, 1)


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    ended = after(job(1, ttl_seconds_after_finished=100), DONE[0], at=ago(99))
    waits = decide(view(ended, [DONE[0]]), NOW)
    assert (waits.actions, waits.again) == ((), later(1))
    assert decide(view(ended, [DONE[0]]), later(1)).actions == (DeleteJob(),)


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    gone = replace(job(2), deleting=True)
    assert decide(view(gone), NOW).actions == ()


def test_a_suspended_job_has_no_pods_and_no_clock() -> None:
    ran = after(job(2, active_deadline_seconds=10), *running(0, 1), at=ago(9))
    suspended = replace(ran, spec=replace(ran.spec, suspend=True))
    decision = decide(view(suspended, running(0, 1)), later(100))
    assert sorted(deleted(decision)) == ["worker-0", "worker-1"]
    assert (decision.status.state, decision.status.start_time) == (State.SUSPENDED, None)
    assert holds(decision.status, "Suspended")
    assert events(decision) == ["ElasticJobSuspended"]


def test_a_resumed_job_starts_again() -> None:
    suspended = after(job(2, suspend=True))
    resumed = replace(suspended, spec=replace(suspended.spec, suspend=False))
    decision = decide(view(resumed), NOW)
    assert (created(decision), decision.status.start_time) == ([0, 1], NOW)
    assert not holds(decision.status, "Suspended")
    assert events(decision) == ["ElasticJobResumed"]


def test_a_job_that_ended_while_its_status_was_lost_is_recognised() -> None:
    assert state(replace(job(1), status=Status()), DONE[0]) is State.SUCCEEDED
