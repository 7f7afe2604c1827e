"""Who reaches whom under NetworkPolicies, as Kubernetes defines them: a pure function of policies and labels.

    network = Network(policies, {"training": {...}})
    network.lets(Pod("training", {"app": "worker"}), Pod("training", {"app": "etcd"}), 2379)

A pod that a policy for a direction selects is isolated in that direction, and then lets through only what at least one
of its policies allows. A connection needs both sides. An address that is no pod's has no policies of its own.
https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Pod:
    """A pod; `address` matters for policies with an `ipBlock` only."""

    namespace: str
    labels: Labels
    address: str = "100.64.9.9"


@dataclass(frozen=True)
class Host:
    """An address that belongs to no pod."""

    address: str


Place = Pod | Host


@dataclass(frozen=True)
class Network:
    """The policies of a cluster, and the labels of its namespaces by name."""

    policies: Sequence[Manifest]
    namespaces: Mapping[str, Labels]

    def lets(self, source: Place, destination: Place, port: int, protocol: str = "TCP") -> bool:
        """Return whether a connection from `source` to a port of `destination` is allowed."""
        return self._passes("egress", source, destination, port, protocol) and self._passes(
            "ingress", destination, source, port, protocol
        )

    def _passes(self, direction: str, pod: Place, other: Place, port: int, protocol: str) -> bool:
        if isinstance(pod, Host):
            return True
        own = [each for each in self.policies if direction in kinds(each) and _applies(each, pod)]
        rules = [(each, rule) for each in own for rule in each["spec"].get(direction) or ()]
        return not own or any(
            self._admits(policy["metadata"]["namespace"], rule, direction, other) and opens(rule, port, protocol)
            for policy, rule in rules
        )

    def _admits(self, namespace: str, rule: Manifest, direction: str, other: Place) -> bool:
        peers = rule.get("from" if direction == "ingress" else "to")
        return not peers or any(self._is_peer(peer, namespace, other) for peer in peers)

    def _is_peer(self, peer: Manifest, namespace: str, other: Place) -> bool:
        if "ipBlock" in peer:
            return in_block(peer["ipBlock"], other.address)
        if isinstance(other, Host):
            return False
        if "namespaceSelector" in peer:
            here = selects(peer["namespaceSelector"], self.namespaces[other.namespace])
        else:
            here = other.namespace == namespace
        return here and selects(peer.get("podSelector") or {}, other.labels)


def kinds(policy: Manifest) -> set[str]:
    """Return the directions that a policy is about: `ingress`, and `egress` if it has such rules, or what it says."""
    spec = policy["spec"]
    given = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    return {each.lower() for each in given}


def _applies(policy: Manifest, pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and selects(policy["spec"]["podSelector"], pod.labels)


def selects(selector: Manifest, labels: Labels) -> bool:
    """Return whether a label selector selects something with these labels; an empty one selects everything."""
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(expression: Manifest, labels: Labels) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case unknown:
            raise ValueError(f"{unknown} is no operator of a label selector")


def in_block(block: Manifest, address: str) -> bool:
    """Return whether an address is in an `ipBlock`."""
    found = ipaddress.ip_address(address)
    return found in ipaddress.ip_network(block["cidr"]) and not any(
        found in ipaddress.ip_network(each) for each in block.get("except") or ()
    )


def opens(rule: Manifest, port: int, protocol: str) -> bool:
    """Return whether a rule is for this port; one without ports is for all of them.

    Raises:
        ValueError: the rule names a port by its name, which the VPC CNI does not always resolve.
    """
    ports = rule.get("ports")
    return not ports or any(_is_open(each, port, protocol) for each in ports)


def _is_open(entry: Manifest, port: int, protocol: str) -> bool:
    if entry.get("protocol", "TCP") != protocol:
        return False
    first = entry.get("port")
    if first is None:
        return True
    if not isinstance(first, int | float):
        raise ValueError(f"port {first!r} has a name instead of a number")
    return bool(first <= port <= entry.get("endPort", first))
