"""Objects as the API server has them, and metrics as a worker serves them, for the tests of `top` and `doctor`."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from tidewater.elastic.observe.metrics import PrometheusMetrics
from tidewater.elastic.training import Report
from tidewater.elasticjob import names

CREATED = "2026-11-23T10:00:00Z"
PORT = 9464

Object = dict[str, Any]


def job(name: str = "digits", *, namespace: str = "training", **status: Any) -> Object:
    """Return a job of one to four workers; two are wanted."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": CREATED},
        "spec": {
            "rdzvEndpoint": "etcd:2379",
            "minReplicas": 1,
            "maxReplicas": 4,
            "replicaSpecs": {names.WORKER: {"replicas": 2, "template": {}}},
        },
        "status": {"state": "Running", "desired": 2, "replicaStatuses": {names.WORKER: {"active": 2}}, **status},
    }


def pod(index: int, *, owner: str = "digits", uid: str = "", node: str = "node-1", **status: Any) -> Object:
    """Return a worker's pod, which serves metrics."""
    name = names.pod_name(owner, names.WORKER, index)
    return {
        "metadata": {
            "name": name,
            "namespace": "training",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": dict(names.pod_labels(owner, names.WORKER, index)),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "worker", "ports": [{"name": "metrics", "containerPort": PORT}]}],
        },
        "status": {"phase": "Running", **status},
    }


def unschedulable(index: int, message: str = "0/1 nodes are available: 1 Insufficient cpu.") -> Object:
    """Return the pod of a worker for which there is no room."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(index, node="", phase="Pending", conditions=[condition])


def event(reason: str, message: str, *, of: str = "digits", kind: str = "Normal", time: str = CREATED) -> Object:
    """Return an event about a job."""
    return {
        "metadata": {"uid": f"uid-{reason}-{time}", "namespace": "training", "creationTimestamp": time},
        "involvedObject": {"kind": names.KIND, "name": of, "uid": f"uid-{of}"},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
    }


class Trainer:
    """The metrics of one process, made by the trainer's own code."""

    def __init__(self, rank: int = 0) -> None:
        self._rank, self._step = rank, 0
        self._registry = CollectorRegistry()
        self._metrics = PrometheusMetrics(self._registry, job="digits", worker=f"digits-{rank}")

    def trains(self, steps: int, *, loss: float = 0.5, generation: int = 1, world_size: int = 2) -> None:
        """Commit steps with 30 samples of this process in each."""
        for _ in range(steps):
            self._step += 1
            self._metrics.committed(
                Report(
                    step=self._step,
                    epoch=3,
                    world_size=world_size,
                    generation=generation,
                    loss=loss,
                    rank=self._rank,
                    lr=0.1,
                    samples=tuple(range(30)),
                    batch_size=60,
                    step_seconds=0.1,
                    wait_seconds=0.02,
                    useful_seconds=0.1,
                )
            )

    def recovers(self, cause: str, seconds: float) -> None:
        """Count a recovery."""
        self._metrics.event("recovered", {"cause": cause, "seconds": seconds})

    def straggles(self, seconds: float) -> None:
        """Be the slow one."""
        self._metrics.straggles(seconds)

    @property
    def page(self) -> str:
        """Return what Prometheus gets."""
        return generate_latest(self._registry).decode()
