"""What a pod asks of a node: amounts of resources, in thousandths of their units.

    requested(pod["spec"])        # {"cpu": 500, "memory": 1073741824000, "pods": 1000}

The rules are Kubernetes' own: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
and https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

Spec = Mapping[str, Any]
Amounts = dict[str, int]

PODS = "pods"
"""A resource: each pod takes one, and a kubelet runs only so many."""

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {letter: Decimal(1000) ** power for power, letter in enumerate(("n", "u", "m", "", "k", *"MGTPE"), -3)}
_FACTORS = {**_BINARY, **_DECIMAL}


@functools.lru_cache(maxsize=4096)
def thousandths(quantity: str) -> int:
    """Return a quantity in thousandths of the unit, rounded up.

    Raises:
        ValueError: It is no quantity of Kubernetes.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None or found[1].count(".") > 1 or not any(map(str.isdigit, found[1])):
        raise ValueError(f"{quantity!r} is no quantity")
    number = Decimal(f"{found[1]}{found[2] or ''}") * _FACTORS[found[3] or ""]
    return int((number * 1000).to_integral_value(ROUND_CEILING))


def amounts(quantities: Mapping[str, object] | None) -> Amounts:
    """Return quantities by resource. Raise ValueError if one of them is none."""
    return {name: thousandths(str(quantity)) for name, quantity in (quantities or {}).items()}


def requested(spec: Spec) -> Amounts:
    """Return what a pod asks of its node. Raise ValueError if its spec has something that is no quantity.

    Init containers run one after the other, those with restartPolicy Always until the pod ends. What the pod as a whole
    asks for stands instead: https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
    """
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        mine = _sum(sidecars, _container(container))
        if container.get("restartPolicy") == "Always":
            sidecars = mine
        most = _most(most, mine)
    containers: Sequence[Spec] = spec.get("containers") or ()
    running = functools.reduce(_sum, map(_container, containers), sidecars)
    whole = {**_most(most, running), **_container(spec)}
    return _sum(_sum(whole, amounts(spec.get("overhead"))), {PODS: 1000})


def _container(container: Spec) -> Amounts:
    """Return what a container or a pod asks for: where it names only a limit, the API server makes that the request."""
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _most(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
