"""Nodes that Karpenter brings, as Kubernetes and EC2 show them, and what EC2 may do to them.

nodes = surge_nodes(checkout)             # {"ip-10-0-…": "i-0…"}
interrupt(checkout, nodes["ip-10-0-…"])   # the notice of a Spot interruption: two minutes later the instance ends
with no_capacity(checkout, "*"):          # EC2 has no instance of any type
    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.checkout import PATIENCE_SECONDS, Checkout, wait_until
from tests.e2e.training import node_of
from tidewater.controller.cluster.client import NODE_CLAIMS
from tidewater.kube.kinds import NODES

SURGE = "tidewater.dev/nodes=surge"
WORKERS = "tidewater.dev/node-role=worker"

Object = dict[str, Any]


def nodes(checkout: Checkout, selector: str) -> dict[str, str]:
    """Map the names of the nodes that a selector finds to the ids of their instances."""
    found = checkout.objects(NODES, labels=selector)
    return {node["metadata"]["name"]: str(node["spec"].get("providerID", "")).rpartition("/")[2] for node in found}


def surge_nodes(checkout: Checkout) -> dict[str, str]:
    """Map the names of Karpenter's nodes to the ids of their instances."""
    return nodes(checkout, SURGE)


def claims(checkout: Checkout) -> list[Object]:
    """Return Karpenter's NodeClaims, oldest first."""
    return checkout.objects(NODE_CLAIMS)


def drifted(claim: Object) -> bool:
    """Return whether a NodeClaim no longer matches the configuration."""
    conditions = claim.get("status", {}).get("conditions", ())
    return any(each["type"] == "Drifted" and each["status"] == "True" for each in conditions)


def draining(claim: Object) -> bool:
    """Return whether Karpenter is draining a node. A drained node doesn't count while its instance is terminated.

    Budgets count like that: BuildDisruptionBudgetMapping in pkg/controllers/disruption of kubernetes-sigs/karpenter.
    """
    conditions = claim.get("status", {}).get("conditions", ())
    ending = any(each["type"] == "InstanceTerminating" and each["status"] == "True" for each in conditions)
    return "deletionTimestamp" in claim["metadata"] and not ending


def instances(checkout: Checkout, *filters: tuple[str, str]) -> dict[str, Object]:
    """Return the instances of the account that EC2 bills, by id; of these only those that match the filters."""
    live = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    wanted = [live, *({"Name": name, "Values": [value]} for name, value in filters)]
    found = checkout.client("ec2").describe_instances(Filters=wanted)
    listed = [instance for reservation in found["Reservations"] for instance in reservation["Instances"]]
    return {instance["InstanceId"]: instance for instance in listed}


def node_groups(checkout: Checkout) -> list[str]:
    """Return the names of the clusters' node groups, also of those that are being made."""
    eks = checkout.client("eks")
    clusters = eks.list_clusters()["clusters"]
    return [name for cluster in clusters for name in eks.list_nodegroups(clusterName=cluster)["nodegroups"]]


def surge_instances(checkout: Checkout) -> dict[str, Object]:
    """Return the instances that Karpenter has started and EC2 bills, by id."""
    return instances(checkout, ("tag-key", "karpenter.sh/nodepool"))


def instance_of(checkout: Checkout, pod: str) -> str:
    """Return the id of the instance that a worker pod runs on."""
    return nodes(checkout, WORKERS)[node_of(checkout, pod)]


def terminate(checkout: Checkout, instance: str) -> None:
    """End an instance at once, as EC2 does when its host fails or a person asks for it."""
    checkout.client("ec2").terminate_instances(InstanceIds=[instance])


def wait_for_surge_nodes(checkout: Checkout, expected: set[str], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until Karpenter's nodes are exactly these."""
    named = ", ".join(sorted(expected)) or "none"
    wait_until(f"surge nodes: {named}", lambda: set(surge_nodes(checkout)) == expected, seconds=seconds)


def wait_for_surge_count(checkout: Checkout, count: int, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until Karpenter has this number of NodeClaims, nodes and instances."""

    def settled() -> bool:
        return len(claims(checkout)) == len(surge_nodes(checkout)) == len(surge_instances(checkout)) == count

    wait_until(f"{count} NodeClaims, nodes and instances", settled, seconds=seconds)


def interrupt(checkout: Checkout, *ids: str) -> None:
    """Give instances the notice of a Spot interruption, at the same time."""
    checkout.run(f"localcloud interrupt {' '.join(ids)}")


@contextmanager
def no_capacity(checkout: Checkout, *types: str) -> Iterator[None]:
    """Have EC2 answer that it has no instance of these types within the block; `*` is a wildcard."""
    checkout.run(f"localcloud capacity --none '{','.join(types)}'")
    try:
        yield
    finally:
        checkout.run("localcloud capacity --restore")
