"""ElasticJobs for tests, in the shape of the old controller's examples."""

from __future__ import annotations

from typing import Any

from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import ElasticJob

Manifest = dict[str, Any]

NAMESPACE = "default"


def template(**spec: Any) -> Manifest:
    """Return a pod template with one container that trains."""
    container = {"name": names.WORKER_CONTAINER, "image": "trainer:1", "args": ["train.py"]}
    return {"spec": {"containers": [container], **spec}}


def manifest(name: str = "imagenet", replicas: int = 2, low: int = 1, high: int = 3, **spec: Any) -> Manifest:
    """Return an ElasticJob as a user applies it; `spec` adds fields."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379",
            "minReplicas": low,
            "maxReplicas": high,
            "replicaSpecs": workers(replicas),
            **spec,
        },
    }


def workers(replicas: int = 2, **fields: Any) -> Manifest:
    """Return replicaSpecs with workers alone; `fields` adds to those of the type."""
    return {names.WORKER: {"replicas": replicas, "restartPolicy": "ExitCode", "template": template(), **fields}}


def job(name: str = "imagenet", **changes: Any) -> ElasticJob:
    """Return the same as the controller reads it, after the API server has stored it."""
    made = manifest(name, **changes)
    made["metadata"] |= {"uid": f"uid-of-{name}", "generation": 1, "resourceVersion": "1"}
    return codec.job_of(made)
