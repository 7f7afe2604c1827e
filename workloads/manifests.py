"""What the manifests have in common, as pure functions.

The `*_manifest` functions of this package return Kubernetes objects in Kubernetes' own form (`apiVersion`, `kind`,
`metadata`, `spec`). A value that Pulumi knows only after it has made a resource is an argument, and is passed on as it
is; a test passes text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

import settings
from infra.outputs import POSIX_ID
from tidewater.contract import labels, stack
from tidewater.contract.code import download
from tidewater.contract.pod_defaults import confined
from tidewater.elasticjob import names

Manifest = dict[str, Any]
Text = pulumi.Input[str]

NON_ROOT: Manifest = stack.non_root(POSIX_ID)
"""`securityContext` of every pod of the stack."""

CONFINED: Manifest = confined()
"""`securityContext` of every container of the stack."""

JOB_PODS = {names.LABEL_GROUP_NAME: names.GROUP}
"""Labels of the pods of all ElasticJobs, those of other jobs than the stack's own too."""

DATA_DIRECTORY = stack.DATA_DIRECTORY
DATA_MOUNT: Manifest = {"name": "data", "mountPath": DATA_DIRECTORY}
DATASET_DIRECTORY = "/dataset"
DATASET_MOUNT: Manifest = {"name": "dataset", "mountPath": DATASET_DIRECTORY, "readOnly": True}
LUSTRE_MOUNT: Manifest = {"name": "lustre", "mountPath": stack.LUSTRE_DIRECTORY}
SCRATCH_MOUNT: Manifest = {"name": "scratch", "mountPath": "/tmp"}
PACKAGES_DIRECTORY = "/packages"
CODE_MOUNT: Manifest = {"name": "code", "mountPath": "/code"}
BUNDLE = "/code/bundle.zip"


def metadata(
    name: str, labels_: Mapping[str, str], *, namespace: str | None = None, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the `metadata` of an object. Its name is fixed, since people type it."""
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
    """Return the volume of the shared file system."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def lustre_volume(claim: str) -> Manifest:
    """Return the volume of the FSx for Lustre file system."""
    return {"name": "lustre", "persistentVolumeClaim": {"claimName": claim}}


def dataset_volume(claim: str) -> Manifest:
    """Return the volume of a dataset that is mounted from S3."""
    return {"name": "dataset", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}


def empty_volume(name: str, *, memory: str | None = None) -> Manifest:
    """Return an empty directory that exists as long as the pod; in memory, up to `memory`, if that is given."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": memory} if memory else {}}


def environment(values: Mapping[str, Text]) -> list[Manifest]:
    """Return the `env` of a container, in a stable order."""
    return [{"name": name, "value": values[name]} for name in sorted(values)]


def field(name: str, path: str) -> Manifest:
    """Return an entry of `env` that Kubernetes sets from a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def fetch_code(image: str, code_uri: Text, variables: Mapping[str, str]) -> Manifest:
    """Return the init container that downloads the training code, with the role of its pod identity."""
    own = environment({"HOME": "/tmp", **variables})
    return {**download(image, code_uri, BUNDLE, [CODE_MOUNT, SCRATCH_MOUNT]), "env": own}


SYSTEM_NODES = {labels.NODE_ROLE: labels.NODE_ROLE_SYSTEM}
WORKER_NODES = dict(stack.WORKER_NODES)
"""`nodeSelector` of the two node groups."""

ZONE = "topology.kubernetes.io/zone"
"""The label with a node's zone, of Kubernetes."""


def on_nodes(*, workers: bool, pools: Sequence[str]) -> Manifest:
    """Return what has a pod run on the stack's own worker nodes, or on those of pools, or on both."""
    return {"affinity": labels.either(workers=workers, pools=pools)} if pools else {"nodeSelector": WORKER_NODES}


def gpu_nodes(wanted: settings.Settings) -> Manifest:
    """Return what has a pod run on the nodes with GPUs."""
    return on_nodes(workers=wanted.workers.gpus > 0, pools=wanted.gpu_pools)
