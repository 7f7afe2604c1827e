"""Removes pods from nodes: evicts those of a node that is being drained, ends those of a node that is gone."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from localcloud.kube.client import Client
from localcloud.kube.errors import ApiError

POLL_SECONDS = 0.25
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
RETRIED = (429, 500)  # a disruption budget does not allow the eviction now


def delete_node(client: Client, name: str) -> None:
    """Delete a Node object and finish the pods bound to it.

    Kubernetes' pod garbage collector does the same, with the same condition, but only after 40 s.
    """
    client.delete(f"/api/v1/nodes/{name}")
    for pod in pods_on(client, name):
        finish_orphan(client, pod)


def drain(client: Client, name: str, deadline: float) -> None:
    """Cordon a node and evict its pods, each with its own grace period.

    Args:
        deadline: In seconds of time.monotonic(); pods that are left then are not touched.
    """
    try:
        client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    except ApiError as error:
        if error.status == 404:
            return
        raise
    asked: set[str] = set()
    while time.monotonic() < deadline:
        pods = [pod for pod in pods_on(client, name) if evictable(pod)]
        if not pods:
            return
        for pod in pods:
            if pod["metadata"]["uid"] not in asked and _evict(client, pod):
                asked.add(pod["metadata"]["uid"])
        time.sleep(POLL_SECONDS)


def pods_on(client: Client, node: str) -> list[dict[str, Any]]:
    """Return the pods bound to a node."""
    items: list[dict[str, Any]] = client.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
    return items


def evictable(pod: dict[str, Any]) -> bool:
    """Return whether a drain waits for this pod: not if it is finished, a DaemonSet's or a mirror pod."""
    metadata = pod["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
    mirrored = MIRROR_ANNOTATION in metadata.get("annotations", {})
    finished = pod.get("status", {}).get("phase") in FINISHED and "deletionTimestamp" not in metadata
    return not (finished or mirrored or "DaemonSet" in owners)


def orphan_status(pod: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the status that Kubernetes gives a pod when its node is gone; job policies match on it."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status: dict[str, Any] = {"conditions": [condition]}
    if pod.get("status", {}).get("phase") not in FINISHED:
        status["phase"] = "Failed"
    return {"status": status}


def finish_orphan(client: Client, pod: dict[str, Any]) -> None:
    """Mark a pod of a dead node failed and delete it without waiting for a kubelet."""
    path = _path(pod)
    try:
        client.patch(f"{path}/status", orphan_status(pod, datetime.now(UTC)))
        client.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
    except ApiError as error:
        if error.status not in (404, 409):  # deleted, or replaced by another of the same name
            raise


def _evict(client: Client, pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
    }
    try:
        client.create(f"{_path(pod)}/eviction", body)
    except ApiError as error:
        if error.status in RETRIED:
            return False
        if error.status != 404:
            raise
    return True


def _path(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
