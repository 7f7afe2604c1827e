"""What happens to the workers of a node that will go: a Spot notice, Karpenter, a drain, a cordon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decide.world import (
    NOW,
    after,
    ago,
    changes,
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
from tidewater.controller.decide.actions import CreatePod, DeletePod
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, NodeView, PodView
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec

SOUND = ("node-0", "node-1", "node-2")


def settled(replicas: int = 3, low: int = 1, high: int = 4, **spec: object) -> ElasticJob:
    """Return a job that has had all of its workers."""
    made = job(replicas, low=low, high=high, **spec)
    return after(made, *running(*range(replicas)))


def ending(*indices: int) -> tuple[PodView, ...]:
    return tuple(pod(index, terminating=True) for index in indices)


def test_a_worker_leaves_a_node_that_ends_and_is_replaced_when_it_has_left() -> None:
    known = nodes(sound=SOUND[:2], ends=("node-2",))
    first = decide(view(settled(), running(0, 1, 2), nodes=known), NOW)
    assert (deleted(first), created(first)) == (["worker-2"], [])
    (delete,) = changes(first)
    assert isinstance(delete, DeletePod)
    assert (delete.reason, delete.grace) == (
        "its node node-2 is being shut down, and it is replaced on another one",
        None,
    )
    told = replace(settled(), status=first.status)
    leaves = decide(view(told, (*running(0, 1), *ending(2)), nodes=known), later(1))
    assert changes(leaves) == []
    assert created(decide(view(told, running(0, 1), nodes=known), later(2))) == [2]


def test_two_workers_leave_two_nodes_that_end_at_once_also_below_the_minimum() -> None:
    known = nodes(sound=SOUND[:1], ends=("node-1", "node-2"))
    decision = decide(view(settled(3, low=2), running(0, 1, 2), nodes=known), NOW)
    assert (deleted(decision), decision.status.state) == (["worker-1", "worker-2"], State.RESTARTING)


def test_the_worker_of_rank_0_leaves_a_node_that_ends_as_any_other() -> None:
    known = nodes(sound=SOUND[1:], ends=("node-0",))
    assert deleted(decide(view(settled(), running(0, 1, 2), nodes=known), NOW)) == ["worker-0"]


def test_a_worker_that_karpenter_has_evicted_is_neither_deleted_again_nor_replaced_twice() -> None:
    known = nodes(sound=SOUND[:2], ends=("node-2",))
    evicted = pod(2, terminating=True, disrupted=True)
    decision = decide(view(settled(), (*running(0, 1), evicted), nodes=known), NOW)
    assert changes(decision) == []


@pytest.mark.parametrize("code", [0, 1, 2, 137, 143])
def test_an_evicted_worker_counts_as_no_failure_whatever_its_exit_code(code: int) -> None:
    of = settled(backoff_limit=1)
    phase = "Failed" if code else "Succeeded"
    ends = pod(2, phase, terminating=True, disrupted=True, exit_code=code)
    left = decide(view(of, (*running(0, 1), ends), nodes=nodes(ends=("node-2",))), NOW)
    assert (left.status.restarts, left.status.state, events(left)) == (0, State.RUNNING, [])
    gone = decide(view(replace(of, status=left.status), running(0, 1)), later(1))
    assert (gone.status.restarts, gone.status.state, created(gone)) == (0, State.RUNNING, [2])


def test_a_worker_that_was_cut_off_with_its_node_counts_as_no_failure() -> None:
    of = settled(backoff_limit=1)
    cut = pod(2, "Failed", disrupted=True, exit_code=137)
    decision = decide(view(of, (*running(0, 1), cut), nodes=nodes(lost=("node-2",))), NOW)
    assert (decision.status.restarts, deleted(decision), created(decision)) == (0, ["worker-2"], [2])


def test_a_worker_stays_while_karpenter_only_looks_for_another_node() -> None:
    known = nodes("node-2", sound=SOUND[:2])
    of = settled()
    decision = decide(view(of, running(0, 1, 2), nodes=known), NOW)
    assert (decision.actions, decision.status) == ((), of.status)


def test_pods_of_other_types_leave_a_node_that_ends_too() -> None:
    made = job(1, others={"PS": ReplicaSpec(replicas=2, template={})})
    pods = (pod(0), pod(0, type="PS", node="node-1"), pod(1, type="PS", node="node-2"))
    known = nodes(sound=("node-0", "node-1"), ends=("node-2",))
    assert deleted(decide(view(after(made, *pods), pods, nodes=known), NOW)) == ["ps-1"]


def test_a_pod_that_tolerates_the_end_of_nodes_stays() -> None:
    pods = (pod(0), replace(pod(1), tolerant=True), replace(pod(2), tolerant=True))
    known = nodes(sound=SOUND[:1], ends=("node-1",), cordoned=("node-2",))
    assert deleted(decide(view(settled(), pods, nodes=known), NOW)) == []


def test_when_a_job_shrinks_while_a_node_ends_its_worker_is_the_one_that_leaves() -> None:
    known = nodes(sound=("node-0", "node-2"), ends=("node-1",))
    smaller = settled()
    spec = replace(smaller.spec, replica_specs={names.WORKER: replace(smaller.spec.worker, replicas=2)})
    decision = decide(view(replace(smaller, spec=spec, generation=2), running(0, 1, 2), nodes=known), NOW)
    assert deleted(decision) == ["worker-1"]
    assert created(decide(view(replace(smaller, spec=spec), (pod(0), pod(2)), nodes=known), later(1))) == []


def test_the_pods_of_a_suspended_job_are_deleted_once() -> None:
    known = nodes(sound=SOUND[:2], ends=("node-2",))
    decision = decide(view(settled(suspend=True), running(0, 1, 2), nodes=known), NOW)
    assert sorted(deleted(decision)) == ["worker-0", "worker-1", "worker-2"]


def test_a_job_that_has_succeeded_leaves_its_stragglers_to_whoever_ends_their_node() -> None:
    known = nodes(ends=("node-1",))
    decision = decide(view(settled(2), (pod(0, "Succeeded"), pod(1)), nodes=known), NOW)
    assert (decision.status.state, deleted(decision)) == (State.SUCCEEDED, [])


CORDONED = nodes(sound=SOUND[:1], cordoned=("node-1", "node-2"))


def test_one_worker_at_a_time_leaves_cordoned_nodes() -> None:
    of = settled()
    first = decide(view(of, running(0, 1, 2), nodes=CORDONED), NOW)
    assert deleted(first) == ["worker-2"]
    of = replace(of, status=first.status)
    assert deleted(decide(view(of, (*running(0, 1), *ending(2)), nodes=CORDONED), later(1))) == []
    waits = decide(view(of, (*running(0, 1), pod(2, "Pending")), nodes=CORDONED), later(2))
    assert deleted(waits) == [], "no room elsewhere: the other one stays"
    moved = (*running(0, 1), pod(2, node="node-3"))
    assert deleted(decide(view(of, moved, nodes=CORDONED), later(3))) == ["worker-1"]


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(settled(3, low=3), id="it-is-needed-for-the-minimum"),
        pytest.param(settled(3, rdzv_endpoint="j-worker-2.j:29400"), id="the-others-meet-there"),
    ],
)
def test_a_worker_stays_on_a_cordoned_node_if_the_job_would_suffer(of: ElasticJob) -> None:
    known = nodes(sound=SOUND[:2], cordoned=("node-2",))
    assert deleted(decide(view(of, running(0, 1, 2), nodes=known), NOW)) == []


def test_a_worker_stays_on_a_cordoned_node_while_another_job_of_the_queue_waits_for_room() -> None:
    made = job(3, low=1, high=4, policy={"queue": "q"})
    known = nodes(sound=SOUND[:2], cordoned=("node-2",))
    of = after(made, *running(0, 1, 2))
    assert deleted(decide(view(of, running(0, 1, 2), nodes=known, admission=Admission.HOLD), NOW)) == []
    assert deleted(decide(view(of, running(0, 1, 2), nodes=known), NOW)) == ["worker-2"]


def test_that_the_job_has_its_size_is_written_before_a_worker_leaves_a_cordoned_node() -> None:
    of = job(3, low=1, high=4)
    known = nodes(sound=SOUND[:2], cordoned=("node-2",))
    first = decide(view(of, running(0, 1, 2), nodes=known), NOW)
    assert (deleted(first), first.status.settled_replicas, first.again) == ([], 3, later(1))
    of = replace(of, status=first.status)
    assert deleted(decide(view(of, running(0, 1, 2), nodes=known), later(1))) == ["worker-2"]


def test_a_cordon_leaves_the_size_that_pulumi_waits_for_as_it_was() -> None:
    of = settled()
    known = nodes(sound=SOUND[:2], cordoned=("node-2",))
    decision = decide(view(of, running(0, 1, 2), nodes=known), NOW)
    assert (decision.status.settled_replicas, decision.status.desired) == (3, 3)


def test_a_node_that_is_neither_cordoned_nor_ends_keeps_its_workers() -> None:
    known = {name: NodeView(name=name, doomed=True) for name in SOUND}
    assert deleted(decide(view(settled(), running(0, 1, 2), nodes=known), NOW)) == []


def roomless(index: int, seconds: float = 181, **changes: Any) -> PodView:
    """Return a worker for which no node has had room for so long."""
    return pod(index, "Pending", unschedulable_since=ago(seconds), **changes)


def test_a_surge_worker_gives_way_to_a_core_worker_without_room() -> None:
    waits = decide(view(settled(low=1), (roomless(0, 170), *running(1, 2))), NOW)
    assert (changes(waits), waits.again) == ([], later(10))
    decision = decide(view(settled(low=1), (roomless(0), *running(1, 2))), NOW)
    (delete,) = changes(decision)
    assert isinstance(delete, DeletePod)
    assert (delete.name, delete.reason) == ("j-worker-2", "it gives way to a pod of the job's minimum")


def test_a_surge_worker_gives_way_sooner_if_karpenter_brings_no_node() -> None:
    """Without a word from Karpenter, another autoscaler may be starting a node, which takes it up to three minutes."""
    short = roomless(0, 31, unschedulable_reason="InsufficientInstanceCapacity")
    assert deleted(decide(view(settled(low=1), (short, *running(1, 2))), NOW)) == ["worker-2"]


def test_surge_workers_without_a_node_leave_with_the_one_that_gives_way() -> None:
    """Otherwise one of them could be placed in the room before the core worker is."""
    of = settled(4, low=1)
    decision = decide(view(of, (roomless(0), *running(1, 2), roomless(3))), NOW)
    assert (deleted(decision), created(decision)) == (["worker-2", "worker-3"], [])
    assert changes(decide(view(of, (roomless(0, 10), *running(1, 2), roomless(3))), NOW)) == []
    assert changes(decide(view(of, (roomless(0), pod(1), roomless(2), roomless(3))), NOW)) == [], "none gives way"


def test_no_surge_worker_is_made_while_a_core_worker_finds_no_room() -> None:
    """It would take the room that was made for the core worker."""
    gone = decide(view(settled(low=1), (roomless(0), *running(1))), NOW)
    assert (deleted(gone), created(gone)) == ([], [])
    assert created(decide(view(settled(low=1), running(0, 1)), NOW)) == [2]


def test_no_more_workers_give_way_than_core_workers_lack_room() -> None:
    of = settled(5, low=2, high=5)
    assert deleted(decide(view(of, (roomless(0), *running(1, 2, 3, 4))), NOW)) == ["worker-4"]
    ends = pod(4, terminating=True)
    assert changes(decide(view(of, (roomless(0), *running(1, 2, 3), ends)), NOW)) == []


@pytest.mark.parametrize(
    "case",
    [
        pytest.param((roomless(0), *running(1)), id="the others are the minimum"),
        pytest.param((roomless(0, patient=True), *running(1, 2)), id="its priority class never preempts"),
        pytest.param(
            (roomless(0, unschedulable_reason=names.NODE_STARTING), *running(1, 2)), id="a node is on its way"
        ),
        pytest.param((roomless(0, nominated=True), *running(1, 2)), id="the scheduler has a node for it"),
    ],
)
def test_no_worker_gives_way(case: tuple[PodView, ...]) -> None:
    of = settled(len(case), low=1)
    assert deleted(decide(view(of, case), NOW)) == []


def test_the_minimum_is_that_of_the_workers_that_count() -> None:
    """One that failed for good doesn't: another one is core in its place."""
    failed = after(job(3, low=1, high=3), pod(0, "Failed"), *running(1, 2))
    lost = decide(view(failed, [pod(0, "Failed"), pod(2)]), NOW)
    assert [(each.index, each.core) for each in changes(lost) if isinstance(each, CreatePod)] == [(1, True)]


