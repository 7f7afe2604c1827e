"""What Karpenter v1.14.0 says, in its words, for tests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.controller.fakes import virtual
from tidewater.controller.cluster.client import NODE_CLAIMS, NODE_CLASSES, NODE_POOLS
from tidewater.controller.cluster.mirror import Key
from tidewater.kube.kinds import Kind

START = virtual.BEGINNING
KEY = Key("training", "digits-worker-1")

NO_OFFERING = (
    "Failed to schedule pod, incompatible requirements, no instance type has the required offering,"
    ' requirements=karpenter.sh/capacity-type In [spot], resources={"pods":"3"}'
)
LIMIT = "Failed to schedule pod, node limits have been exhausted for nodepool (NodePool=workers)"
NO_CAPACITY = (
    "NodeClaim workers-x7k2p event: insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We"
    " currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a)."
)
NO_QUOTA = (
    "NodeClaim workers-x7k2p event: insufficient capacity, with fleet error(s), VcpuLimitExceeded: You have requested"
    " more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket"
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(reason: str, message: str, seconds: float = 0, kind: str = "Pod", name: str = KEY.name) -> dict[str, Any]:
    time = at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = KEY.namespace if kind == "Pod" else ""
    return {
        "metadata": {"name": f"{name}.{reason}.{seconds}", "namespace": namespace or "default"},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "source": {"component": "karpenter"},
    }


def failed(message: str, seconds: float = 0) -> dict[str, Any]:
    return event("FailedScheduling", message, seconds)


def nominated(claim: str, seconds: float = 0) -> dict[str, Any]:
    return event("Nominated", f"Pod should schedule on: nodeclaim/{claim}", seconds)


def short(message: str, seconds: float = 0, claim: str = "workers-x7k2p") -> dict[str, Any]:
    return event("InsufficientCapacityError", message, seconds, "NodeClaim", claim)


def condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    turned = "2026-01-01T00:00:00Z"
    return {"type": type, "status": status, "reason": reason or type, "message": message, "lastTransitionTime": turned}


def resource(kind: Kind, name: str, *conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": list(conditions)},
    }


def claim(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    return resource(NODE_CLAIMS, name, *conditions)


def pool(*conditions: dict[str, Any], name: str = "workers", **spec: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "workers"}
    return resource(NODE_POOLS, name, *conditions, template={"spec": {"nodeClassRef": reference}}, **spec)


def node_class(*conditions: dict[str, Any], name: str = "workers") -> dict[str, Any]:
    return resource(NODE_CLASSES, name, *conditions)


READY = condition("Ready", "True")
UNTRIED = condition("Launched", "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation")
REFUSED = condition(
    "Launched",
    "Unknown",
    "Unauthorized",
    "Error creating fleet request: User is not authorized to perform this operation because no identity-based policy"
    " allows it",
)
LAUNCHED = condition("Launched", "True")
POOL_UNREADY = (
    condition("NodeClassReady", "False", "UnhealthyDependents", "SubnetsReady=False, ValidationSucceeded=False"),
    condition("NodeRegistrationHealthy", "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation"),
    condition("Ready", "False", "UnhealthyDependents", "NodeClassReady=False"),
)
NO_SUBNETS = (
    condition("AMIsReady", "True"),
    condition("SubnetsReady", "False", "SubnetsNotFound", "SubnetSelector did not match any Subnets"),
    condition(
        "ValidationSucceeded",
        "False",
        "DependenciesNotReady",
        "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution",
    ),
    condition("Ready", "False", "UnhealthyDependents", "SubnetsReady=False, ValidationSucceeded=False"),
)


def broken() -> list[tuple[Kind, dict[str, Any]]]:
    """Return a node class without subnets, and its NodePool, as an API server takes them."""
    tagged = [{"tags": {"cluster": "any"}}]
    classes = node_class(*NO_SUBNETS)
    classes["spec"] = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": tagged,
        "securityGroupSelectorTerms": tagged,
        "role": "node",
    }
    pools = pool(*POOL_UNREADY)
    pools["spec"]["template"]["spec"]["requirements"] = []
    return [(NODE_CLASSES, classes), (NODE_POOLS, pools)]
