"""What the end of a pod means for the job.

Of exits after a signal without a disruption a few are free. Then they count, and each waits longer.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.controller.decide.world import (
    LONG_AGO,
    NOW,
    after,
    ago,
    changes,
    condition,
    created,
    deleted,
    events,
    job,
    later,
    pod,
    running,
    view,
)
from tidewater.controller.decide.actions import Emit, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.exits import FREE_SIGNALS, MOST_OUT_OF_MEMORY, Verdict, due, verdict
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob.choices import PodNames, RestartPolicy, State
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec
from tidewater.elasticjob.names import ConditionType

POLICIES = list(RestartPolicy)


def replica(policy: RestartPolicy = RestartPolicy.EXIT_CODE, *codes: int) -> ReplicaSpec:
    return ReplicaSpec(restart_policy=policy, retryable_exit_codes=codes, template={})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (1, Verdict.PERMANENT),
        (2, Verdict.PERMANENT),
        (42, Verdict.RETRY),
        (130, Verdict.RETRY),
        (137, Verdict.REPLACE),
        (138, Verdict.RETRY),
        (139, Verdict.PERMANENT),
        (143, Verdict.REPLACE),
        (200, Verdict.RETRY),
        (201, Verdict.RETRY),
        (None, Verdict.REPLACE),
    ],
)
def test_exit_code_decides_by_the_code(code: int | None, expected: Verdict) -> None:
    assert verdict(pod(0, "Failed", exit_code=code), replica(RestartPolicy.EXIT_CODE, 42)) is expected


@pytest.mark.parametrize("policy", POLICIES)
def test_a_disrupted_pod_is_replaced_under_any_policy(policy: RestartPolicy) -> None:
    assert verdict(pod(0, "Failed", exit_code=1, disrupted=True), replica(policy)) is Verdict.REPLACE


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_without_container_status_is_replaced_under_any_policy(policy: RestartPolicy) -> None:
    expected = Verdict.REPLACE
    assert verdict(pod(0, "Failed", exit_code=None), replica(policy)) is expected


def test_137_counts_if_memory_was_exhausted() -> None:
    assert verdict(pod(0, "Failed", exit_code=137, oom_killed=True), replica()) is Verdict.RETRY


@pytest.mark.parametrize("code", [1, 130, 137, 143])
def test_never_means_that_a_failed_pod_is_not_replaced(code: int) -> None:
    assert verdict(pod(0, "Failed", exit_code=code), replica(RestartPolicy.NEVER)) is Verdict.PERMANENT


def test_a_pod_whose_training_finished_is_done_although_a_sidecar_failed() -> None:
    assert verdict(pod(0, "Failed", exit_code=0), replica()) is Verdict.DONE


def test_a_counted_failure_is_replaced_after_the_back_off() -> None:
    failed = pod(1, "Failed", exit_code=130, finished=NOW)
    waits = decide(view(job(2, low=1), (pod(0), failed)), NOW)
    assert changes(waits) == []
    assert (waits.again, waits.status.restarts, waits.status.counted) == (later(10), 1, {"j-worker-1-uid": 1})
    counted = after(job(2, low=1), pod(0), failed, at=NOW)
    replaced = decide(view(counted, (pod(0), failed)), later(10))
    assert (deleted(replaced), created(replaced), replaced.status.restarts) == (["worker-1"], [1], 1)


def test_a_pod_whose_sidecar_still_runs_holds_its_index_until_it_is_gone() -> None:
    failed = pod(1, "Failed", exit_code=143, lingers=True)
    first = decide(view(job(2, low=1), (pod(0), failed)), NOW)
    assert (deleted(first), created(first)) == (["worker-1"], [])
    ending = decide(view(job(2, low=1), (pod(0), replace(failed, terminating=True))), NOW)
    assert changes(ending) == []
    assert created(decide(view(job(2, low=1), running(0)), NOW)) == [1]


def test_a_failure_is_reported_once() -> None:
    failed = pod(1, "Failed", exit_code=130, finished=NOW)
    ran = after(job(2, low=1), pod(0), pod(1))
    assert events(decide(view(ran, (pod(0), failed)), NOW)) == ["ExitedWithCode"]
    counted = after(job(2, low=1), pod(0), failed, at=NOW)
    assert events(decide(view(counted, (pod(0), failed)), later(5))) == []


def test_a_permanent_failure_is_reported_once_and_does_not_count_against_the_limit() -> None:
    failed = pod(1, "Failed", exit_code=1)
    first = decide(view(after(job(2, low=1), pod(0), pod(1)), (pod(0), failed)), NOW)
    assert (events(first), first.status.restarts, changes(first)) == (["ExitedWithCode"], 0, [])
    known = after(job(2, low=1), pod(0), failed)
    assert events(decide(view(known, (pod(0), failed)), NOW)) == []


def test_the_kubelets_restarts_are_counted_as_they_grow() -> None:
    twice = after(job(2, worker={"restart_policy": RestartPolicy.ON_FAILURE}), pod(0), pod(1, restarts=2))
    assert twice.status.restarts == 2
    assert decide(view(twice, (pod(0), pod(1, restarts=3))), NOW).status.restarts == 3


def test_a_restart_after_exit_code_0_is_no_failure() -> None:
    """With restartPolicy Always the kubelet restarts a container also after that."""
    of = job(2, worker={"restart_policy": RestartPolicy.ALWAYS}, backoff_limit=1)
    done = decide(view(after(of, *running(0, 1)), (pod(0), pod(1, restarts=1, restarted_after=0))), NOW)
    assert (done.status.restarts, events(done), done.status.state) == (0, [], State.RUNNING)
    seen = replace(of, status=done.status)
    failed = decide(view(seen, (pod(0), pod(1, restarts=2, restarted_after=1))), NOW)
    assert (failed.status.restarts, failed.status.state) == (1, State.FAILED)


def test_what_a_pod_does_while_it_is_deleted_is_not_counted() -> None:
    ending = pod(1, "Failed", exit_code=130, terminating=True)
    assert decide(view(job(2, low=1), (pod(0), ending)), NOW).status.restarts == 0


def test_why_a_pod_failed_outlives_the_pod() -> None:
    failed = pod(1, "Failed", exit_code=130, last_words="Traceback\nKeyError: 'lr'", finished=NOW)
    decision = decide(view(after(job(2, low=1), *running(0, 1)), (pod(0), failed)), NOW)
    told = "Pod j-worker-1 exited with code 130: KeyError: 'lr'"
    assert decision.status.last_failure == "Pod j-worker-1 exited with code 130: Traceback\nKeyError: 'lr'"
    assert condition(decision.status, ConditionType.RUNNING).message.endswith(f"failed and will be replaced. {told}")
    assert any(isinstance(each, Emit) and "KeyError: 'lr'" in each.message for each in decision.actions)
    replaced = decide(view(replace(job(2, low=1), status=decision.status), running(0, 1)), later(60))
    assert replaced.status.last_failure == decision.status.last_failure
    assert "KeyError" not in str(replaced.status.conditions)


def test_a_failed_job_says_how_its_last_pod_failed() -> None:
    failed = pod(0, "Failed", exit_code=1, last_words="no such file: /data/train")
    status = decide(view(job(1), [failed]), NOW).status
    assert "because pod j-worker-0 failed for good." in condition(status, ConditionType.FAILED).message
    assert condition(status, ConditionType.FAILED).message.endswith("exited with code 1: no such file: /data/train")


def test_the_pod_without_which_a_job_fails_says_why_also_if_another_one_failed_before() -> None:
    worker = pod(0, "Failed", exit_code=130, last_words="interrupted", finished=ago(3))
    words = "Traceback\ntask 7 failed 4 times"
    master = pod(0, "Failed", type="Master", exit_code=1, last_words=words, finished=ago(1))
    of = job(1, others={"Master": ReplicaSpec(replicas=1, template={})})
    message = condition(decide(view(of, (worker, master)), NOW).status, ConditionType.FAILED).message
    assert message.endswith("failed for good. Pod j-master-0 exited with code 1: task 7 failed 4 times")


def test_a_count_outlives_the_pod() -> None:
    counted = after(job(2, low=1), pod(0), pod(1, "Failed", exit_code=130))
    status = decide(view(counted, running(0)), NOW).status
    assert (status.restarts, status.counted) == (1, {})


@pytest.mark.parametrize(("earlier", "seconds"), [(0, 10), (1, 20), (2, 40), (4, 160), (5, 300), (50, 300)])
def test_the_back_off_doubles_up_to_five_minutes(earlier: int, seconds: int) -> None:
    failed = pod(0, "Failed", started=ago(60), finished=NOW)
    assert due(failed, Verdict.RETRY, earlier, None) == later(seconds)


def test_the_back_off_starts_again_after_a_long_run() -> None:
    failed = pod(0, "Failed", started=ago(600), finished=NOW)
    assert due(failed, Verdict.RETRY, 7, None) == later(10)


def test_workers_that_fail_together_wait_as_after_one_failure() -> None:
    failed = [pod(index, "Failed", exit_code=130, finished=NOW, started=ago(60)) for index in range(4)]
    decision = decide(view(job(4, low=1), failed), NOW)
    assert (decision.status.restarts, decision.again) == (4, later(10))


def test_a_pod_that_is_refused_by_its_node_at_once_is_not_replaced_in_a_tight_loop() -> None:
    refused = pod(1, "Failed", exit_code=None, disrupted=True, created=ago(1))
    assert due(refused, Verdict.REPLACE, 0, None) == later(4)
    assert due(pod(1, "Failed", created=LONG_AGO), Verdict.REPLACE, 0, None) < NOW - timedelta(seconds=1)


def test_the_job_fails_at_the_back_off_limit() -> None:
    failed = [pod(index, "Failed", exit_code=130) for index in (0, 1)]
    decision = decide(view(job(3, low=1, backoff_limit=2), (*failed, pod(2))), NOW)
    assert decision.status.state is State.FAILED
    assert "BackoffLimitExceeded" in events(decision)
    assert decide(view(job(3, low=1, backoff_limit=3), (*failed, pod(2))), NOW).status.state is State.RUNNING


def exhausted(index: int = 1, ran: float = 60, **changes: Any) -> PodView:
    """Return a pod that has just used more memory than its limit, after it ran for so many seconds."""
    values = {"exit_code": 137, "oom_killed": True, "started": ago(ran), "finished": NOW, **changes}
    return pod(index, "Failed", **values)


def after_exhausting(of: ElasticJob, times: int, **changes: Any) -> ElasticJob:
    """Return the job after its worker 1 has exhausted its memory so many times in a row, each time in a new pod."""
    for attempt in range(times):
        of = after(of, pod(0), exhausted(uid=f"attempt-{attempt}", **changes), at=NOW)
    return of


def test_a_job_fails_with_that_reason_when_a_worker_exhausts_its_memory_again_and_again() -> None:
    tried = after_exhausting(job(2, low=1), MOST_OUT_OF_MEMORY - 1)
    assert tried.status.state is State.RUNNING
    last = decide(view(tried, (pod(0), exhausted(uid="last"))), NOW)
    failed = condition(last.status, ConditionType.FAILED)
    assert (last.status.state, failed is not None and failed.status) == (State.FAILED, "True")
    assert failed is not None
    assert "pod j-worker-1 used more memory than its limit 5 times in a row" in failed.message
    assert "OutOfMemory" in events(last)


def test_each_attempt_with_too_little_memory_waits_longer() -> None:
    waits = []
    for times in range(MOST_OUT_OF_MEMORY - 1):
        tried = after_exhausting(job(2, low=1), times)
        again = decide(view(tried, (pod(0), exhausted(uid="next"))), NOW).again
        waits.append(again and (again - NOW).total_seconds())
    assert waits == [10, 20, 40, 80]


def test_workers_that_exhaust_their_memory_together_are_each_counted_by_themselves() -> None:
    every = [exhausted(index) for index in range(MOST_OUT_OF_MEMORY + 1)]
    assert decide(view(job(len(every), low=1), every), NOW).status.state is not State.FAILED


def test_a_long_run_begins_a_new_row_of_exhausted_memory() -> None:
    tried = after_exhausting(job(2, low=1), MOST_OUT_OF_MEMORY + 2, ran=600)
    assert (tried.status.state, tried.status.out_of_memory) == (State.RUNNING, {"j-worker-1": 1})
    assert tried.status.restarts == MOST_OUT_OF_MEMORY + 2


def test_another_failure_ends_the_row_of_exhausted_memory_and_a_lost_node_does_not() -> None:
    tried = after_exhausting(job(2, low=1), 3)
    lost = after(tried, pod(0), pod(1, "Failed", exit_code=137, uid="lost"), at=NOW)
    assert lost.status.out_of_memory == {"j-worker-1": 3}
    assert after(lost, pod(0), pod(1, "Failed", exit_code=130, uid="other"), at=NOW).status.out_of_memory == {}


@pytest.mark.parametrize("changed", ["template", "suspended"])
def test_a_new_template_or_a_suspension_begins_a_new_row_of_exhausted_memory(changed: str) -> None:
    tried = after_exhausting(job(2, low=1), 4)
    if changed == "suspended":
        tried = replace(tried, spec=replace(tried.spec, suspend=True))
    old = replace(pod(0), template_hash="old")
    hashes = {"Worker": "new" if changed == "template" else "old"}
    assert decide(view(tried, (old,), template_hashes=hashes), NOW).status.out_of_memory == {}


def test_a_limit_of_zero_allows_no_failure_and_a_start() -> None:
    assert decide(view(job(1, backoff_limit=0), running(0)), NOW).status.state is State.RUNNING
    failed = pod(0, "Failed", exit_code=130)
    assert decide(view(job(1, backoff_limit=0), [failed]), NOW).status.state is State.FAILED


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
