"""The training job: an elastic Indexed Job, a headless service, and the scaler that holds the job at its size.

This is where the ElasticJob controller plugs in later: `JobSpec` says what is wanted, and the manifests are all
that would change.

Pulumi can't change the size of a Job in place (it replaces Jobs), and training must not stop for a resize. So
Pulumi makes the Job once and leaves its size alone afterwards; the scaler, a Deployment of one small pod, sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi

import settings
from contract import env, exit_codes, labels
from infra.outputs import TRAINER_SERVICE_ACCOUNT, ClusterOutputs
from workloads import dataset, etcd, objects, scaler
from workloads.manifests import (
    BUNDLE,
    CODE_MOUNT,
    CONFINED,
    DATA_DIRECTORY,
    DATA_MOUNT,
    NON_ROOT,
    SCRATCH_MOUNT,
    SKIP_AWAIT,
    WORKER_NODES,
    Manifest,
    Text,
    data_volume,
    empty_volume,
    environment,
    fetch_code,
    field,
    metadata,
)
from workloads.namespace import GPU_RESOURCE, Namespace
from workloads.storage import CLAIM

BACKOFF_LIMIT = 20
"""Failures of the code, over all workers, after which the job is given up; lost nodes don't count."""

GRACE_SECONDS = 60
"""From SIGTERM to SIGKILL: long enough for a step and a checkpoint."""

METRICS_PORT = 9464
"""Where each worker shows its metrics: the port that OpenTelemetry's exporters for Prometheus use as well."""

LOST_NODE_SECONDS = 15
"""Pods of a node that doesn't answer are given up after this, instead of Kubernetes' 300."""

SCRAPED = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(METRICS_PORT),
    "prometheus.io/path": "/metrics",
}
"""Annotations by which the usual scrape configuration finds pods; a PodMonitor finds the port by its name, metrics."""


@dataclass(frozen=True)
class JobSpec:
    """A training job, whoever runs it."""

    namespace: str
    name: str
    workers: settings.Workers
    images: settings.Images
    code_uri: Text
    service_account: str
    etcd: str
    data: str
    arguments: tuple[str, ...]
    priority_class: str


def job_spec(stack: settings.Settings, code_uri: Text, priority_class: str) -> JobSpec:
    """The job that the settings ask for."""
    wanted = stack.training
    return JobSpec(
        namespace=wanted.namespace,
        name=wanted.job,
        workers=stack.workers,
        images=wanted.images,
        code_uri=code_uri,
        service_account=TRAINER_SERVICE_ACCOUNT,
        etcd=etcd.endpoint(wanted.namespace),
        data=dataset.directory(wanted.dataset),
        arguments=wanted.trainer_args,
        priority_class=priority_class,
    )


def service_manifest(job: JobSpec) -> Manifest:
    """Gives the workers names, before they are ready too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job.name, labels.worker_pods(job.name), namespace=job.namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels.worker_pods(job.name),
        },
    }


def job_manifest(job: JobSpec) -> Manifest:
    """The Indexed Job. Completions equal parallelism, which makes it elastic: the two may change together.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#elastic-indexed-jobs
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job.name, labels.worker_pods(job.name), namespace=job.namespace, annotations=SKIP_AWAIT),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.workers.count,
            "parallelism": job.workers.count,
            "backoffLimit": BACKOFF_LIMIT,
            "podFailurePolicy": failure_policy(),
            "template": {
                "metadata": {"labels": labels.worker_pods(job.name), "annotations": SCRAPED},
                "spec": pod_spec(job),
            },
        },
    }


def failure_policy() -> Manifest:
    """What a worker's end says about the job.

    A worker that was sent away or lost its node is replaced and not held against the code; a wrong command line
    ends the job at once; everything else counts towards the back-off limit.
    """
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {
                "action": "Ignore",
                "onExitCodes": {"operator": "In", "values": sorted(exit_codes.NOT_THE_WORKERS_FAULT)},
            },
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [exit_codes.USAGE]}},
        ]
    }