QUOTA = 'pods "j-worker-0" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2'


def refused(of: ElasticJob, *pods: PodView, seconds: float = 10, by: str = QUOTA) -> ElasticJob:
    """Return the job with the status that says, since so long, that the API server refuses a pod."""
    written = decide(view(of, pods, refusal=by), ago(seconds))
    assert deleted(written) == []
    return replace(of, status=written.status)


def test_under_a_quota_a_surge_worker_gives_way_to_a_core_worker() -> None:
    of, pods = settled(4, low=1), running(1, 2, 3)
    decision = decide(view(refused(of, *pods), pods, refusal=QUOTA), NOW)
    assert (deleted(decision), created(decision)) == (["worker-3"], [])
    ends = (*running(1, 2), pod(3, terminating=True))
    assert changes(decide(view(refused(of, *ends), ends, refusal=QUOTA), NOW)) == []
    other = "no PriorityClass with name high was found"
    assert changes(decide(view(refused(of, *pods, by=other), pods, refusal=other), NOW)) == []


def test_no_worker_gives_way_to_a_refusal_that_may_soon_be_over() -> None:
    """Kubernetes counts a quota again some time after a pod is gone."""
    of, pods = settled(4, low=1), running(1, 2, 3)
    assert deleted(decide(view(of, pods, refusal=QUOTA), NOW)) == []
    assert deleted(decide(view(refused(of, *pods, seconds=9), pods, refusal=QUOTA), NOW)) == []
    assert deleted(decide(view(refused(of, *running(1, 2, 3, 0), seconds=99), pods, refusal=QUOTA), NOW)) == []


