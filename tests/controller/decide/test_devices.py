"""Failures of devices are counted by node: a node with too many is named, avoided and, if asked for, tainted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decide.world import NOW, after, ago, condition, created, events, holds, job, pod, running, view
from tidewater.contract.exit_codes import DEVICE_FAILED, UNCONNECTED
from tidewater.controller.decide.actions import CreatePod, Decision, TaintNode, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.exits import MOST_DEVICE_FAILURES
from tidewater.controller.decide.observed import NodeView, PodView
from tidewater.elasticjob.choices import RestartPolicy
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import NodeStatus

NODES = {name: NodeView(name=name, uid=f"{name}-uid") for name in ("bad", "good")}
JOB = job(2, low=1, backoff_limit=100)


def failed(attempt: int, **changes: Any) -> PodView:
    """Return worker 1 on node `bad`, which has just ended by an error of its device."""
    values = {"uid": f"attempt-{attempt}", "exit_code": DEVICE_FAILED, "node": "bad", "finished": NOW, **changes}
    return pod(1, "Failed", **values)


def after_failures(times: int, of: ElasticJob = JOB, **changes: Any) -> ElasticJob:
    """Return the job after its worker 1 ended so many times in this way, each time in a new pod."""
    for attempt in range(times):
        of = after(of, pod(0), failed(attempt, **changes), at=NOW, nodes=NODES)
    return of


def last(times: int = MOST_DEVICE_FAILURES, **changes: Any) -> Decision:
    """Return the decision on the last of so many failures in a row."""
    return decide(view(after_failures(times - 1), (pod(0), failed(times)), nodes=NODES, **changes), NOW)


def taints(decision: Decision) -> list[TaintNode]:
    return [action for action in decision.actions if isinstance(action, TaintNode)]


def failures(of: ElasticJob) -> dict[str, int]:
    return {name: each.device_failures for name, each in of.status.nodes.items()}


def test_after_three_failures_on_a_node_the_job_names_it_in_a_condition_and_an_event() -> None:
    before = last(MOST_DEVICE_FAILURES - 1)
    assert not holds(before.status, "DeviceFailing")
    decision = last()
    assert holds(decision.status, "DeviceFailing")
    assert "3 on node bad." in condition(decision.status, "DeviceFailing").message
    assert events(decision).count("DeviceFailing") == 1
    again = last(MOST_DEVICE_FAILURES + 1)
    assert "4 on node bad." in condition(again.status, "DeviceFailing").message
    assert "DeviceFailing" not in events(again)


def test_a_failure_is_counted_once_and_before_its_pod_may_go() -> None:
    ran = after(JOB, *running(0, 1), nodes=NODES)
    decision = decide(view(ran, (pod(0), failed(0)), nodes=NODES), NOW)
    assert status_comes_first(ran.status, decision.status)
    counted = replace(ran, status=decision.status)
    for pods in ((pod(0), failed(0)), running(0)):  # of another controller, and after the pod is gone
        counted = after(counted, *pods, nodes=NODES)
        assert failures(counted) == {"bad": 1}


@pytest.mark.parametrize("policy", list(RestartPolicy))
def test_it_is_counted_whether_or_not_the_worker_is_replaced(policy: RestartPolicy) -> None:
    of = job(2, low=1, worker={"restart_policy": policy})
    assert failures(after_failures(1, of)) == {"bad": 1}


def test_a_failure_after_which_the_kubelet_restarts_the_container_counts() -> None:
    restarted = pod(1, node="bad", restarts=1, restarted_after=DEVICE_FAILED)
    assert failures(after(JOB, pod(0), restarted, nodes=NODES)) == {"bad": 1}


@pytest.mark.parametrize(
    "changes",
    [{"exit_code": 1}, {"exit_code": UNCONNECTED}, {"disrupted": True}, {"terminating": True}, {"node": None}],
)
def test_other_ends_say_nothing_about_the_nodes_devices(changes: dict[str, Any]) -> None:
    assert failures(after_failures(1, **changes)) == {}


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param({"good": NODES["good"]}, id="gone"),
        pytest.param({**NODES, "bad": NodeView(name="bad", doomed=True, lost=True)}, id="deleted-just-now"),
        pytest.param({**NODES, "bad": NodeView(name="bad", uid="another")}, id="another-of-that-name"),
    ],
)
def test_a_node_that_is_gone_is_forgotten(nodes: dict[str, NodeView]) -> None:
    status = decide(view(after_failures(3), running(0, 1), nodes=nodes), NOW).status
    assert status.nodes == {}
    assert condition(status, "DeviceFailing").status == "False"


def test_a_controller_that_may_not_read_nodes_counts_and_names_them_too() -> None:
    of = JOB
    for attempt in range(3):
        of = after(of, pod(0), failed(attempt), at=NOW)
    assert (failures(of), holds(of.status, "DeviceFailing")) == ({"bad": 3}, True)


def test_a_node_is_tainted_only_if_asked_for_and_until_the_taint_is_seen() -> None:
    assert taints(last()) == []
    decision = last(taints_nodes=True)
    assert taints(decision) == [TaintNode("bad", "bad-uid")]
    counted = replace(JOB, status=decision.status)
    pods = (pod(0), failed(MOST_DEVICE_FAILURES))
    assert taints(decide(view(counted, pods, nodes=NODES, taints_nodes=True), NOW)), "a controller was killed meanwhile"
    tainted = {**NODES, "bad": replace(NODES["bad"], tainted=True)}
    seen = decide(view(counted, pods, nodes=tainted, taints_nodes=True), NOW)
    assert (taints(seen), seen.status.nodes["bad"].tainted) == ([], True)
    assert "kept away from bad" in condition(seen.status, "DeviceFailing").message
    removed = decide(view(replace(JOB, status=seen.status), pods, nodes=NODES, taints_nodes=True), NOW)
    assert taints(removed) == [], "a person has taken it away"
    again = decide(view(replace(JOB, status=removed.status), (pod(0), failed(9)), nodes=NODES, taints_nodes=True), NOW)
    assert taints(again), "devices fail there again"


def test_a_program_that_fails_on_every_node_taints_none_of_them_together() -> None:
    """An assertion that fails in a kernel looks like an error of the device."""
    status = {name: NodeStatus(device_failures=3, uid=f"{name}-uid") for name in NODES}
    of = replace(JOB, status=replace(JOB.status, nodes=status))
    decision = decide(view(of, running(0, 1), nodes=NODES, taints_nodes=True), NOW)
    assert taints(decision) == []
    assert "3 on node bad, 3 on node good." in condition(decision.status, "DeviceFailing").message


def test_the_condition_about_a_thousand_nodes_is_one_that_the_api_server_takes() -> None:
    many = {f"ip-10-0-{number // 256}-{number % 256}.eu-central-1.compute.internal": 3 for number in range(1000)}
    nodes = {name: replace(NODES["bad"], name=name, uid=f"{name}-uid", tainted=True) for name in many}
    status = {name: NodeStatus(device_failures=count, uid=f"{name}-uid", tainted=True) for name, count in many.items()}
    of = replace(JOB, status=replace(JOB.status, nodes=status))
    message = condition(decide(view(of, running(0, 1), nodes=nodes), NOW).status, "DeviceFailing").message
    assert len(message) < 32768, "the definition allows no more"
    assert "and on 980 other nodes" in message


def test_only_with_fixed_nodes_new_pods_avoid_the_node() -> None:
    """Karpenter ignores pods that name nodes which they avoid: no node would come for them."""
    pods = (pod(0), failed(2, finished=ago(600)))
    for fixed, avoid in ((False, ()), (True, ("bad",))):
        decision = decide(view(after_failures(3), pods, nodes=NODES, fixed_nodes=fixed), NOW)
        assert created(decision) == [1]
        assert [each.avoid for each in decision.actions if isinstance(each, CreatePod)] == [avoid]


def test_a_job_that_ends_keeps_the_condition() -> None:
    ended = decide(view(after_failures(3), (pod(0, "Succeeded"), pod(1)), nodes=NODES), NOW)
    assert holds(ended.status, "Succeeded")
    assert holds(ended.status, "DeviceFailing")
