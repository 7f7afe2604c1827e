"""Which pods leave when there are too many."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.controller.decide.world import NOW, created, deleted, job, nodes, pod, running, view
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import PodView
from tidewater.controller.decide.replica_groups import Crew, crews
from tidewater.controller.decide.shrink import leaving
from tidewater.elasticjob.choices import PodNames

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


def test_a_worker_on_a_node_that_karpenter_brought_leaves_before_one_on_another_node() -> None:
    known = nodes(sound=("node-0", "node-3"), elastic=("node-1", "node-2"))
    shrunk = decide(view(job(2, low=1, high=4), running(0, 1, 2, 3), nodes=known), NOW)
    assert deleted(shrunk) == ["worker-2", "worker-1"]


def test_with_one_worker_on_each_of_karpenters_nodes_the_highest_index_leaves_first() -> None:
    known = nodes(elastic=("node-0", "node-1", "node-2", "node-3"))
    shrunk = decide(view(job(1, low=1, high=4), running(0, 1, 2, 3), nodes=known), NOW)
    assert deleted(shrunk) == ["worker-3", "worker-2", "worker-1"]


def test_a_doomed_worker_and_a_pending_one_leave_before_one_that_empties_a_node() -> None:
    known = nodes("node-1", sound=("node-0",), elastic=("node-3",))
    pods = (*running(0, 1), pod(2, "Pending"), pod(3))
    assert deleted(decide(view(job(3, low=1, high=4), pods, nodes=known), NOW)) == ["worker-2"]
    assert deleted(decide(view(job(2, low=1, high=4), pods, nodes=known), NOW)) == ["worker-2", "worker-1"]


def test_a_core_worker_stays_although_its_node_would_become_empty() -> None:
    known = nodes(sound=("node-2",), elastic=("node-0", "node-1"))
    shrunk = decide(view(job(2, low=2, high=3), running(0, 1, 2), nodes=known), NOW)
    assert deleted(shrunk) == ["worker-2"]


def placed(*names: str) -> tuple[PodView, ...]:
    """Return workers that run on these nodes."""
    return tuple(pod(index, node=name) for index, name in enumerate(names))


@pytest.mark.parametrize(
    ("where", "size", "gone"),
    [
        pytest.param("abbcc", 3, ["worker-4", "worker-3"], id="both-of-a-node-and-not-one-of-each"),
        pytest.param("abbbc", 4, ["worker-4"], id="the-node-with-the-fewest"),
        pytest.param("abcbb", 4, ["worker-2"], id="the-node-with-the-fewest-before-the-highest-index"),
        pytest.param("abbaa", 3, ["worker-2", "worker-1"], id="not-from-a-node-that-a-core-worker-keeps"),
    ],
)
def test_as_many_of_karpenters_nodes_as_possible_become_empty(where: str, size: int, gone: list[str]) -> None:
    known = nodes(elastic=("a", "b", "c"))
    assert deleted(decide(view(job(size, low=1, high=5), placed(*where), nodes=known), NOW)) == gone


def test_the_workers_of_a_node_leave_together_also_if_the_controller_is_stopped_in_between() -> None:
    known = nodes(elastic=("a", "b", "c"))
    of, pods = job(3, low=1, high=5), placed(*"abbcc")
    first = (*pods[:4], pod(4, node="c", terminating=True))
    assert deleted(decide(view(of, first, nodes=known), NOW)) == ["worker-3"]


def test_workers_on_nodes_that_do_not_go_when_they_are_empty_leave_by_their_indices() -> None:
    known = nodes(sound=("a", "b", "c"))
    assert deleted(decide(view(job(4, low=1, high=5), placed(*"abcbb"), nodes=known), NOW)) == ["worker-4"]


@given(st.lists(st.sampled_from("abcdX"), min_size=2, max_size=7), st.integers(1, 3), st.data())
def test_no_other_choice_of_surge_workers_empties_more_nodes(where: list[str], low: int, data: st.DataObject) -> None:
    low = min(low, len(where) - 1)
    excess = data.draw(st.integers(1, len(where) - low))
    known = nodes(sound=("X",), elastic=tuple("abcd"))
    found, _ = crews(view(job(len(where), low=low, high=9), placed(*where)))
    crew = found["Worker"]
    gone = {each.index for each in leaving(crew, excess, known, "etcd:2379")}
    surge = [index for index in range(len(where)) if index >= low]
    assert gone <= set(surge)
    assert emptied(crew, gone) == max(emptied(crew, set(other)) for other in combinations(surge, excess))
    if any(where[index] == "X" for index in gone):
        assert all(where[index] == "X" for index in surge if index not in gone)


def emptied(crew: Crew, gone: set[int]) -> int:
    """Return how many of Karpenter's nodes become empty if the workers with these indices leave."""
    left = {each.node for each in crew.live if each.index not in gone}
    return len({each.node for each in crew.live if each.index in gone and each.node != "X"} - left)


def test_the_node_of_a_core_pod_is_emptied_last_also_if_the_number_does_not_say_that_it_is_core() -> None:
    made = job(3, low=1, high=4, worker={"pod_names": PodNames.SUCCESSIVE})
    pods = (pod(5, node="a", core=True), pod(6, node="a"), pod(1, node="b"), pod(2, node="b"))
    assert deleted(decide(view(made, pods, nodes=nodes(elastic=("a", "b"))), NOW)) == ["worker-2"]
