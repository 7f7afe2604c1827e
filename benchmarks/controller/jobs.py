"""The jobs of the benchmark, as manifests: the same workers, with the same template, as ElasticJobs and as PyTorchJobs.

kind = ELASTIC_JOB
kind.manifest("job-0", workers=2)
kind.resize(3)                  # a merge patch of the job
kind.path("turn-1")             # /apis/elastic.pytorch.org/v1alpha1/namespaces/turn-1/elasticjobs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidewater.elasticjob import names

WORKERS = 2
RESIZED = 3
LEAST, MOST = 1, 4
PORT = 23456
"""training-operator adds this port to containers without it, so both have it in the template."""


@dataclass(frozen=True)
class Kind:
    """A kind of jobs."""

    api_version: str
    kind: str
    plural: str
    replicas: str
    """The field of the specification that has the replica types."""
    container: str
    """The name that the controller wants for the container that trains."""
    extra: Mapping[str, Any]
    """What else the specification needs for an elastic job, without its bounds."""
    bounds: str = ""
    """The field that has the bounds; empty: the specification itself."""

    def path(self, namespace: str) -> str:
        """Return the path of a namespace's jobs in the API."""
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}"

    def manifest(self, name: str, workers: int = WORKERS, most: int = MOST) -> dict[str, Any]:
        """Return a job that can grow to `most` workers."""
        bounds: dict[str, Any] = {"minReplicas": LEAST, "maxReplicas": most}
        if self.bounds:
            bounds = {self.bounds: {**self.extra[self.bounds], **bounds}}
        spec: dict[str, Any] = {**self.extra, **bounds}
        worker = {"replicas": workers, "restartPolicy": "ExitCode", "template": template(self.container)}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": {**spec, self.replicas: {"Worker": worker}},
        }

    def resize(self, workers: int) -> dict[str, Any]:
        """Return the merge patch that gives a job another size."""
        return {"spec": {self.replicas: {"Worker": {"replicas": workers}}}}


def template(container: str) -> dict[str, Any]:
    """Return the pods' template. Nothing runs them, so the image need not exist."""
    return {
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": "registry.invalid/training:1",
                    "command": ["torchrun"],
                    "args": ["--nproc-per-node=1", "/code/train.py", "--epochs=10"],
                    "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                    "ports": [{"name": "pytorchjob-port", "containerPort": PORT}],
                    "resources": {
                        "requests": {"cpu": "4", "memory": "16Gi"},
                        "limits": {"memory": "16Gi"},
                    },
                }
            ]
        }
    }


def job_name(number: int) -> str:
    """Return the name of a job of a turn."""
    return f"job-{number}"


def worker_name(job: str, index: int) -> str:
    """Return the name that both controllers give to a worker's pod."""
    return f"{job}-worker-{index}"


ELASTIC_JOB = Kind(
    api_version=names.API_VERSION,
    kind=names.KIND,
    plural=names.PLURAL,
    replicas="replicaSpecs",
    container=names.WORKER_CONTAINER,
    extra={
        "rdzvEndpoint": "rendezvous:2379",
        "launcher": "torchrun",
    },
)
PYTORCH_JOB = Kind(
    api_version="kubeflow.org/v1",
    kind="PyTorchJob",
    plural="pytorchjobs",
    replicas="pytorchReplicaSpecs",
    container="pytorch",
    extra={"elasticPolicy": {"rdzvBackend": "c10d"}},
    bounds="elasticPolicy",
)
