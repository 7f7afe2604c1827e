"""The training job: an elastic Indexed Job, a headless service, and the scaler that keeps the job at its size.

Pulumi can't change the size of a Job in place (it replaces Jobs), and training must not stop for a resize. So
Pulumi sets the size only when it creates the Job; later the scaler, a Deployment of one small pod, sets it.

How a worker's pod ends: SIGTERM reaches the trainer itself, which is process 1 of its container (there is no shell),
and the trainer leaves at the next step boundary. There is no preStop hook, since nothing has to happen before that; a
hook would delay the SIGTERM and use up the grace period. The time limits are in contract/leaving.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi

import settings
from contract import env, exit_codes, labels, leaving
from infra.outputs import TRAINER_SERVICE_ACCOUNT, checkpoints_folder
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
from workloads.namespace import GPU_RESOURCE
from workloads.storage import CLAIM

BACKOFF_LIMIT = 20
"""The job fails after this many failures of the code, over all workers. Lost nodes don't count.

It is also the limit per index, for another reason. With such a limit, Kubernetes delays the replacement of a lost
worker by how often that index was lost (10 s, 20 s, 40 s …). Without one, all losses count together, those of nodes
included: the delay is 160 s after five.
"""

METRICS_PORT = 9464
"""Port of each worker's metrics, the same as that of OpenTelemetry's exporters for Prometheus. The other processes of a
worker with several GPUs use the ports after it."""

LOST_NODE_SECONDS = 15
"""Pods on a node that doesn't answer are evicted after this, instead of Kubernetes' 300."""

SHARED_MEMORY_PART = 4
"""This fraction (1/4) of a worker's memory may be shared memory, which data-loading processes and NCCL use. It is a
limit and takes no memory by itself. The container runtime's default is 64 MiB."""


@dataclass(frozen=True)
class JobSpec:
    """A training job, independent of what runs it."""

    namespace: str
    name: str
    workers: settings.Workers
    images: settings.Images
    code_uri: Text
    service_account: str
    etcd: str
    data: str
    checkpoints: Text
    keep_checkpoints: int
    arguments: tuple[str, ...]
    priority_class: str

    @property
    def processes(self) -> int:
        """Number of processes of each worker: one per GPU."""
        return max(1, self.workers.gpus)


def job_spec(stack: settings.Settings, code_uri: Text, checkpoints: Text, priority_class: str) -> JobSpec:
    """Return the job that the settings ask for; `checkpoints` is the result of `checkpoint_places`."""
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
        checkpoints=checkpoints,
        keep_checkpoints=wanted.checkpoints.keep,
        arguments=wanted.trainer_args,
        priority_class=priority_class,
    )


def checkpoint_places(wanted: settings.Training, bucket: str) -> str:
    """Return the trainer's --checkpoints: a directory, an `s3://` address, or both with a comma between them."""
    efs = [f"{DATA_DIRECTORY}/checkpoints/{wanted.job}"] if wanted.checkpoints.efs else []
    s3 = [f"s3://{bucket}/{checkpoints_folder(wanted.job)}"] if wanted.checkpoints.s3 else []
    return ",".join(efs + s3)


def service_manifest(job: JobSpec) -> Manifest:
    """Return the service that gives the workers DNS names, also before they are ready."""
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
    """Return the Indexed Job. Completions equal parallelism; such a Job is elastic, the two may change together.

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
            "backoffLimitPerIndex": BACKOFF_LIMIT,
            "podFailurePolicy": failure_policy(),
            "template": {
                "metadata": {"labels": labels.worker_pods(job.name), "annotations": scraped(job.processes)},
                "spec": pod_spec(job),
            },
        },
    }


def scraped(processes: int) -> dict[str, str]:
    """Return the annotations that Prometheus' usual scrape configuration looks for. A PodMonitor uses the ports' names.

    A worker of several processes gets no port here: Prometheus then scrapes every port that the pod declares.
    """
    port = {"prometheus.io/port": str(METRICS_PORT)} if processes == 1 else {}
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", **port}


def failure_policy() -> Manifest:
    """Return what the end of a worker means for the job.

    A worker that was told to leave, or whose node is lost, is replaced and does not count as a failure. A wrong
    command line fails the job at once. Everything else counts towards the back-off limit.
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
    """Return a worker's pod."""
    return {
        "automountServiceAccountToken": False,
        "serviceAccountName": job.service_account,
        "restartPolicy": "Never",
        "subdomain": job.name,
        "priorityClassName": job.priority_class,
        "terminationGracePeriodSeconds": leaving.GRACE_SECONDS,
        "nodeSelector": WORKER_NODES,
        "tolerations": tolerations(gpus=job.workers.gpus > 0),
        "securityContext": NON_ROOT,
        "initContainers": [fetch_code(job.images.fetch, job.code_uri)],
        "containers": [worker_container(job)],
        "volumes": [
            data_volume(CLAIM),
            empty_volume("code"),
            empty_volume("scratch"),
            empty_volume("shared-memory", memory=f"{memory_mib(job.workers) // SHARED_MEMORY_PART}Mi"),
        ],
    }