def test_after_a_worker_that_gave_way_for_nothing_no_other_one_does() -> None:
    """As under a quota of the core workers' priority class."""
    of, pods = settled(6, low=2, high=6), running(2, 3, 4, 5)
    gives = decide(view(refused(of, *pods), pods, refusal=QUOTA), NOW)
    assert deleted(gives) == ["worker-5"]
    of, left = replace(of, status=gives.status), running(2, 3, 4)
    still = decide(view(of, left, refusal=QUOTA), later(60))
    assert deleted(still) == []
    of = replace(of, status=still.status)
    assert deleted(decide(view(of, left, refusal=QUOTA), later(120))) == []
    helped = (pod(0), *left)
    assert deleted(decide(view(refused(of, *helped), helped, refusal=QUOTA), NOW)) == ["worker-4"]


def test_a_worker_may_give_way_again_after_the_job_had_its_minimum() -> None:
    of, pods = settled(4, low=1), running(1, 2, 3)
    of = replace(of, status=decide(view(refused(of, *pods), pods, refusal=QUOTA), NOW).status)
    of = after(of, *running(0, 1, 2))
    assert deleted(decide(view(refused(of, *running(1, 2)), running(1, 2), refusal=QUOTA), NOW)) == ["worker-2"]


def test_under_a_quota_workers_that_wait_for_room_give_way_first() -> None:
    of, pods = settled(3, low=1), (pod(1), roomless(2, 1))
    assert deleted(decide(view(refused(of, *pods), pods, refusal=QUOTA), NOW)) == ["worker-2"]
