"""Which pods leave when there are too many."""

from __future__ import annotations

import pytest

from controller.decide.decision import decide
from controller.decide.observed import PodView
from tests.controller.decide.world import NOW, created, deleted, job, nodes, pod, running, view

SOUND = ("node-0", "node-1", "node-2", "node-3")


@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        pytest.param(running(0, 1, 2), "worker-2", id="highest-index"),
        pytest.param((pod(0), pod(1, "Pending"), pod(2)), "worker-1", id="pending-first"),
        pytest.param((pod(0, "Pending"), pod(1), pod(2)), "worker-0", id="pending-core-before-running-surge"),
        pytest.param(
            (pod(0, "Pending"), pod(1), pod(2, "Pending")), "worker-2", id="pending-surge-before-pending-core"
        ),
        pytest.param((pod(0), pod(1, "Pending"), pod(2, "Pending", node="x")), "worker-1", id="unplaced-first"),
        pytest.param((pod(0), pod(1, "Failed", exit_code=130), pod(2, "Pending")), "worker-1", id="failed-first"),
        pytest.param((pod(0), pod(1, "Unknown"), pod(2)), "worker-1", id="unheard-of"),
    ],
)
def test_the_pod_that_does_least_leaves_first(pods: tuple[PodView, ...], gone: str) -> None:
    assert deleted(decide(view(job(2, low=1, high=3), pods), NOW)) == [gone]


def test_a_worker_on_a_doomed_node_leaves_before_the_others() -> None:
    known = nodes("node-1", sound=SOUND[::2])
    assert deleted(decide(view(job(2, low=1, high=3), running(0, 1, 2), nodes=known), NOW)) == ["worker-1"]


def test_a_pending_worker_leaves_before_one_on_a_doomed_node() -> None:
    known = nodes("node-1", sound=SOUND[:1])
    pods = (pod(0), pod(1), pod(2, "Pending"))
    assert deleted(decide(view(job(2, low=1, high=3), pods, nodes=known), NOW)) == ["worker-2"]


def test_a_worker_on_a_node_that_is_gone_leaves_first() -> None:
    known = nodes(sound=("node-0", "node-2"), lost=("node-1",))
    assert deleted(decide(view(job(2, low=1, high=3), running(0, 1, 2), nodes=known), NOW)) == ["worker-1"]


def test_without_nodes_to_see_none_is_taken_to_be_doomed() -> None:
    assert deleted(decide(view(job(2, low=1, high=3), running(0, 1, 2)), NOW)) == ["worker-2"]


def test_surge_leaves_before_core_on_nodes_that_are_equally_doomed() -> None:
    known = nodes("node-0", "node-2", sound=("node-1",))
    assert deleted(decide(view(job(2, low=1, high=3), running(0, 1, 2), nodes=known), NOW)) == ["worker-2"]


def test_the_rendezvous_endpoint_leaves_last() -> None:
    pods = (pod(0, "Pending"), pod(1), pod(2))
    made = job(2, low=1, high=3, rdzv_endpoint="j-worker-0.j:29400")
    assert deleted(decide(view(made, pods), NOW)) == ["worker-2"]


def test_the_others_keep_their_indices_and_a_replacement_takes_the_lowest_free_one() -> None:
    rest = (pod(0), pod(2))
    assert (created(decide(view(job(2, low=1, high=3), rest), NOW))) == []
    assert created(decide(view(job(3, low=1, high=3), rest), NOW)) == [1]


def test_an_index_is_free_only_when_its_pod_is_gone() -> None:
    assert created(decide(view(job(2), (pod(0), pod(1, terminating=True))), NOW)) == []


def test_a_worker_whose_sidecar_still_ends_is_replaced_at_its_own_index() -> None:
    made = job(2, low=1, high=6)
    first = decide(view(made, (pod(0, "Failed", exit_code=137, lingers=True), pod(5))), NOW)
    assert (deleted(first), created(first)) == (["worker-0"], [])
    assert created(decide(view(made, [pod(5)]), NOW)) == [0]


def test_a_pod_that_is_being_deleted_is_replaced_at_its_own_index() -> None:
    made = job(2, low=1, high=3)
    assert created(decide(view(made, (pod(0, terminating=True), pod(2))), NOW)) == []
    assert created(decide(view(made, [pod(2)]), NOW)) == [0]


def test_a_pod_that_ends_on_a_lost_node_is_removed_and_replaced() -> None:
    known = nodes(sound=("node-0",), lost=("node-1",))
    decision = decide(view(job(2), (pod(0), pod(1, terminating=True)), nodes=known), NOW)
    assert (deleted(decision), created(decision)) == (["worker-1"], [1])
