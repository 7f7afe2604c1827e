"""The order of the decision's parts, and what belongs to no other module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import NOW, after, changes, created, deleted, job, nodes, pod, running, view
from tidewater.controller.decide.actions import CreatePod, CreateService, DeletePod
from tidewater.controller.decide.decision import decide
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ReplicaSpec

HASHES = {"Worker": "new"}


def test_a_new_job_gets_its_service_and_then_its_pods() -> None:
    decision = decide(view(job(2, low=1, high=2), services=frozenset()), NOW)
    assert changes(decision) == [CreateService(), CreatePod("Worker", 0, True), CreatePod("Worker", 1, False)]


def test_a_service_that_was_deleted_is_made_again() -> None:
    assert changes(decide(view(job(2), running(0, 1), services=frozenset()), NOW)) == [CreateService()]


def test_pods_of_other_types_below_their_minimum_are_core() -> None:
    others = {"PS": ReplicaSpec(replicas=2, min_replicas=1, template={})}
    decision = decide(view(job(1, others=others), running(0)), NOW)
    assert changes(decision) == [CreatePod("PS", 0, True), CreatePod("PS", 1, False)]


def test_a_job_that_has_its_pods_needs_nothing() -> None:
    settled = after(job(2), *running(0, 1))
    decision = decide(view(settled, running(0, 1)), NOW)
    assert (decision.actions, decision.again, decision.status) == ((), None, settled.status)


def test_a_deletion_names_the_uid() -> None:
    (delete,) = changes(decide(view(job(1, high=2), running(0, 1)), NOW))
    assert isinstance(delete, DeletePod)
    assert (delete.uid, delete.grace) == ("j-worker-1-uid", None)


def test_only_a_pod_on_a_lost_node_is_deleted_without_its_grace_period() -> None:
    """One on a node that is not known yet gets SIGTERM and can write its checkpoint."""
    known = nodes(sound=("node-0",), lost=("node-1",))
    decision = decide(view(job(3, suspend=True), running(0, 1, 2), nodes=known), NOW)
    graces = {action.name: action.grace for action in decision.actions if isinstance(action, DeletePod)}
    assert graces == {"j-worker-0": None, "j-worker-1": 0, "j-worker-2": None}


def test_a_changed_template_replaces_all_pods_when_all_of_them_are_gone() -> None:
    old = [pod(index, template_hash="old") for index in (0, 1)]
    rolls = decide(view(job(2), old, template_hashes=HASHES), NOW)
    assert (sorted(deleted(rolls)), created(rolls)) == (["worker-0", "worker-1"], [])
    ending = (replace(old[1], terminating=True),)
    assert changes(decide(view(job(2), ending, template_hashes=HASHES), NOW)) == []
    assert created(decide(view(job(2), template_hashes=HASHES), NOW)) == [0, 1]


def test_a_changed_template_gives_a_worker_that_failed_for_good_another_chance() -> None:
    failed = pod(0, "Failed", template_hash="old")
    decision = decide(view(job(1), [failed], template_hashes=HASHES), NOW)
    assert (deleted(decision), decision.status.state) == (["worker-0"], State.CREATED)


def test_pods_that_do_not_say_their_template_are_kept() -> None:
    assert changes(decide(view(job(1), running(0), template_hashes=HASHES), NOW)) == []


def test_a_pod_of_an_unknown_type_or_without_an_index_is_deleted() -> None:
    strays = (pod(0, type="Gone"), pod(-1))
    assert len(deleted(decide(view(job(1), (pod(0), *strays)), NOW))) == 2


def test_a_suspended_job_without_pods_rests() -> None:
    suspended = after(job(2, suspend=True))
    decision = decide(view(suspended), NOW)
    assert (decision.actions, decision.again) == ((), None)


@pytest.mark.parametrize("autoscale", [False, True])
def test_a_job_that_is_resumed_has_its_size_only_when_its_workers_run(autoscale: bool) -> None:
    """Also if it had the same size before: until it is seen that it is resumed, the status says 0."""
    ran = after(job(1, high=3, autoscale=autoscale), *running(0))
    assert ran.status.settled_replicas == 1
    suspended = after(replace(ran, spec=replace(ran.spec, suspend=True)), *running(0))
    assert suspended.status.settled_replicas == 0
    resumed = after(replace(suspended, spec=replace(suspended.spec, suspend=False)))
    assert resumed.status.settled_replicas == 0
    assert after(resumed, *running(0)).status.settled_replicas == 1
