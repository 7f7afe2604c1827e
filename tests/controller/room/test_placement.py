"""Which nodes a pod may be on."""

from __future__ import annotations

from typing import Any

import pytest

from tidewater.controller.room.placement import admits, in_order, read_node, rules_of


def node(*taints: dict[str, str], labels: dict[str, str] | None = None, ready: str = "True", **spec: Any) -> Any:
    return read_node(
        {
            "metadata": {"name": "n", "labels": labels or {}},
            "spec": {"taints": list(taints), **spec},
            "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": "4"}},
        }
    )


def may(of: Any, **spec: Any) -> bool:
    rules = rules_of(spec)
    assert rules is not None
    return admits(of, rules)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def required(*expressions: dict[str, Any], part: str = "matchExpressions") -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{part: list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_pod_without_rules_may_be_on_any_node_that_is_ready_and_open() -> None:
    assert may(node())
    assert not may(node(ready="False"))
    assert not may(node(ready="Unknown"))
    assert not may(node(unschedulable=True))
    assert not may(read_node({"metadata": {"name": "new"}}))


def test_a_node_in_order_is_one_without_what_may_pass() -> None:
    broken = node(taint("node.kubernetes.io/disk-pressure"), taint("gpu"), ready="False", unschedulable=True)
    assert not may(in_order(broken))
    assert may(in_order(broken), tolerations=[{"operator": "Exists", "key": "gpu"}])


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_pods_away_that_do_not_tolerate_it(toleration: dict[str, str], tolerates: bool) -> None:
    tainted = node(taint("gpu", "yes"), taint("soft", effect="PreferNoSchedule"))
    assert not may(tainted)
    assert may(tainted, tolerations=[toleration]) is tolerates


def test_a_node_selector_asks_for_labels() -> None:
    assert may(node(labels={"zone": "a"}), nodeSelector={"zone": "a"})
    assert not may(node(labels={"zone": "b"}), nodeSelector={"zone": "a"})


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["1", "4"], True),
        ("In", ["1"], False),
        ("NotIn", ["1"], True),
        ("NotIn", ["4"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], True),
        ("Gt", ["4"], False),
        ("Lt", ["5"], True),
        ("Lt", ["4"], False),
        ("Lt", ["many"], False),
        ("Unheard", [], False),
    ],
)
def test_a_required_affinity_asks_for_labels(operator: str, values: list[str], holds: bool) -> None:
    expression = {"key": "gpus", "operator": operator, "values": values}
    assert may(node(labels={"gpus": "4"}), affinity=required(expression)) is holds


def test_an_affinity_holds_if_one_term_holds_and_may_ask_for_the_nodes_name() -> None:
    name = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    assert may(node(), affinity=required(name, part="matchFields"))
    assert not may(node(), affinity=required())
    assert may(node(), affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}})


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"volumes": [{"name": "data", "ephemeral": {}}]},
        {"containers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]},
        {"resourceClaims": [{"name": "gpu"}]},
        {"resources": {"requests": {"cpu": "1"}}},
        {"runtimeClassName": "gvisor"},
        {"schedulerName": "volcano"},
        {"schedulingGates": [{"name": "wait"}]},
        {"nodeName": "n"},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_it_is_not_said_where_a_pod_may_be_if_more_than_nodes_decides_that(spec: dict[str, Any]) -> None:
    assert rules_of(spec) is None


def test_what_is_only_preferred_is_no_rule() -> None:
    spec: dict[str, Any] = {
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "schedulerName": "default-scheduler",
    }
    assert may(node(), **spec)
