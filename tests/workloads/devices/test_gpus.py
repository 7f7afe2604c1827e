"""The program of the check: which nodes count, how long a node may be without GPUs, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from workloads.devices.in_pod import gpus
from workloads.devices.in_pod.gpus import PATIENCE_SECONDS, Lacking, Seen, Watched

RESOURCE = "nvidia.com/gpu"


def node(name: str, shown: int | None, *, kind: str = "g5.xlarge", ready: bool = True) -> dict[str, Any]:
    """A node; `shown` is its number of GPUs, or None where no plug-in has registered."""
    return {
        "metadata": {"name": name, "labels": {gpus.INSTANCE_TYPE: kind}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4"} | ({} if shown is None else {RESOURCE: str(shown)}),
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def watched(count: int = 1) -> Watched:
    return Watched(RESOURCE, count, ["g5.xlarge"], "do something")


def test_it_is_done_when_every_ready_node_has_its_gpus() -> None:
    look = watched()
    assert look.look([node("a", 1), node("b", None)], 0) is Seen.WITHOUT
    assert look.look([node("a", 1), node("b", 1), node("c", None, ready=False)], 10) is Seen.DONE


def test_it_waits_while_there_is_no_node() -> None:
    look = watched()
    assert look.look([], 0) is Seen.NO_NODE
    assert look.look([node("a", None, ready=False)], 10 * PATIENCE_SECONDS) is Seen.NO_NODE


def test_nodes_without_gpus_end_it_with_one_sentence_that_names_them() -> None:
    look = watched()
    found = [node("a", 0), node("b", None), node("c", 1)]
    assert look.look(found, 0) is Seen.WITHOUT
    assert look.look(found, PATIENCE_SECONDS - 1) is Seen.WITHOUT
    with pytest.raises(Lacking) as said:
        look.look(found, PATIENCE_SECONDS)
    assert str(said.value) == (
        "2 worker nodes are Ready but show no nvidia.com/gpu (of 3: a, b; g5.xlarge): do something"
    )


def test_a_node_with_too_few_gpus_is_named_too() -> None:
    look = watched(count=4)
    assert look.look([node("a", 3)], 0) is Seen.WITHOUT
    with pytest.raises(Lacking, match=r"1 worker node is Ready but shows fewer than 4 nvidia.com/gpu \(of 1: a;"):
        look.look([node("a", 3)], PATIENCE_SECONDS)


def test_each_node_gets_its_own_time() -> None:
    look = watched()
    assert look.look([node("a", None)], 0) is Seen.WITHOUT
    assert look.look([node("a", 1), node("b", None)], PATIENCE_SECONDS) is Seen.WITHOUT
    assert look.look([node("a", 1), node("b", 1)], PATIENCE_SECONDS + 1) is Seen.DONE


def test_a_node_that_had_gpus_meanwhile_starts_again() -> None:
    look = watched()
    assert look.look([node("a", None), node("b", None)], 0) is Seen.WITHOUT
    assert look.look([node("a", 1), node("b", None)], 100) is Seen.WITHOUT
    assert look.look([node("a", None), node("b", 1)], PATIENCE_SECONDS) is Seen.WITHOUT


def test_nodes_of_an_earlier_configuration_do_not_count() -> None:
    assert watched().look([node("old", None, kind="m5.large"), node("new", 1)], 0) is Seen.DONE


def test_nodes_of_karpenter_count_whatever_their_type() -> None:
    surge = node("surge", None, kind="g6.xlarge")
    surge["metadata"]["labels"][gpus.KARPENTER_GPUS] = "1"
    assert watched().look([surge, node("core", 1)], 0) is Seen.WITHOUT


@pytest.mark.parametrize("where", ["spec", "metadata"])
def test_nodes_that_are_leaving_do_not_count(where: str) -> None:
    leaving = node("leaving", None)
    leaving[where]["unschedulable" if where == "spec" else "deletionTimestamp"] = "2026-11-24T00:00:00Z"
    assert watched().look([leaving, node("a", 1)], 0) is Seen.DONE


def test_many_nodes_are_not_all_listed() -> None:
    look, found = watched(), [node(f"n{number}", None) for number in range(8)]
    look.look(found, 0)
    with pytest.raises(Lacking, match=r"of 8: n0, n1, n2, n3, n4 and 3 more;"):
        look.look(found, PATIENCE_SECONDS)