def pod_spec(job: JobSpec) -> Manifest:
    """A worker's pod."""
    return {
        "automountServiceAccountToken": False,
        "serviceAccountName": job.service_account,
        "restartPolicy": "Never",
        "subdomain": job.name,
        "priorityClassName": job.priority_class,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": WORKER_NODES,
        "tolerations": tolerations(gpus=job.workers.gpus > 0),
        "securityContext": NON_ROOT,
        "initContainers": [fetch_code(job.images.fetch, job.code_uri)],
        "containers": [worker_container(job)],
        "volumes": [
            data_volume(CLAIM),
            empty_volume("code"),
            empty_volume("scratch"),
            empty_volume("shared-memory", memory="1Gi"),
        ],
    }


def tolerations(*, gpus: bool) -> list[Manifest]:
    """Workers may run on the worker nodes, which keep others away, and don't wait long for a lost node."""
    found: list[Manifest] = [{"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"}]
    if gpus:
        found.append({"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"})
    for condition in ("not-ready", "unreachable"):
        found.append(
            {
                "key": f"node.kubernetes.io/{condition}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": LOST_NODE_SECONDS,
            }
        )
    return found


def worker_container(job: JobSpec) -> Manifest:
    """The container that trains."""
    own = {
        env.JOB: job.name,
        env.ETCD: job.etcd,
        env.MIN_WORKERS: str(job.workers.minimum),
        env.MAX_WORKERS: str(job.workers.maximum),
        env.DATA: job.data,
        env.CHECKPOINTS: f"{DATA_DIRECTORY}/checkpoints/{job.name}",
        env.METRICS_PORT: str(METRICS_PORT),
        "HOME": "/tmp",
        "USER": labels.APPLICATION,  # no such user in the image's passwd; libraries ask for the name
        "OMP_NUM_THREADS": str(threads(job.workers)),
        "PYTHONUNBUFFERED": "1",
    }
    return {
        "name": "worker",
        "image": job.images.trainer,
        "command": ["python3", BUNDLE, "train", *job.arguments],
        "env": [
            *environment(own),
            field(env.WORKER, "metadata.name"),
            field(env.HOST, "status.podIP"),
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "resources": resources(job.workers),
        "securityContext": CONFINED,
        "volumeMounts": [
            DATA_MOUNT,
            CODE_MOUNT,
            SCRATCH_MOUNT,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


def threads(workers: settings.Workers) -> int:
    """Threads of each worker's mathematics: its share of the node's CPUs."""
    return max(1, workers.nodes.smallest.schedulable_cpu_millis // workers.per_node // 1000)


def resources(workers: settings.Workers) -> Manifest:
    """A worker's share of its node, so that `per_node` workers fit on one, and no more."""
    node = workers.nodes.smallest
    memory = node.schedulable_memory_mib // workers.per_node
    gpus = {GPU_RESOURCE: str(workers.gpus)} if workers.gpus else {}
    return {
        "requests": {
            "cpu": f"{node.schedulable_cpu_millis // workers.per_node}m",
            "memory": f"{memory // 2}Mi",
            **gpus,
        },
        "limits": {"memory": f"{memory}Mi", **gpus},
    }


class Training(pulumi.ComponentResource):
    """The job, and what holds it at its size. Worker nodes should be made after it, and so shrink after it."""

    def __init__(
        self,
        stack: settings.Settings,
        cluster: ClusterOutputs,
        code_uri: Text,
        place: Namespace,
        *,
        after: Sequence[pulumi.Resource],
    ) -> None:
        job = job_spec(stack, code_uri, place.priorities.core)
        super().__init__("tidewater:workloads:Training", job.name, None, cluster.options(*after))
        service = objects.register(service_manifest(job), opts=pulumi.ResourceOptions(parent=self))
        made = objects.register(
            job_manifest(job),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[service],
                # The scaler's business, see the module.
                ignore_changes=["spec.parallelism", "spec.completions"],
                delete_before_replace=True,
            ),
        )
        scaler.Scaler(
            scaler.ScalerArgs(
                namespace=job.namespace,
                job=job.name,
                workers=job.workers.count,
                image=job.images.scaler,
                code=(Path(__file__).parents[1] / "controller" / "scale.py").read_text(),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[made]),
        )
        self.register_outputs({})
