"""Manifests of jobs for the tests."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]

ABSENT = object()
"""As a value of a change: remove the field."""

WORKER = "spec/replicaSpecs/Worker"
POD = f"{WORKER}/template/spec"


def imagenet() -> Manifest:
    """Return the job of the blog post on the TorchElastic controller, with the omitted lines filled in."""
    return {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "imagenet", "namespace": "default"},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379",
            "minReplicas": 1,
            "maxReplicas": 3,
            "replicaSpecs": {
                "Worker": {
                    "replicas": 2,
                    "restartPolicy": "ExitCode",
                    "template": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [_trainer()]}},
                }
            },
        },
    }


def _trainer() -> Manifest:
    return {
        "name": "elasticjob-worker",
        "image": "torchelastic/examples:0.2.0rc1",
        "imagePullPolicy": "Always",
        "args": [
            "--nproc_per_node=1",
            "/workspace/examples/imagenet/main.py",
            "--arch=resnet18",
            "--epochs=20",
            "--batch-size=32",
            "--workers=0",
            "/workspace/data/tiny-imagenet-200",
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 0.5}},
    }


def changed(manifest: Mapping[str, Any], changes: Mapping[str, object]) -> Manifest:
    """Return a copy with other values; a key is a path with slashes, and numbers in it are indices of lists."""
    result = copy.deepcopy(dict(manifest))
    for path, value in changes.items():
        *parents, last = path.split("/")
        place: Any = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        if value is ABSENT:
            del place[last]
        elif isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = copy.deepcopy(value)
    return result


def job(changes: Mapping[str, object] | None = None) -> Manifest:
    """Return imagenet with changes."""
    return changed(imagenet(), changes or {})


def container(name: str) -> Manifest:
    """Return a container."""
    return {"name": name, "image": "busybox"}


def replica(*containers: str, **fields: object) -> Manifest:
    """Return the spec of a replica type with these containers."""
    return {"template": {"spec": {"containers": [container(name) for name in containers]}}, **fields}


ACCEPTED: Mapping[str, Mapping[str, object]] = {
    "as-in-the-blog-post": {},
    "without-bounds": {"spec/minReplicas": ABSENT, "spec/maxReplicas": ABSENT},
    "without-a-minimum": {"spec/minReplicas": ABSENT},
    "without-a-restart-policy": {f"{WORKER}/restartPolicy": ABSENT},
    "old-scheduling-policy": {"spec/schedulingPolicy": {"minAvailable": 2}},
    "old-fields": {
        "spec/cleanPodPolicy": "Running",
        "spec/ttlSecondsAfterFinished": 0,
        "spec/activeDeadlineSeconds": 3600,
        "spec/backoffLimit": 0,
    },
    "placeholder-of-the-old-sample": {"spec/rdzvEndpoint": "<your_etcd_endpoint>:<your_etcd_port>"},
    "one-container-of-any-name": {f"{POD}/containers/0/name": "main"},
    "a-sidecar": {f"{POD}/containers": [container("proxy"), container("elasticjob-worker")]},
    "a-master-and-parameter-servers": {
        "spec/replicaSpecs/Master": replica("a"),
        "spec/replicaSpecs/PS": replica("a", "b", replicas=2, minReplicas=1, maxReplicas=4),
    },
    "roles-of-torchx": {
        "spec/replicaSpecs/trainer": replica("a"),
        "spec/replicaSpecs/reader": replica("a", replicas=2, minReplicas=1),
    },
    "types-of-the-same-length": {"spec/replicaSpecs/PS1": replica("a"), "spec/replicaSpecs/ps2": replica("a")},
    "sizes": {"spec/sizes": [1, 3], "spec/autoscale": True},
    "steps": {"spec/sizeStep": 2},
    "every-launcher-has-a-field": {"spec/launcher": "torchrun", "spec/rdzvBackend": "etcd-v2"},
    "the-longest-name": {"metadata/name": "a" * 63},
    "a-name-that-begins-with-a-digit": {"metadata/name": "1net"},
    "a-name-with-a-dot": {"metadata/name": "image.net"},
    "two-containers-with-other-names": {f"{POD}/containers": [container("train"), container("sidecar")]},
    "none-of-them-available": {"spec/schedulingPolicy": {"minAvailable": 0}},
    "more-available-than-there-are": {"spec/schedulingPolicy": {"minAvailable": 4}},
    "a-deadline-of-zero": {"spec/activeDeadlineSeconds": 0},
    "empty-choices": {
        "spec/cleanPodPolicy": "",
        f"{WORKER}/restartPolicy": "",
        f"{POD}/restartPolicy": "",
        f"{POD}/containers/0/imagePullPolicy": "",
    },
    "a-single-master": {"spec/replicaSpecs/Master": replica("a", podNames="Single")},
    "a-single-worker": {f"{WORKER}/replicas": 1, f"{WORKER}/podNames": "Single", "spec/maxReplicas": 1},
    "successive-workers": {f"{WORKER}/podNames": "Successive"},
    "a-single-master-where-the-workers-meet": {
        f"{WORKER}/podNames": "Successive",
        "spec/rdzvEndpoint": "imagenet-master:29400",
    },
    "a-label-of-torchx": {f"{WORKER}/indexLabel": "torchx.pytorch.org/replica-id"},
    "a-label-without-a-prefix": {f"{WORKER}/indexLabel": "Replica_ID.2"},
    "a-restart-of-the-whole-job": {"spec/restartScope": "Job", "spec/successPolicy": "AllPods"},
    "replicas-of-several-pods": {"spec/launcher": "tidewater", "spec/workersPerReplica": 4},
    "as-many-pods-as-there-may-be": {"spec/launcher": "tidewater", "spec/workersPerReplica": 1666},
    "replicas-in-one-zone": {
        "spec/launcher": "tidewater",
        "spec/workersPerReplica": 2,
        "spec/topologyKey": "topology.kubernetes.io/zone",
        "spec/topologyRequired": True,
    },
    "metadata-of-pods": {f"{WORKER}/template/metadata": {"creationTimestamp": None, "labels": {"a": "b"}}},
    "fields-of-a-pod-that-are-not-declared": {f"{POD}/shareProcessNamespace": True, f"{POD}/dnsPolicy": "Default"},
}
