"""What the manifests have in common, as pure functions.

The `*_manifest` functions of this package return Kubernetes objects as Kubernetes writes them (`apiVersion`,
`kind`, `metadata`, `spec`). Values that are known only after something was made are arguments, and are passed on
untouched: a test passes text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from contract import labels
from infra.outputs import POSIX_ID

Manifest = dict[str, Any]
Text = pulumi.Input[str]

NON_ROOT: Manifest = {
    "runAsNonRoot": True,
    "runAsUser": POSIX_ID,
    "runAsGroup": POSIX_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""`securityContext` of every pod of ours."""

CONFINED: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""`securityContext` of every container of ours."""

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""Annotation for objects that are done when they exist, not when they have come to an end."""

DATA_DIRECTORY = "/data"
DATA_MOUNT: Manifest = {"name": "data", "mountPath": DATA_DIRECTORY}
SCRATCH_MOUNT: Manifest = {"name": "scratch", "mountPath": "/tmp"}
CODE_MOUNT: Manifest = {"name": "code", "mountPath": "/code"}
BUNDLE = "/code/bundle.zip"


def metadata(
    name: str, labels_: Mapping[str, str], *, namespace: str | None = None, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """`metadata` of an object; a fixed name, since people type it."""
    found: Manifest = {
        "name": name,
        "labels": {**labels_, labels.PART_OF: labels.APPLICATION, labels.MANAGED_BY: "pulumi"},
    }
    if namespace is not None:
        found["namespace"] = namespace
    if annotations:
        found["annotations"] = dict(annotations)
    return found


def data_volume(claim: str) -> Manifest:
    """The shared file system."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def empty_volume(name: str, *, memory: str | None = None) -> Manifest:
    """An empty directory that lives as long as the pod; in memory if `memory` says how much."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": memory} if memory else {}}


def environment(values: Mapping[str, Text]) -> list[Manifest]:
    """`env` of a container, in a stable order."""
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def field(name: str, path: str) -> Manifest:
    """An entry of `env` that Kubernetes fills in from the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def fetch_code(image: str, code_uri: Text) -> Manifest:
    """The init container that brings the training code; it logs in by pod identity."""
    return {
        "name": "fetch-code",
        "image": image,
        "command": ["aws", "s3", "cp", "--only-show-errors", code_uri, BUNDLE],
        "env": environment({"HOME": "/tmp"}),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [CODE_MOUNT, SCRATCH_MOUNT],
    }


SYSTEM_NODES = {labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM}
WORKER_NODES = {labels.NODE_ROLE: labels.NODE_ROLE_WORKER}
"""`nodeSelector` for the one group and the other."""
