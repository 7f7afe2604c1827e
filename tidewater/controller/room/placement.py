"""Which nodes a pod may be on: its node selector, its required node affinity, and the nodes' taints.

    rules = rules_of(template["spec"])      # None: more than that restricts it
    admits(node, rules)

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tidewater.controller.room.requests import Amounts, Spec, amounts

Rules = bytes
"""What restricts a pod to some nodes, as JSON, so that equal rules are equal: see `rules_of`."""

STATE_TAINTS = "node.kubernetes.io/"
"""Begins the keys of taints that say how a node is now, and not what it is for."""

_HARD = ("NoSchedule", "NoExecute")
_DEFAULT_SCHEDULER = ("", "default-scheduler")
_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class Node:
    """What matters of a node for the pods that it may get.

    Attributes:
        open: whether it takes new pods: it is ready and not being deleted.
        allocatable: what it has for pods.
        labels: with its name as `metadata.name`, the only field that an affinity may ask for.
        taints: those that keep pods away.
    """

    open: bool
    allocatable: Amounts
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...] = ()


def read_node(manifest: Spec) -> Node:
    """Return what matters of a Node object."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())
    taints = [(each.get("key", ""), each.get("value", ""), each.get("effect", "")) for each in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        taints.append((f"{STATE_TAINTS}unschedulable", "", "NoSchedule"))
    return Node(
        open=ready and not metadata.get("deletionTimestamp"),
        allocatable=amounts(status.get("allocatable")),
        labels={**(metadata.get("labels") or {}), _NAME: metadata["name"]},
        taints=tuple(taint for taint in taints if taint[2] in _HARD),
    )


def in_order(node: Node) -> Node:
    """Return the node as it is when nothing is wrong with it."""
    return replace(node, open=True, taints=tuple(each for each in node.taints if not each[0].startswith(STATE_TAINTS)))


def rules_of(spec: Spec) -> Rules | None:
    """Return what restricts a pod to some nodes; None if that also depends on other objects or another program."""
    affinity = spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    together = ((affinity.get(kind) or {}).get(required) for kind in ("podAffinity", "podAntiAffinity"))
    spread = (each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in spec.get("topologySpreadConstraints") or ())
    volumes = spec.get("volumes") or ()
    bound = ("persistentVolumeClaim" in each or "ephemeral" in each for each in volumes)
    ports = (port.get("hostPort") for each in spec.get("containers") or () for port in each.get("ports") or ())
    others = ("nodeName", "resourceClaims", "resources", "runtimeClassName", "schedulingGates")
    scheduled = (spec.get("schedulerName") or "") in _DEFAULT_SCHEDULER
    if not scheduled or any(map(spec.get, others)) or any(map(any, (together, spread, bound, ports))):
        return None
    terms = ((affinity.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms")
    found = {"selector": spec.get("nodeSelector") or {}, "terms": terms, "tolerations": spec.get("tolerations") or []}
    return msgspec.json.encode(found, order="deterministic")


def admits(node: Node, rules: Rules) -> bool:
    """Return whether a pod with these rules may be on the node, if it has room."""
    found = _decoded(rules)
    if not node.open or not all(node.labels.get(key) == value for key, value in found["selector"].items()):
        return False
    if not all(any(_tolerates(each, taint) for each in found["tolerations"]) for taint in node.taints):
        return False
    return found["terms"] is None or any(_matches(term, node.labels) for term in found["terms"])


@functools.lru_cache(maxsize=256)
def _decoded(rules: Rules) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(rules, type=dict[str, Any])
    return found


def _tolerates(toleration: Spec, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    operator = toleration.get("operator") or "Equal"
    if (toleration.get("effect") or effect) != effect or (toleration.get("key") or key) != key:
        return False
    return operator == "Exists" or (operator == "Equal" and (toleration.get("value") or "") == value)


def _matches(term: Spec, labels: Mapping[str, str]) -> bool:
    """Return whether a term of an affinity holds. One without expressions never does."""
    expressions = [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]
    return bool(expressions) and all(_holds(each, labels) for each in expressions)


def _holds(expression: Spec, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), list[str](expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _exceeds(value, values[:1])
        case "Lt":
            return bool(values) and value is not None and _exceeds(values[0], [value])
        case _:
            return False


def _exceeds(value: str | None, bound: Sequence[str]) -> bool:
    try:
        return value is not None and int(value) > int(bound[0])
    except (ValueError, IndexError):
        return False
