"""With `restartScope: Job` all pods are made anew because of one of them: once, and only then."""

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
    job,
    later,
    nodes,
    pod,
    running,
    view,
)
from tidewater.controller.decide.actions import CreatePod, Decision, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, PodView
from tidewater.elasticjob.choices import PodNames, RestartScope, State, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec
from tidewater.elasticjob.status import Status

MASTER = {"Master": ReplicaSpec(replicas=1, template={}, pod_names=PodNames.SINGLE)}
DONE_MASTER = pod(0, "Succeeded", type="Master", name="j-master")
ALL = ["worker-0", "worker-1", "worker-2"]


def whole(replicas: int = 3, **spec: object) -> ElasticJob:
    """Return a job that restarts as a whole."""
    return job(replicas, spec.pop("low", 1), spec.pop("high", 4), restart_scope=RestartScope.JOB, **spec)  # type: ignore[arg-type]


def failed(index: int, **changed: object) -> PodView:
    return pod(index, "Failed", exit_code=130, **changed)


def began(decision: Decision, of: ElasticJob) -> bool:
    return decision.status.job_restarts != of.status.job_restarts


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(failed(1), id="retried"),
        pytest.param(pod(1, "Failed", exit_code=143), id="told-to-leave"),
        pytest.param(pod(1, "Failed", exit_code=None, disrupted=True), id="evicted"),
        pytest.param(pod(1, terminating=True, disrupted=True), id="preempted"),
        pytest.param(pod(1, terminating=True), id="deleted-by-somebody"),
    ],
)
def test_all_pods_leave_because_of_one(lost: PodView) -> None:
    settled = after(whole(), *running(0, 1, 2))
    decision = decide(view(settled, (pod(0), lost, pod(2))), NOW)
    assert sorted(deleted(decision)) == [each for each in ALL if not (lost.terminating and each == "worker-1")]
    assert (created(decision), decision.status.job_restarts) == ([], 1)
    assert status_comes_first(settled.status, decision.status)


def test_all_pods_leave_because_of_a_node_that_ends() -> None:
    settled = after(whole(), *running(0, 1, 2))
    ends = nodes(ends=["node-1"], sound=["node-0", "node-2"])
    assert sorted(deleted(decide(view(settled, running(0, 1, 2), nodes=ends), NOW))) == ALL


def test_a_cordoned_node_keeps_its_pods() -> None:
    settled = after(whole(), *running(0, 1, 2))
    known = nodes(cordoned=["node-1"], sound=["node-0", "node-2"])
    assert changes(decide(view(settled, running(0, 1, 2), nodes=known), NOW)) == []


def test_with_scope_pod_the_others_stay() -> None:
    settled = after(job(3, low=1), *running(0, 1, 2))
    decision = decide(view(settled, (pod(0), pod(1, terminating=True), pod(2))), NOW)
    assert (changes(decision), decision.status.job_restarts) == ([], None)


def test_the_pods_are_made_anew_when_none_is_left_and_the_back_off_is_over() -> None:
    first = decide(view(after(whole(), *running(0, 1, 2)), (pod(0), failed(1), pod(2))), NOW)
    restarts = replace(whole(), status=first.status)
    ending = tuple(pod(index, terminating=True) for index in (0, 2))
    assert (changes(decide(view(restarts, ending), NOW)), first.status.restart_time) == ([], later(9))
    waits = decide(view(restarts), NOW)
    assert (changes(waits), waits.again) == ([], later(9))
    told = condition(waits.status, "Restarting")
    assert told.message == "ElasticJob j is restarting: all pods are made anew at 12:00:09 UTC."
    made = decide(view(restarts), later(9))
    assert changes(made) == [CreatePod("Worker", index, index == 0, job_restarts=1) for index in range(3)]
    assert made.status.restart_time is None


def test_a_disrupted_job_starts_again_without_a_back_off() -> None:
    first = decide(view(after(whole(), *running(0, 1)), (pod(0), pod(1, terminating=True))), NOW)
    assert first.status.restart_time is None
    assert created(decide(view(replace(whole(), status=first.status)), NOW)) == [0, 1, 2]


def test_pods_that_fail_together_count_once_and_their_back_off_is_the_shortest() -> None:
    settled = after(whole(), *running(0, 1, 2))
    decision = decide(view(settled, (failed(0), failed(1), failed(2))), NOW)
    assert (decision.status.restarts, decision.status.restart_time) == (1, later(9))
    assert events(decision).count("ExitedWithCode") == 3


def test_the_back_off_grows_with_each_restart() -> None:
    settled = after(whole(), *running(0, 1, 2))
    before = replace(settled, status=replace(settled.status, restarts=2))
    decision = decide(view(before, (failed(0), pod(1), pod(2))), NOW)
    assert (decision.status.restarts, decision.status.restart_time) == (3, later(39))
    long = failed(0, started=ago(900))
    assert decide(view(before, (long, pod(1), pod(2))), NOW).status.restart_time == later(9)


def test_what_pods_do_after_the_restart_began_neither_counts_nor_begins_another_one() -> None:
    first = decide(view(after(whole(), *running(0, 1, 2)), (pod(0), failed(1), pod(2))), NOW)
    restarts = replace(whole(), status=first.status)
    decision = decide(view(restarts, (failed(0), failed(1), pod(2, "Failed"), pod(3, terminating=True))), NOW)
    assert sorted(deleted(decision)) == ALL
    assert (decision.status.restarts, decision.status.job_restarts) == (1, 1)
    assert decision.status.state is State.RESTARTING


