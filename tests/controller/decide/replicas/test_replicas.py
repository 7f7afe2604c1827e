"""With workersPerReplica several pods are one replica: they are counted, made, replaced and given up together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from tidewater.contract.exit_codes import UNCONNECTED
from tidewater.controller.decide.actions import CreatePod, Decision, DeletePod, Emit, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import PodView
from tidewater.controller.decide.queue import demand
from tidewater.controller.sharing.shares import Share
from tidewater.elasticjob.choices import Launcher, RestartPolicy, State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import ReplicaStatus


def pairs(replicas: int = 2, low: int | None = None, high: int | None = None, **spec: Any) -> ElasticJob:
    """Return a job with replicas of two pods."""
    return job(replicas, low, high, workers_per_replica=2, launcher=Launcher.TIDEWATER, **spec)


def counts(decision: Decision) -> ReplicaStatus:
    return decision.status.replica_statuses[WORKER]


def numbers(decision: Decision) -> tuple[int, int, int, int]:
    """Return how many replicas are active, pending, succeeded and failed."""
    found = counts(decision)
    return found.active, found.pending, found.succeeded, found.failed


def reasons(decision: Decision) -> dict[str, str]:
    """Return why pods are deleted, by their names."""
    deletes = (action for action in decision.actions if isinstance(action, DeletePod))
    return {delete.name.removeprefix("j-"): delete.reason for delete in deletes}


def being_deleted(index: int, **changes: Any) -> PodView:
    return pod(index, terminating=True, **changes)


def test_whole_replicas_are_made_and_the_first_ones_are_the_minimum() -> None:
    decision = decide(view(pairs(3, low=1)), NOW)
    made = [(action.index, action.core) for action in decision.actions if isinstance(action, CreatePod)]
    assert made == [(0, True), (1, True), (2, False), (3, False), (4, False), (5, False)]
    assert numbers(decision) == (0, 3, 0, 0)


def test_all_numbers_and_sentences_count_replicas() -> None:
    at_rest = after(pairs(), *running(0, 1, 2, 3))
    status = at_rest.status
    assert (status.replicas, status.desired, status.settled_replicas) == (2, 2, 2)
    larger = replace(pairs(3, low=1, high=4), status=status)
    decision = decide(view(larger, running(0, 1, 2, 3)), NOW)
    assert created(decision) == [4, 5]
    messages = [action.message for action in decision.actions if isinstance(action, Emit)]
    assert "Resized from 2 to 3 replicas." in messages
    assert condition(decision.status, "Running").message == "ElasticJob j is running. 2 of 3 replicas run: 1 starting."


def test_a_replica_runs_and_is_ready_when_all_of_its_pods_are() -> None:
    starting = pod(3, "Pending", node="node-3", unschedulable_since=None)
    assert numbers(decide(view(pairs(), [*running(0, 1, 2), starting]), NOW)) == (1, 1, 0, 0)
    late = decide(view(pairs(), [*running(0, 1, 2), pod(3, ready=False)]), NOW)
    assert numbers(late) == (2, 0, 0, 0)
    assert late.status.settled_replicas is None
    assert "1 of 2 replicas run and is not ready yet." in condition(late.status, "Running").message


def test_a_pod_that_was_not_made_is_made_for_its_replica() -> None:
    """After the controller was stopped between two pods, or a quota refused the second."""
    decision = decide(view(pairs(), running(0, 1, 2)), NOW)
    assert (created(decision), deleted(decision)) == ([3], [])
    assert numbers(decision) == (1, 1, 0, 0)
    refused = decide(view(pairs(), running(0, 1, 2), refusal="exceeded quota"), NOW)
    assert (created(refused), deleted(refused)) == ([], [])


def test_when_one_pod_is_being_deleted_the_others_of_its_replica_are_too() -> None:
    decision = decide(view(pairs(), [*running(0, 1, 3), being_deleted(2)]), NOW)
    assert reasons(decision) == {"worker-3": "it leaves with j-worker-2 of the same replica: it is being deleted"}
    assert created(decision) == []
    assert numbers(decision) == (1, 0, 0, 0)


@pytest.mark.parametrize("last", [2, 3])
def test_a_replica_is_made_anew_when_all_of_its_names_are_free(last: int) -> None:
    both = [*running(0, 1), being_deleted(last)]
    assert created(decide(view(pairs(), both), NOW)) == []
    assert created(decide(view(pairs(), running(0, 1)), NOW)) == [2, 3]


def test_pods_on_different_nodes_leave_together_when_one_of_the_nodes_is_lost() -> None:
    on = nodes(lost=["node-2"], sound=["node-0", "node-1", "node-3"])
    decision = decide(view(pairs(), [*running(0, 1, 3), being_deleted(2)], nodes=on), NOW)
    assert deleted(decision) == ["worker-2", "worker-3"]
    graces = [action.grace for action in decision.actions if isinstance(action, DeletePod)]
    assert graces == [0, None]
    assert created(decision) == []  # pod 3 holds its name until it has ended


def test_pods_on_different_nodes_leave_together_when_one_of_the_nodes_ends() -> None:
    on = nodes(ends=["node-3"], sound=["node-0", "node-1", "node-2"])
    decision = decide(view(pairs(), running(0, 1, 2, 3), nodes=on), NOW)
    why = "its node node-3 is being shut down, and it is replaced on another one"
    assert reasons(decision) == {
        "worker-2": f"it leaves with j-worker-3 of the same replica: {why}",
        "worker-3": why,
    }


def test_one_replica_at_a_time_leaves_cordoned_nodes() -> None:
    settled = after(pairs(3, low=1), *running(*range(6)))
    on = nodes(cordoned=["node-0", "node-3"], sound=["node-1", "node-2", "node-4", "node-5"])
    decision = decide(view(settled, running(*range(6)), nodes=on), NOW)
    assert deleted(decision) == ["worker-2", "worker-3"]
    at_minimum = after(pairs(3), *running(*range(6)))
    assert deleted(decide(view(at_minimum, running(*range(6)), nodes=on), NOW)) == []


def failed(*pods: PodView, of: ElasticJob | None = None) -> Decision:
    return decide(view(of or pairs(worker={"retryable_exit_codes": (1,)}), [*running(0, 1), *pods]), NOW)


def test_a_failure_counts_once_and_the_other_pods_leave_at_once() -> None:
    decision = failed(pod(2), pod(3, "Failed"))
    assert reasons(decision) == {"worker-2": "it leaves with j-worker-3 of the same replica: it has failed"}
    assert (decision.status.restarts, numbers(decision)) == (1, (1, 0, 0, 1))
    assert set(decision.status.counted) == {"j-worker-2-uid", "j-worker-3-uid"}
    assert decision.status.last_failure == "Pod j-worker-3 exited with code 1."
    before = pairs(worker={"retryable_exit_codes": (1,)}).status
    assert status_comes_first(before, decision.status)


def test_pods_that_fail_because_another_one_of_their_replica_has_do_not_count() -> None:
    first = failed(pod(2), pod(3, "Failed"))
    known = pairs(worker={"retryable_exit_codes": (1,)}, status=first.status)
    for other in (
        pod(2, "Failed"),
        pod(2, "Failed", finished=ago(5)),
        being_deleted(2),
        being_deleted(2, phase="Failed"),
    ):
        following = failed(other, pod(3, "Failed"), of=known)
        assert following.status.restarts == 1
        assert numbers(following) == (1, 0, 0, 1)
        assert [action for action in following.actions if isinstance(action, Emit)] == []
    assert failed(pod(2, "Failed"), pod(3, "Failed")).status.restarts == 1  # seen at the same time


def test_a_pod_that_fails_after_another_one_of_its_replica_was_deleted_does_not_count() -> None:
    decision = failed(being_deleted(2), pod(3, "Failed"))
    assert (decision.status.restarts, decision.status.counted) == (0, {})
    assert deleted(decision) == ["worker-3"]


@pytest.mark.parametrize("other", [pod(3, "Pending"), pod(3, "Pending", node="node-3"), None])
def test_a_pod_that_has_waited_in_vain_for_another_one_does_not_count(other: PodView | None) -> None:
    others = [] if other is None else [other]
    decision = failed(pod(2, "Failed", exit_code=UNCONNECTED), *others)
    assert (decision.status.restarts, decision.status.counted) == (0, {})
    assert "worker-2" in deleted(decision)
    assert len(deleted(decision)) == 1 + len(others)
    assert failed(pod(2, "Failed", exit_code=UNCONNECTED), pod(3)).status.restarts == 1
    assert failed(pod(2, "Failed"), *others).status.restarts == 1


def test_a_pod_that_was_disrupted_is_why_the_others_failed() -> None:
    decision = failed(pod(2, "Failed", finished=ago(9)), pod(3, "Failed", finished=ago(1), disrupted=True))
    assert decision.status.restarts == 0
    assert reasons(decision)["worker-3"] == "it was disrupted, and is replaced"
    assert created(decision) == [2, 3]


def test_a_failed_replica_is_made_anew_after_the_back_off_and_when_none_of_its_pods_is_left() -> None:
    known = pairs(worker={"retryable_exit_codes": (1,)}, status=failed(pod(2), pod(3, "Failed")).status)
    old = pod(3, "Failed", finished=ago(30))
    lingering = failed(being_deleted(2), old, of=known)
    assert (deleted(lingering), created(lingering)) == (["worker-3"], [])
    early = failed(pod(3, "Failed", finished=ago(1)), of=known)
    assert (deleted(early), created(early), early.again) == ([], [], later(9))
    due = failed(old, of=known)
    assert (deleted(due), created(due)) == (["worker-3"], [2, 3])


def test_names_of_a_failed_replica_are_not_free_while_a_pod_that_has_ended_is_being_deleted() -> None:
    """A finalizer may keep it."""
    known = pairs(worker={"retryable_exit_codes": (1,)}, status=failed(pod(2), pod(3, "Failed")).status)
    pods = [being_deleted(2, phase="Failed"), pod(3, "Failed", finished=ago(30))]
    decision = failed(*pods, of=known)
    assert (deleted(decision), created(decision)) == (["worker-3"], [])


def test_restarts_of_a_container_do_not_hide_the_failure_of_another_pod() -> None:
    made = pairs(worker={"restart_policy": RestartPolicy.ON_FAILURE})
    restarted = pod(2, restarts=1, restarted_after=1)
    known = replace(made, status=failed(restarted, pod(3), of=made).status)
    assert known.status.restarts == 1
    assert failed(restarted, pod(3, "Failed"), of=known).status.restarts == 2


def test_restarts_of_pods_that_are_being_deleted_are_not_noted() -> None:
    assert failed(being_deleted(2, restarts=3), being_deleted(3)).status.counted == {}
    assert failed(being_deleted(3)).status.counted == {}


def test_a_pod_leaves_a_node_that_ends_although_another_one_of_its_replica_waits_to_be_replaced() -> None:
    on = nodes(ends=["node-3"], sound=["node-0", "node-1", "node-2"])
    refused = pod(2, "Failed", disrupted=True, created=ago(1))
    decision = decide(view(pairs(), [*running(0, 1, 3), refused], nodes=on), NOW)
    assert deleted(decision) == ["worker-2", "worker-3"]
    assert deleted(decide(view(pairs(), [*running(0, 1, 3), refused]), NOW)) == []


def test_a_replica_with_a_pod_that_failed_for_good_is_not_made_again() -> None:
    made = pairs(2, low=1)
    decision = failed(pod(2), pod(3, "Failed"), of=made)
    assert deleted(decision) == ["worker-2"]
    assert counts(decision).failed_indexes == "1"
    gone = replace(made, status=decision.status)
    for left in ([being_deleted(2), pod(3, "Failed")], [pod(3, "Failed")], []):
        following = failed(*left, of=gone)
        assert (created(following), deleted(following)) == ([], [])
        assert counts(following).failed_indexes == "1"


def test_the_others_are_left_alone_when_a_pod_has_done_its_work() -> None:
    """They may write the last checkpoint."""
    made = pairs()
    for other in (pod(1), being_deleted(1)):
        decision = decide(view(made, [pod(0, "Succeeded"), other, *running(2, 3)]), NOW)
        assert (deleted(decision), created(decision)) == ([], [])
        assert numbers(decision) == (2, 0, 0, 0)
        assert decision.status.state is State.RUNNING
    done = decide(view(made, [pod(0, "Succeeded"), pod(1, "Succeeded"), *running(2, 3)]), NOW)
    assert done.status.state is State.SUCCEEDED
    assert counts(done).completed_indexes == "0"


def test_a_pod_that_is_gone_after_another_one_was_done_is_not_made_again() -> None:
    decision = decide(view(pairs(success_policy="AllWorkers"), [*running(0, 1), pod(2, "Succeeded")]), NOW)
    assert (created(decision), numbers(decision)) == ([], (1, 0, 1, 0))


def test_a_replica_with_a_pod_that_is_done_gets_no_pod_that_it_lacks() -> None:
    made = job(1, workers_per_replica=3, launcher=Launcher.TIDEWATER)
    decision = decide(view(made, [pod(0, "Succeeded"), pod(1)]), NOW)
    assert (created(decision), numbers(decision)) == ([], (1, 0, 0, 0))


def test_a_pod_on_a_lost_node_is_given_up_although_another_one_is_done() -> None:
    on = nodes(lost=["node-3"], sound=["node-0", "node-1", "node-2"])
    pods = [*running(0, 1), pod(2, "Succeeded"), being_deleted(3)]
    decision = decide(view(pairs(success_policy="AllWorkers"), pods, nodes=on), NOW)
    assert deleted(decision) == ["worker-3"]
    assert numbers(decision) == (1, 0, 1, 0)


def test_a_replica_is_not_done_if_one_of_its_pods_failed() -> None:
    decision = failed(pod(2, "Succeeded"), pod(3, "Failed"))
    assert numbers(decision) == (1, 0, 0, 1)
    assert decision.status.restarts == 1


def test_whole_replicas_leave_and_first_the_one_that_lacks_a_pod() -> None:
    smaller = after(pairs(3, low=1, high=3), *running(*range(6)))
    smaller = replace(smaller, spec=replace(pairs(2, low=1, high=3).spec))
    assert deleted(decide(view(smaller, running(*range(6))), NOW)) == ["worker-4", "worker-5"]
    assert deleted(decide(view(smaller, running(0, 1, 3, 4, 5)), NOW)) == ["worker-3"]


def roomless(*indices: int, **changes: Any) -> list[PodView]:
    return [pod(index, "Pending", **changes) for index in indices]


@pytest.mark.parametrize("lacking", [(0,), (0, 1)])
def test_a_whole_replica_gives_way_to_one_of_the_minimum(lacking: Sequence[int]) -> None:
    placed = [index for index in (0, 1, 2, 3, 4, 5) if index not in lacking]
    made = pairs(3, low=1)
    decision = decide(view(made, [*running(*placed), *roomless(*lacking)]), NOW)
    assert deleted(decision) == ["worker-4", "worker-5"]


def test_a_replica_gives_way_to_one_that_waits_for_one_pod_alone_though_a_node_comes_for_another() -> None:
    made, rest = pairs(3, low=1), running(*range(2, 6))
    coming = [*roomless(0, nominated=True), *roomless(1)]
    assert deleted(decide(view(made, [*coming, *rest]), NOW)) == ["worker-4", "worker-5"]
    both = roomless(0, 1, nominated=True)
    assert deleted(decide(view(made, [*both, *rest]), NOW)) == []


def test_a_pod_that_can_not_start_is_why_its_replica_does_not_run() -> None:
    starts = {"node": "n", "unschedulable_since": None, "created": ago(60)}
    pulling = pod(3, "Pending", stuck="ImagePullBackOff", stuck_why="no such image", **starts)
    decision = decide(view(pairs(), [*running(0, 1), pod(2, "Pending", **starts), pulling]), NOW)
    assert "1 can't start (ImagePullBackOff)" in condition(decision.status, "Running").message


def test_a_replica_does_not_leave_because_of_the_node_of_a_pod_that_is_done() -> None:
    on = nodes(ends=["node-2"], sound=["node-0", "node-1", "node-3"])
    pods = [*running(0, 1, 3), pod(2, "Succeeded")]
    assert deleted(decide(view(pairs(success_policy="AllWorkers"), pods, nodes=on), NOW)) == []


def test_a_replica_of_the_minimum_that_a_quota_does_not_complete_gets_the_room_of_another_one() -> None:
    pods = running(0, 2, 3, 4, 5)
    known = after(pairs(3, low=1), *pods, at=ago(60), refusal="exceeded quota")
    decision = decide(view(known, pods, refusal="exceeded quota"), NOW)
    assert deleted(decision) == ["worker-4", "worker-5"]


def test_a_replica_that_autoscale_added_is_given_up_when_one_of_its_pods_finds_no_room() -> None:
    made = after(pairs(1, high=3, autoscale=True), *running(0, 1))
    assert created(decide(view(made, running(0, 1)), NOW)) == [2, 3]
    grown = replace(made, status=replace(made.status, desired=2))
    decision = decide(view(grown, [*running(0, 1, 2), *roomless(3, unschedulable_since=ago(61))]), NOW)
    assert deleted(decision) == ["worker-2", "worker-3"]
    assert decision.status.snoozed_until == later(60)
    early = decide(view(grown, [*running(0, 1, 2), *roomless(3, unschedulable_since=ago(59))]), NOW)
    assert deleted(early) == []


def test_the_pod_that_has_waited_longest_decides_when_a_replica_is_given_up() -> None:
    made = after(pairs(1, high=3, autoscale=True), *running(0, 1))
    grown = replace(made, status=replace(made.status, desired=2))
    waiting = [*roomless(2, unschedulable_since=ago(10)), *roomless(3, unschedulable_since=ago(61), nominated=True)]
    assert deleted(decide(view(grown, [*running(0, 1), *waiting]), NOW)) == ["worker-2", "worker-3"]


@pytest.mark.parametrize(("waiting", "left"), [(1, 2), (2, 2), (3, 1)])
def test_room_for_other_jobs_is_given_back_in_whole_replicas(waiting: int, left: int) -> None:
    made = after(pairs(3, low=1, high=3, autoscale=True), *running(*range(6)))
    decision = decide(view(made, running(*range(6)), waiting_cores=waiting), NOW)
    assert decision.status.desired == left
    assert len(deleted(decision)) == 2 * (3 - left)


def test_a_queue_looks_for_the_room_of_all_pods_of_the_minimum() -> None:
    found = demand(pairs(3, low=2))
    assert found is not None
    assert [(each.type, each.count) for each in found] == [(WORKER, 4)]
    done = pairs(3, low=2, status=decide(view(pairs(3, low=2), [pod(2, "Succeeded"), pod(3, "Succeeded")]), NOW).status)
    rest = demand(done)
    assert rest is not None
    assert [each.count for each in rest] == [2]
    assert demand(pairs(3, low=2, topology_key="zone")) is not None
    assert demand(pairs(3, low=2, topology_key="zone", topology_required=True)) is None


def test_a_job_that_waits_keeps_no_part_of_a_replica() -> None:
    refused = pod(2, "Failed", disrupted=True, created=ago(1))
    decision = decide(view(pairs(), [*running(0, 1, 3), refused], share=Share(0, "waits")), NOW)
    assert sorted(deleted(decision)) == ["worker-0", "worker-1", "worker-2", "worker-3"]


def test_a_job_that_can_not_have_its_minimum_says_how_many_replicas_failed() -> None:
    decision = decide(view(pairs(2), [*running(0, 1, 2), pod(3, "Failed")]), NOW)
    assert decision.status.state is State.FAILED
    why = "1 of 2 replicas failed for good, among them j-worker-3: at most 1 can run and at least 2 are needed"
    assert why in condition(decision.status, "Failed").message


def test_a_finished_job_leaves_each_pod_that_runs_half_a_minute() -> None:
    made = pairs(success_policy="AnyWorker")
    pods = [pod(0, "Succeeded"), pod(1, "Succeeded"), pod(2), *roomless(3)]
    end = decide(view(made, pods), NOW)
    assert (end.status.state, deleted(end), end.again) == (State.SUCCEEDED, ["worker-3"], None)
    assert numbers(end) == (1, 0, 1, 0)
    failing = decide(view(pairs(2), [*running(0, 2), pod(1, "Failed"), pod(3)]), NOW)
    assert (failing.status.state, deleted(failing), failing.again) == (State.FAILED, [], later(30))
    over = replace(pairs(2), status=failing.status)
    late = decide(view(over, [*running(0, 2), pod(1, "Failed"), pod(3)]), later(30))
    assert sorted(deleted(late)) == ["worker-0", "worker-2", "worker-3"]