def tolerations(*, gpus: bool) -> list[Manifest]:
    """Return tolerations: workers may run on the tainted worker nodes, and are evicted soon from a lost node."""
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
    """Return the container that trains."""
    own = {
        env.JOB: job.name,
        env.ETCD: job.etcd,
        env.MIN_WORKERS: str(job.workers.minimum),
        env.MAX_WORKERS: str(job.workers.maximum),
        env.DATA: job.data,
        env.CHECKPOINTS: job.checkpoints,
        env.METRICS_PORT: str(METRICS_PORT),
        env.PROCESSES: str(job.processes),
        "HOME": "/tmp",
        "USER": labels.APPLICATION,  # the image's passwd has no such user, and libraries ask for the name
        "OMP_NUM_THREADS": str(threads(job.workers)),
        "PYTHONUNBUFFERED": "1",
    }
    return {
        "name": "worker",
        "image": job.images.trainer,
        # The user's arguments come last, so they override the others.
        "command": ["python3", BUNDLE, "train", f"--keep-checkpoints={job.keep_checkpoints}", *job.arguments],
        "env": [
            *environment(own),
            field(env.WORKER, "metadata.name"),
            field(env.HOST, "status.podIP"),
        ],
        "ports": metrics_ports(job.processes),
        "resources": resources(job.workers),
        "securityContext": CONFINED,
        "volumeMounts": [
            DATA_MOUNT,
            CODE_MOUNT,
            SCRATCH_MOUNT,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


def metrics_ports(processes: int) -> list[Manifest]:
    """Return one port per process: metrics, metrics-1, metrics-2 …"""
    return [
        {"name": f"metrics-{number}" if number else "metrics", "containerPort": METRICS_PORT + number}
        for number in range(processes)
    ]


def threads(workers: settings.Workers) -> int:
    """Return the number of threads of each process for computing: its share of the node's CPUs."""
    processes = workers.per_node * max(1, workers.gpus)
    return max(1, workers.nodes.smallest.schedulable_cpu_millis // processes // 1000)


def memory_mib(workers: settings.Workers) -> int:
    """Return a worker's memory limit: its share of the node's memory."""
    return workers.nodes.smallest.schedulable_memory_mib // workers.per_node


def resources(workers: settings.Workers) -> Manifest:
    """Return a worker's share of its node, so that exactly `per_node` workers fit on one."""
    node = workers.nodes.smallest
    memory = memory_mib(workers)
    gpus = {GPU_RESOURCE: str(workers.gpus)} if workers.gpus else {}
    return {
        "requests": {
            "cpu": f"{node.schedulable_cpu_millis // workers.per_node}m",
            "memory": f"{memory // 2}Mi",
            **gpus,
        },
        "limits": {"memory": f"{memory}Mi", **gpus},
    }


@dataclass(frozen=True)
class TrainingArgs:
    """The stack's settings, the bucket's name, the code's address, and the workers' priority."""

    stack: settings.Settings
    bucket: pulumi.Input[str]
    code_uri: Text
    priority_class: str


class Training(pulumi.ComponentResource):
    """The job, and the scaler that sets its size. Worker nodes depend on both, so the job shrinks before they do."""

    def __init__(self, name: str, args: TrainingArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Training", name, None, opts)
        checkpoints = pulumi.Output.from_input(args.bucket).apply(
            lambda bucket: checkpoint_places(args.stack.training, bucket)
        )
        job = job_spec(args.stack, args.code_uri, checkpoints, args.priority_class)
        service = objects.register(service_manifest(job), opts=pulumi.ResourceOptions(parent=self))
        made = objects.register(
            job_manifest(job),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[service],
                # The scaler sets these, see the module.
                ignore_changes=["spec.parallelism", "spec.completions"],
                delete_before_replace=True,
            ),
        )
        scaler.Scaler(
            name,
            scaler.ScalerArgs(
                namespace=job.namespace,
                job=job.name,
                workers=job.workers.count,
                image=job.images.scaler,
                code=(Path(__file__).parents[1] / "controller" / "scale.py").read_text(),
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[made]),
        )
        self.register_outputs({})
