"""Which pods are made, and how they are named: by index, with the next number, or without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import (
    NOW,
    WORKER,
    after,
    ago,
    condition,
    created,
    deleted,
    job,
    later,
    nodes,
    pod,
    running,
    view,
)
from tidewater.controller.decide.actions import CreatePod, Decision, reserving
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.exits import MOST_OUT_OF_MEMORY
from tidewater.controller.decide.observed import Admission, PodView
from tidewater.elasticjob.choices import PodNames, State
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec
from tidewater.elasticjob.status import ReplicaStatus, Status

SUCCESSIVE = {"pod_names": PodNames.SUCCESSIVE}


def numbered(replicas: int, low: int | None = None, high: int | None = None, **spec: object) -> ElasticJob:
    """Return a job with workers that get one number after the other."""
    return job(replicas, low, high, worker=SUCCESSIVE, **spec)


def core(index: int, phase: str = "Running", **changes: object) -> PodView:
    return pod(index, phase, core=True, **changes)


def tiers(decision: Decision) -> list[tuple[int, bool]]:
    """Return the numbers of the pods that are created, and whether they are core."""
    return [(action.index, action.core) for action in decision.actions if isinstance(action, CreatePod)]


def following(status: Status, type: str = WORKER) -> int | None:
    return status.replica_statuses[type].next_index


def test_the_first_workers_have_the_numbers_from_0_on_and_the_lowest_are_core() -> None:
    decision = decide(view(numbered(3, low=1)), NOW)
    assert tiers(decision) == [(0, True), (1, False), (2, False)]
    assert following(decision.status) == 3


def test_a_successor_gets_the_next_number_and_does_not_wait_for_the_end_of_its_predecessor() -> None:
    settled = after(numbered(4), *(core(index) for index in range(4)))
    pods = (core(0, terminating=True), *(core(index) for index in (1, 2, 3)))
    decision = decide(view(settled, pods), NOW)
    assert (created(decision), following(decision.status)) == ([4], 5)


def test_an_index_is_free_only_when_its_pod_is_gone() -> None:
    settled = after(job(2), *running(0, 1))
    assert created(decide(view(settled, (pod(0, terminating=True), pod(1))), NOW)) == []
    assert created(decide(view(settled, [pod(1)]), NOW)) == [0]
    assert following(settled.status) is None


def test_a_pod_that_waits_keeps_its_number() -> None:
    preempted = after(numbered(4, low=1), core(0), pod(4, "Pending"), pod(5, "Pending"), pod(6, "Pending"))
    pods = (core(0), *(pod(index, "Pending", terminating=index < 4) for index in (1, 2, 3, 4, 5, 6)))
    for at in (NOW, later(60), later(3600)):
        decision = decide(view(preempted, pods), at)
        assert (deleted(decision), created(decision)) == ([], [])


def test_a_number_is_never_given_again_although_its_pod_is_gone_and_was_never_seen() -> None:
    reserved = replace(numbered(2), status=Status(replica_statuses={WORKER: ReplicaStatus(next_index=7)}))
    assert created(decide(view(reserved, [core(1)]), NOW)) == [7]


def test_a_pod_with_a_higher_number_raises_the_next_one() -> None:
    settled = after(numbered(2), core(0), core(1))
    decision = decide(view(settled, (core(0), core(9, terminating=True))), NOW)
    assert (created(decision), following(decision.status)) == ([10], 11)


def test_numbers_that_were_reserved_and_not_used_come_first() -> None:
    reserved = replace(numbered(4), status=Status(replica_statuses={WORKER: ReplicaStatus(next_index=7)}))
    unused = frozenset({(WORKER, 6), (WORKER, 4), (WORKER, 1), ("PS", 5)})
    decision = decide(view(reserved, [core(1)], unused=unused), NOW)
    assert (created(decision), following(decision.status)) == ([4, 6, 7], 8)


def test_only_new_numbers_are_reserved_before_the_pods_are_made() -> None:
    made = numbered(2)
    decision = decide(view(made), NOW)
    reserved = reserving(made.status, decision)
    assert reserved == Status(replica_statuses={WORKER: ReplicaStatus(next_index=2)})
    again = decide(view(replace(made, status=reserved), unused=frozenset({(WORKER, 0), (WORKER, 1)})), NOW)
    assert created(again) == [0, 1]
    assert reserving(reserved, again) is reserved
    indexed = job(2)
    assert reserving(indexed.status, decide(view(indexed), NOW)) is indexed.status


def test_the_numbers_of_another_type_are_its_own() -> None:
    others = {"PS": ReplicaSpec(replicas=2, template={}, pod_names=PodNames.SUCCESSIVE)}
    made = numbered(1, others=others)
    decision = decide(view(made, (core(4), core(0, type="PS"))), NOW)
    assert [action for action in decision.actions if isinstance(action, CreatePod)] == [CreatePod("PS", 1, True)]
    assert (following(decision.status), following(decision.status, "PS")) == (5, 2)


def test_a_core_worker_is_replaced_by_a_core_worker_and_a_surge_worker_by_a_surge_worker() -> None:
    settled = after(numbered(3, low=1), core(0), pod(1), pod(2))
    assert tiers(decide(view(settled, (pod(1), pod(2))), NOW)) == [(3, True)]
    assert tiers(decide(view(settled, (core(0), pod(1))), NOW)) == [(3, False)]
    assert tiers(decide(view(settled, [pod(2)]), NOW)) == [(3, True), (4, False)]


def test_after_the_minimum_is_raised_a_lost_surge_worker_is_replaced_by_a_core_worker() -> None:
    assert tiers(decide(view(numbered(3, low=2), (core(0), pod(1))), NOW)) == [(2, True)]


def test_after_the_minimum_is_lowered_the_lowest_numbers_are_core() -> None:
    decision = decide(view(numbered(1, low=1, high=3), (core(5), core(3), core(4))), NOW)
    assert sorted(deleted(decision)) == ["worker-4", "worker-5"]


def test_a_job_shrinks_by_its_surge_workers_with_the_highest_numbers() -> None:
    pods = (pod(1), pod(2), core(7), pod(5))
    assert deleted(decide(view(numbered(3, low=1, high=4), pods), NOW)) == ["worker-5"]
    assert deleted(decide(view(numbered(1, low=1, high=4), pods), NOW)) == ["worker-5", "worker-2", "worker-1"]


def test_a_head_of_its_queue_gets_its_core_workers() -> None:
    queued = numbered(3, low=2, policy={"queue": "q"})
    decision = decide(view(queued, admission=Admission.HEAD), NOW)
    assert tiers(decision) == [(0, True), (1, True)]


def test_the_surge_worker_that_waits_gives_way_to_the_queue() -> None:
    whole = after(numbered(2, low=1, policy={"queue": "q"}), pod(3), core(5))
    decision = decide(view(whole, (pod(3, "Pending"), core(5)), admission=Admission.HOLD), NOW)
    assert (deleted(decision), created(decision)) == (["worker-3"], [])


def test_workers_on_a_node_that_ends_are_succeeded_at_once() -> None:
    settled = after(numbered(2, low=1), core(0), pod(1))
    decision = decide(view(settled, (core(0), pod(1)), nodes=nodes(ends=["node-0"], sound=["node-1"])), NOW)
    assert (deleted(decision), tiers(decision)) == (["worker-0"], [(2, True)])


def test_the_lowest_number_that_is_left_decides_whether_the_job_has_succeeded() -> None:
    settled = after(numbered(3, low=1), pod(1), pod(2), pod(4))
    waits = decide(view(settled, (pod(1), pod(2, "Succeeded"), pod(4))), NOW)
    assert waits.status.state is State.RUNNING
    ends = decide(view(settled, (pod(1, "Succeeded"), pod(2), pod(3, terminating=True))), NOW)
    assert ends.status.state is State.SUCCEEDED
    retried = decide(view(settled, (pod(1, "Failed", exit_code=130), pod(2, "Succeeded"), pod(4))), NOW)
    assert retried.status.state is State.SUCCEEDED


def exhausted(index: int) -> PodView:
    return core(index, "Failed", exit_code=137, oom_killed=True, started=ago(900), finished=ago(800))


def test_a_row_of_exhausted_memory_goes_on_with_the_successor() -> None:
    made = numbered(1, high=2)
    for number in range(1, MOST_OUT_OF_MEMORY):
        decision = decide(view(made, [exhausted(number)]), NOW)
        assert decision.status.out_of_memory == {f"j-worker-{number + 1}": number}
        made = replace(made, status=decision.status)
    failed = condition(decide(view(made, [exhausted(MOST_OUT_OF_MEMORY)]), NOW).status, "Failed")
    assert "pod j-worker-5 and the pods that it replaced used more memory than their limit 5 times" in failed.message


def test_a_row_whose_heir_was_never_made_goes_on_with_the_next_one() -> None:
    """The controller was stopped after it had reserved number 4 and moved the row."""
    status = Status(replica_statuses={WORKER: ReplicaStatus(next_index=5)}, out_of_memory={"j-worker-4": 3})
    decision = decide(view(replace(numbered(2), status=status), [core(2)]), NOW)
    assert decision.status.out_of_memory == {"j-worker-5": 3}


def test_the_only_pod_of_a_type_is_made_again_under_its_name_when_that_is_free() -> None:
    made = job(1, others={"Master": ReplicaSpec(replicas=1, template={}, pod_names=PodNames.SINGLE)})
    assert made.pod_name("Master", 0) == "j-master"
    master = pod(0, type="Master", name="j-master")
    settled = after(made, pod(0), master)
    assert created(decide(view(settled, (pod(0), replace(master, terminating=True))), NOW)) == []
    gone = decide(view(settled, [pod(0)]), NOW)
    assert [action for action in gone.actions if isinstance(action, CreatePod)] == [CreatePod("Master", 0, True)]
    assert following(gone.status, "Master") is None


@pytest.mark.parametrize("admission", [Admission.HEAD, Admission.FREE])
def test_what_is_observed_after_the_pods_are_made_needs_nothing_more(admission: Admission) -> None:
    queued = numbered(2, policy={"queue": "q"})
    first = decide(view(queued, admission=admission), NOW)
    made = tuple(core(index, "Pending", unschedulable_since=None) for index in created(first))
    again = decide(view(replace(queued, status=first.status), made, admission=admission), NOW)
    assert created(again) == []
