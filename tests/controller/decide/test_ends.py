"""Ends of pods outlive the pods: they are kept per index in the job's status.

With podNames Successive a pod that failed stays for its log after it was replaced, and counts as nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    job,
    pod,
    running,
    view,
)
from tidewater.controller.decide.actions import CreatePod, Decision, reserving, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, PodView
from tidewater.controller.decide.pods import MOST_REPLACED
from tidewater.elasticjob.choices import (
    CleanPodPolicy,
    Launcher,
    PodNames,
    RestartPolicy,
    RestartScope,
    State,
    SuccessPolicy,
)
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec

ALL_WORKERS = SuccessPolicy.ALL_WORKERS
SUCCESSIVE = {"pod_names": PodNames.SUCCESSIVE, "restart_policy": RestartPolicy.EXIT_CODE}


def ends(decision: Decision) -> tuple[str, str]:
    """Return the recorded indexes of the workers: those that completed and those that failed for good."""
    counts = decision.status.replica_statuses[WORKER]
    return counts.completed_indexes, counts.failed_indexes


def resized(of: ElasticJob, replicas: int) -> ElasticJob:
    return replace(of, spec=replace(of.spec, replica_specs={WORKER: ReplicaSpec(replicas=replicas, template={})}))


def suspended(of: ElasticJob, value: bool) -> ElasticJob:
    return replace(of, spec=replace(of.spec, suspend=value))


@pytest.mark.parametrize("naming", [PodNames.INDEXED, PodNames.SUCCESSIVE])
def test_a_worker_that_failed_for_good_is_not_made_again_when_its_pod_is_deleted(naming: PodNames) -> None:
    failed = after(job(2, low=1, worker={"pod_names": naming}), pod(0), pod(1, "Failed"))
    decision = decide(view(failed, running(0)), NOW)
    assert (changes(decision), ends(decision)) == ([], ("", "1"))
    counts = decision.status.replica_statuses[WORKER]
    assert (decision.status.state, counts.active, counts.failed) == (State.RUNNING, 1, 1)
    assert "1 of 2 workers run: 1 failed for good" in condition(decision.status, "Running").message


def test_a_completed_worker_is_not_run_again_when_its_pod_is_deleted() -> None:
    done = after(job(3, success_policy=ALL_WORKERS), pod(0, "Succeeded"), pod(1, "Succeeded"), pod(2))
    decision = decide(view(done, running(2)), NOW)
    assert (changes(decision), ends(decision), decision.status.state) == ([], ("0,1", ""), State.RUNNING)
    last = decide(view(done, [pod(2, "Succeeded")]), NOW)
    assert (last.status.state, ends(last)) == (State.SUCCEEDED, ("0-2", ""))
    assert last.status.replica_statuses[WORKER].succeeded == 3


def test_a_job_fails_when_too_few_are_left_although_some_of_the_pods_are_gone() -> None:
    failed = after(job(3, low=2), *running(0, 1), pod(2, "Failed"))
    decision = decide(view(failed, [pod(0), pod(1, "Failed")]), NOW)
    assert decision.status.state is State.FAILED
    assert ends(decision) == ("", "1,2")


def test_an_end_is_written_before_its_pod_may_go() -> None:
    ran = after(job(3, low=1, success_policy=ALL_WORKERS), *running(0, 1, 2))
    for end in (pod(1, "Failed"), pod(1, "Succeeded")):
        decision = decide(view(ran, [pod(0), end, pod(2, "Failed", disrupted=True)]), NOW)
        assert deleted(decision) == ["worker-2"]
        assert status_comes_first(ran.status, decision.status)


def test_a_worker_that_leaves_by_shrinking_is_forgotten() -> None:
    failed = after(job(2, low=1), pod(0), pod(1, "Failed"))
    shrunk = after(resized(failed, 1), *running(0))
    assert shrunk.status.replica_statuses[WORKER].failed_indexes == ""
    assert created(decide(view(resized(shrunk, 2), running(0)), NOW)) == [1]


def test_a_failed_worker_whose_pod_is_gone_leaves_first() -> None:
    failed = after(job(3, low=1), pod(0, "Failed"), *running(1, 2))
    decision = decide(view(resized(failed, 2), running(1, 2)), NOW)
    assert (changes(decision), ends(decision), decision.status.desired) == ([], ("", ""), 2)


@pytest.mark.parametrize("policy", [ALL_WORKERS, SuccessPolicy.ALL_PODS])
def test_after_a_suspension_a_completed_worker_is_not_run_again_and_a_failed_one_is(policy: SuccessPolicy) -> None:
    pods = (pod(0, "Succeeded"), pod(1, "Failed"), pod(2))
    ran = after(job(3, low=1, success_policy=policy, launcher=Launcher.NONE), *pods)
    stops = decide(view(suspended(ran, True), pods), NOW)
    assert (sorted(deleted(stops)), ends(stops)) == (["worker-0", "worker-1", "worker-2"], ("0", ""))
    rests = after(suspended(replace(ran, status=stops.status), True))
    assert (rests.status.state, ends(decide(view(rests), NOW))) == (State.SUSPENDED, ("0", ""))
    assert created(decide(view(suspended(rests, False)), NOW)) == [1, 2]


@pytest.mark.parametrize(
    ("launcher", "policy"),
    [
        (Launcher.TORCHRUN, ALL_WORKERS),
        (Launcher.TIDEWATER, SuccessPolicy.ALL_PODS),
        (Launcher.NONE, SuccessPolicy.RANK0),
    ],
)
def test_after_a_suspension_workers_that_need_each_other_all_run_again(
    launcher: Launcher, policy: SuccessPolicy
) -> None:
    """Those that are resumed would wait for the others for ever."""
    pods = (pod(0), pod(1, "Succeeded"), pod(2))
    ran = after(job(3, low=1, success_policy=policy, launcher=launcher), *pods)
    rests = after(suspended(ran, True), *pods)
    assert created(decide(view(suspended(rests, False)), NOW)) == [0, 1, 2]


def test_ends_of_another_template_are_forgotten_also_if_no_pod_is_left() -> None:
    of = job(3, low=1, success_policy=ALL_WORKERS, launcher=Launcher.NONE)
    old, new = {WORKER: "old"}, {WORKER: "new"}
    pods = (pod(0, "Succeeded"), pod(1, "Failed"), pod(2))
    ran = after(of, *pods, template_hashes=old)
    rests = after(suspended(ran, True), *pods, template_hashes=old)
    assert created(decide(view(suspended(rests, False), template_hashes=old), NOW)) == [1, 2]
    assert created(decide(view(suspended(rests, False), template_hashes=new), NOW)) == [0, 1, 2]
    waits = decide(view(ran, template_hashes=new, admission=Admission.WAIT), NOW)
    assert ends(waits) == ("", "")
    assert ends(decide(view(after(of, *pods), running(2), template_hashes=new), NOW)) == ("0", "1"), "of an old status"


def test_a_new_template_makes_all_pods_anew() -> None:
    ran = after(job(3, low=1, success_policy=ALL_WORKERS), pod(0, "Succeeded"), pod(1, "Failed"), pod(2))
    hashes = {"Worker": "new"}
    rolls = decide(view(ran, [pod(2, template_hash="old")], template_hashes=hashes), NOW)
    assert (deleted(rolls), ends(rolls)) == (["worker-2"], ("", ""))
    assert status_comes_first(ran.status, rolls.status)
    assert created(decide(view(replace(ran, status=rolls.status), template_hashes=hashes), NOW)) == [0, 1, 2]


def test_a_restart_of_the_whole_job_makes_all_pods_anew() -> None:
    ran = job(3, low=1, success_policy=ALL_WORKERS, restart_scope=RestartScope.JOB)
    ran = after(ran, pod(0, "Succeeded"), pod(1), pod(2))
    begins = decide(view(ran, [pod(1), pod(2, "Failed", disrupted=True)]), NOW)
    assert ends(begins) == ("", "")
    restarted = replace(ran, status=begins.status)
    assert created(decide(view(restarted), NOW)) == [0, 1, 2]


def test_a_finished_job_keeps_the_ends_of_the_pods_that_it_loses() -> None:
    finished = job(2, success_policy=ALL_WORKERS, clean_pod_policy=CleanPodPolicy.ALL)
    finished = after(finished, pod(0, "Succeeded"), pod(1, "Succeeded"))
    decision = decide(view(finished), NOW)
    assert (ends(decision), decision.status.replica_statuses[WORKER].succeeded) == (("0,1", ""), 2)


def test_a_failure_is_reported_once_although_its_pod_is_gone() -> None:
    failed = after(job(2, low=1), pod(0), pod(1, "Failed"))
    assert decide(view(failed, running(0)), NOW).actions == ()


def evicted(index: int, **values: Any) -> PodView:
    """Return a worker that was disrupted a while ago, as by a node without memory, and is to be replaced."""
    return pod(index, "Failed", **{"exit_code": 1, "disrupted": True, "core": True, "finished": ago(60), **values})


def elastic(replicas: int = 2, **spec: Any) -> ElasticJob:
    return job(replicas, low=1, worker=SUCCESSIVE, **spec)


def after_replacing(of: ElasticJob, *pods: PodView) -> ElasticJob:
    """Return the job after its failed pods were replaced."""
    return after(of, *pods, at=NOW)


def record(of: ElasticJob) -> str:
    return of.status.replica_statuses[WORKER].replaced_indexes


def test_a_failed_worker_stays_after_its_successor_is_made() -> None:
    decision = decide(view(elastic(), (pod(0, core=True), evicted(1))), NOW)
    assert (deleted(decision), created(decision)) == ([], [2])
    counts = decision.status.replica_statuses[WORKER]
    assert (counts.replaced_indexes, counts.failed, counts.active, counts.pending) == ("1", 0, 1, 1)


@pytest.mark.parametrize("changed", [{}, {"template_hash": "old"}, {"job_restarts": -1}, {"terminating": True}])
def test_it_is_replaced_once_and_counts_once_whatever_it_was_made_from(changed: dict[str, Any]) -> None:
    retried = evicted(1, disrupted=False, exit_code=130, **changed)
    first = evicted(1, disrupted=False, exit_code=130)
    once = after_replacing(elastic(), pod(0, core=True), first)
    assert (record(once), once.status.restarts) == ("1", 1)
    now = decide(view(once, (pod(0, core=True), retried, pod(2)), template_hashes={WORKER: "new"}), NOW)
    assert (changes(now), now.status.restarts, now.status.state) == ([], 1, State.RUNNING)


def test_a_controller_that_is_killed_after_the_creation_does_not_replace_it_again() -> None:
    made = after(elastic(), pod(0, core=True), pod(1))
    decision = decide(view(made, (pod(0, core=True), evicted(1))), NOW)
    assert [each for each in changes(decision) if isinstance(each, CreatePod)]
    killed = replace(made, status=reserving(made.status, decision))
    assert changes(decide(view(killed, (pod(0, core=True), evicted(1), pod(2))), NOW)) == []
    assert created(decide(view(killed, (pod(0, core=True), evicted(1))), NOW)) == [3]  # it may have been made, and lost


def test_only_the_last_ones_stay() -> None:
    former = [evicted(index) for index in range(1, MOST_REPLACED + 1)]
    of = after_replacing(elastic(MOST_REPLACED + 1), pod(0, core=True), *former)
    assert record(of) == f"1-{MOST_REPLACED}"
    rest = [pod(0, core=True), *running(*range(MOST_REPLACED + 2, 2 * MOST_REPLACED + 1))]
    last = evicted(MOST_REPLACED + 1)
    decision = decide(view(of, (*former, last, *rest)), NOW)
    assert (deleted(decision), created(decision)) == (["worker-1"], [2 * MOST_REPLACED + 1])
    left = replace(of, status=decision.status)
    assert changes(decide(view(left, (*former[1:], last, *rest, pod(2 * MOST_REPLACED + 1))), NOW)) == []


@pytest.mark.parametrize(
    ("policy", "gone"), [(CleanPodPolicy.NONE, []), (CleanPodPolicy.RUNNING, []), (CleanPodPolicy.ALL, ["worker-1"])]
)
def test_after_the_job_it_stays_or_goes_with_the_other_pods_that_have_ended(
    policy: CleanPodPolicy, gone: list[str]
) -> None:
    of = after_replacing(elastic(clean_pod_policy=policy), pod(0, core=True), evicted(1))
    ended = decide(view(of, (pod(0, "Succeeded", core=True), evicted(1), pod(2, "Succeeded"))), NOW)
    assert ended.status.state is State.SUCCEEDED
    assert [name for name in deleted(ended) if name == "worker-1"] == gone
    later = replace(of, status=ended.status)
    assert deleted(decide(view(later, [evicted(1)]), NOW)) == gone


def test_a_pod_whose_name_is_needed_or_whose_sidecar_runs_is_deleted() -> None:
    indexed = decide(view(job(2, low=1), (pod(0), evicted(1))), NOW)
    assert (deleted(indexed), created(indexed)) == (["worker-1"], [1])
    sidecar = decide(view(elastic(), (*running(0), evicted(1, lingers=True))), NOW)
    assert (deleted(sidecar), sidecar.status.replica_statuses[WORKER].replaced_indexes) == (["worker-1"], "")
