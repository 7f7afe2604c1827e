"""Label keys of the Kubernetes objects, and functions that make sets of them.

    labels.worker_pods("digits")    # {"app.kubernetes.io/name": "tidewater", ...}
    labels.selector(labels.worker_pods("digits"))

The ``app.kubernetes.io`` keys are Kubernetes' recommended labels:
https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "tidewater.dev"

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"

JOB = f"{PREFIX}/job"
NODE_ROLE = f"{PREFIX}/node-role"
NODES = f"{PREFIX}/nodes"
POOL = f"{PREFIX}/pool"
CODE_DIGEST = f"{PREFIX}/code-sha256"

APPLICATION = "tidewater"

COMPONENT_WORKER = "worker"
COMPONENT_ETCD = "etcd"
COMPONENT_DATASET = "dataset"
COMPONENT_PACKAGES = "packages"
COMPONENT_CONTROLLER = "controller"

NODE_ROLE_WORKER = "worker"
NODE_ROLE_SYSTEM = "system"
# Nodes for jobs that ask for them by the name of their pool; others, also the stack's own, don't get them.
NODE_ROLE_POOL = "pool"

# Of the workers' nodes: those that are always there, and those that come and go with the workers.
NODES_CORE = "core"
NODES_SURGE = "surge"

TAINT_WORKER = f"{PREFIX}/worker"

# Of a node on which workers of a job have ended again and again by an error of a device.
TAINT_DEVICE_FAILING = f"{PREFIX}/device-failing"


def component(name: str, *, instance: str) -> dict[str, str]:
    """Return the labels of the objects of one component (``COMPONENT_*``) of one instance (a job or a stack)."""
    return {NAME: APPLICATION, INSTANCE: instance, COMPONENT: name}


def worker_pods(job: str) -> dict[str, str]:
    """Return the labels of the worker pods of ``job``, which a selector for them also uses."""
    return {**component(COMPONENT_WORKER, instance=job), JOB: job}


def either(*, workers: bool, pools: Sequence[str]) -> dict[str, Any]:
    """Return a node affinity for the stack's own worker nodes, or those of the pools with these names, or both."""
    wanted = {NODE_ROLE: [NODE_ROLE_WORKER] if workers else [], POOL: list(pools)}
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
        for key, values in wanted.items()
        if values
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def selector(labels: Mapping[str, str]) -> str:
    """Return ``labels`` as a selector string for ``kubectl -l``, in a stable order."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