def test_a_pod_of_the_new_run_that_fails_begins_the_next_restart() -> None:
    first = decide(view(after(whole(2), *running(0, 1)), (pod(0), failed(1))), NOW)
    anew = replace(whole(2), status=first.status)
    pods = (pod(0, job_restarts=1), failed(1, job_restarts=1, uid="another", finished=later(99)))
    decision = decide(view(anew, pods), later(100))
    assert (decision.status.restarts, decision.status.job_restarts) == (2, 2)


def test_pods_that_have_finished_are_made_anew_too() -> None:
    made = whole(2, others=MASTER, success_policy=SuccessPolicy.ALL_PODS)
    settled = after(made, *running(0, 1), DONE_MASTER)
    decision = decide(view(settled, (pod(0), failed(1), DONE_MASTER)), NOW)
    assert sorted(deleted(decision)) == ["master", "worker-0", "worker-1"]


def test_a_job_at_its_back_off_limit_fails_and_does_not_restart() -> None:
    settled = after(whole(backoff_limit=1), *running(0, 1, 2))
    decision = decide(view(settled, (pod(0), failed(1), pod(2))), NOW)
    assert (decision.status.state, decision.status.job_restarts) == (State.FAILED, None)


def test_a_permanent_failure_below_the_minimum_fails_the_job() -> None:
    settled = after(whole(2, low=2), *running(0, 1))
    assert decide(view(settled, (pod(0, "Failed"), failed(1))), NOW).status.state is State.FAILED


def test_a_pod_that_leaves_by_shrinking_begins_no_restart() -> None:
    settled = after(whole(2), *running(0, 1, 2))
    first = decide(view(settled, running(0, 1, 2)), NOW)
    assert (deleted(first), began(first, settled)) == (["worker-2"], False)
    ending = (*running(0, 1), pod(2, terminating=True))
    assert changes(decide(view(replace(settled, status=first.status), ending), NOW)) == []
    assert not began(decide(view(settled, (pod(0), pod(1), failed(2))), NOW), settled)


def test_a_growing_job_does_not_restart() -> None:
    settled = after(whole(2), *running(0, 1))
    larger = replace(settled, spec=whole(3).spec)
    decision = decide(view(larger, running(0, 1)), NOW)
    assert (created(decision), began(decision, settled)) == ([2], False)


@pytest.mark.parametrize("naming", [PodNames.INDEXED, PodNames.SUCCESSIVE])
def test_a_job_that_is_resumed_while_its_pods_still_end_waits_for_them_and_then_starts_once(naming: PodNames) -> None:
    made = whole(2, worker={"pod_names": naming})
    settled = after(made, *running(0, 1))
    suspended = decide(view(replace(settled, spec=replace(made.spec, suspend=True)), running(0, 1)), NOW)
    ending = tuple(pod(index, terminating=True) for index in (0, 1))
    resumed = replace(made, status=suspended.status)
    waits = decide(view(resumed, ending), NOW)
    assert (changes(waits), began(waits, resumed)) == ([], False)
    assert len(created(decide(view(replace(made, status=waits.status)), NOW))) == 2


def test_a_job_that_gives_its_pods_back_to_the_queue_does_not_restart_for_them_later() -> None:
    queued = whole(2, low=2, policy={"queue": "q"})
    turn = decide(view(queued, admission=Admission.HEAD), NOW)
    waiting = tuple(pod(index, "Pending") for index in created(turn))
    had = replace(queued, status=turn.status)
    gives = decide(view(had, (*waiting[:1], pod(1)), admission=Admission.YIELD), later(400))
    assert sorted(deleted(gives)) == ["worker-0", "worker-1"]
    again = replace(queued, status=gives.status)
    decision = decide(view(again, [pod(1, terminating=True)], admission=Admission.HEAD), later(401))
    assert (created(decision), began(decision, again)) == ([], False)


def test_a_lost_core_worker_is_not_replaced_alone_because_a_surge_worker_gives_its_turn_to_another_job() -> None:
    queued = replace(whole(2, policy={"queue": "q"}), status=Status(whole_since=ago(60), state=State.RUNNING))
    evicted, waiting = pod(0, "Failed", exit_code=None, disrupted=True), pod(1, "Pending", unschedulable_since=ago(5))
    decision = decide(view(queued, [evicted, waiting], admission=Admission.HOLD), NOW)
    assert (created(decision), sorted(deleted(decision))) == ([], ["worker-0", "worker-1"])
    assert began(decision, queued)


def test_a_changed_template_is_no_restart() -> None:
    settled = after(whole(1), pod(0, template_hash="old"))
    decision = decide(view(settled, [failed(0, template_hash="old")], template_hashes={"Worker": "new"}), NOW)
    assert (deleted(decision), began(decision, settled)) == (["worker-0"], False)


def test_a_status_that_is_lost_does_not_make_pods_of_different_runs_work_together() -> None:
    decision = decide(view(whole(3), (pod(0, job_restarts=2), pod(1), pod(2, job_restarts=2))), NOW)
    assert (sorted(deleted(decision)), decision.status.job_restarts) == (ALL, 2)
