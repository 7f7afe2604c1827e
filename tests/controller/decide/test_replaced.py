"""With podNames Successive a pod that failed stays for its log after it was replaced, and counts as nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decide.world import NOW, WORKER, after, ago, changes, created, deleted, job, pod, running, view
from tidewater.controller.decide.actions import CreatePod, reserving
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import PodView
from tidewater.controller.decide.pods import MOST_REPLACED
from tidewater.elasticjob.choices import CleanPodPolicy, PodNames, RestartPolicy, State
from tidewater.elasticjob.model import ElasticJob

SUCCESSIVE = {"pod_names": PodNames.SUCCESSIVE, "restart_policy": RestartPolicy.EXIT_CODE}


def failed(index: int, **values: Any) -> PodView:
    """Return a worker that was disrupted a while ago, as by a node without memory, and is to be replaced."""
    return pod(index, "Failed", **{"exit_code": 1, "disrupted": True, "core": True, "finished": ago(60), **values})


def elastic(replicas: int = 2, **spec: Any) -> ElasticJob:
    return job(replicas, low=1, worker=SUCCESSIVE, **spec)


def replaced(of: ElasticJob, *pods: PodView) -> ElasticJob:
    """Return the job after its failed pods were replaced."""
    return after(of, *pods, at=NOW)


def record(of: ElasticJob) -> str:
    return of.status.replica_statuses[WORKER].replaced_indexes


def test_a_failed_worker_stays_after_its_successor_is_made() -> None:
    decision = decide(view(elastic(), (pod(0, core=True), failed(1))), NOW)
    assert (deleted(decision), created(decision)) == ([], [2])
    counts = decision.status.replica_statuses[WORKER]
    assert (counts.replaced_indexes, counts.failed, counts.active, counts.pending) == ("1", 0, 1, 1)


@pytest.mark.parametrize("changed", [{}, {"template_hash": "old"}, {"job_restarts": -1}, {"terminating": True}])
def test_it_is_replaced_once_and_counts_once_whatever_it_was_made_from(changed: dict[str, Any]) -> None:
    retried = failed(1, disrupted=False, exit_code=130, **changed)
    first = failed(1, disrupted=False, exit_code=130)
    once = replaced(elastic(), pod(0, core=True), first)
    assert (record(once), once.status.restarts) == ("1", 1)
    now = decide(view(once, (pod(0, core=True), retried, pod(2)), template_hashes={WORKER: "new"}), NOW)
    assert (changes(now), now.status.restarts, now.status.state) == ([], 1, State.RUNNING)


def test_a_controller_that_is_killed_after_the_creation_does_not_replace_it_again() -> None:
    made = after(elastic(), pod(0, core=True), pod(1))
    decision = decide(view(made, (pod(0, core=True), failed(1))), NOW)
    assert [each for each in changes(decision) if isinstance(each, CreatePod)]
    killed = replace(made, status=reserving(made.status, decision))
    assert changes(decide(view(killed, (pod(0, core=True), failed(1), pod(2))), NOW)) == []
    assert created(decide(view(killed, (pod(0, core=True), failed(1))), NOW)) == [3]  # it may have been made, and lost


def test_only_the_last_ones_stay() -> None:
    former = [failed(index) for index in range(1, MOST_REPLACED + 1)]
    of = replaced(elastic(MOST_REPLACED + 1), pod(0, core=True), *former)
    assert record(of) == f"1-{MOST_REPLACED}"
    rest = [pod(0, core=True), *running(*range(MOST_REPLACED + 2, 2 * MOST_REPLACED + 1))]
    last = failed(MOST_REPLACED + 1)
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
    of = replaced(elastic(clean_pod_policy=policy), pod(0, core=True), failed(1))
    ended = decide(view(of, (pod(0, "Succeeded", core=True), failed(1), pod(2, "Succeeded"))), NOW)
    assert ended.status.state is State.SUCCEEDED
    assert [name for name in deleted(ended) if name == "worker-1"] == gone
    later = replace(of, status=ended.status)
    assert deleted(decide(view(later, [failed(1)]), NOW)) == gone


def test_a_pod_whose_name_is_needed_or_whose_sidecar_runs_is_deleted() -> None:
    indexed = decide(view(job(2, low=1), (pod(0), failed(1))), NOW)
    assert (deleted(indexed), created(indexed)) == (["worker-1"], [1])
    sidecar = decide(view(elastic(), (*running(0), failed(1, lingers=True))), NOW)
    assert (deleted(sidecar), sidecar.status.replica_statuses[WORKER].replaced_indexes) == (["worker-1"], "")
