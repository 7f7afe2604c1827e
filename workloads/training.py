"""The training job: an ElasticJob. Pulumi sets its size, and the controller makes its pods.

Pulumi owns one number of the running job, `replicaSpecs.Worker.replicas`; with the setting `sizeOwner: cluster` it owns
none. A new size changes no pod that stays. The size 0 suspends the job, since an ElasticJob that runs has at least one
worker. The rest of the job's spec comes from the settings too. A change of the pods' template lets all workers leave
and starts new ones, which continue from the checkpoint.

How a worker's pod ends: SIGTERM reaches the trainer itself, which is process 1 of its container (there is no shell),
and the trainer leaves at the next step boundary. There is no preStop hook, since nothing has to happen before that; a
hook would delay the SIGTERM and use up the grace period. The time limits are in tidewater/contract/leaving.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import TRAINER_SERVICE_ACCOUNT
from tidewater.contract import devices, env, exit_codes, labels, leaving, metrics
from tidewater.contract.pod_defaults import lost_node_tolerations
from tidewater.elasticjob import names
from tidewater.elasticjob.model import Launcher, RestartPolicy, SuccessPolicy
from workloads import objects
from workloads.devices.efa import EFA_RESOURCE
from workloads.etcd import manifests as etcd
from workloads.filling import dataset, packages
from workloads.manifests import (
    BUNDLE,
    CODE_MOUNT,
    CONFINED,
    DATA_MOUNT,
    DATASET_MOUNT,
    LUSTRE_MOUNT,
    NON_ROOT,
    PACKAGES_DIRECTORY,
    SCRATCH_MOUNT,
    WORKER_NODES,
    ZONE,
    Manifest,
    Text,
    data_volume,
    dataset_volume,
    empty_volume,
    environment,
    fetch_code,
    lustre_volume,
    metadata,
)
from workloads.namespace import PriorityClasses
from workloads.storage import CLAIM, LUSTRE_CLAIM, checkpoint_places

BACKOFF_LIMIT = 20
"""The job fails after this many failures of the code, over all workers. Lost nodes don't count."""

RESOURCE = "elasticjob"
"""Name of the job's Pulumi resource, whatever the job is called: a job of another name replaces it."""

REPLICAS = f"spec.replicaSpecs.{names.WORKER}.replicas"
SUSPEND = "spec.suspend"

START_MINUTES = 30
"""How long Pulumi waits for the workers. The trainer's image takes about 20 GiB with CUDA, and a new node pulls it."""

SHARED_MEMORY_PART = 4
"""This fraction (1/4) of a worker's memory may be shared memory, which data-loading processes and NCCL use. It is a
limit and takes no memory by itself. The container runtime's default is 64 MiB."""


@dataclass(frozen=True)
class JobSpec:
    """A training job, independent of what runs it."""

    namespace: str
    name: str
    workers: settings.Workers
    prefers_core: bool
    """Whether its workers take the nodes that are always there before those that come and go."""
    efa: int
    """Elastic Fabric Adapters of each node."""
    images: settings.Images
    code_uri: Text
    service_account: str
    etcd: str
    data: str
    data_claim: str | None
    """The claim for a dataset that stays in S3."""
    lustre: bool
    checkpoints: Text
    keep_checkpoints: int
    packages: settings.Packages | None
    arguments: tuple[str, ...]
    secret_arguments: bool
    priorities: PriorityClasses
    proxy_variables: dict[str, str]

    @property
    def processes(self) -> int:
        """Number of processes of each worker: one per GPU."""
        return max(1, self.workers.gpus)


def job_spec(stack: settings.Settings, code_uri: Text, checkpoints: Text, priorities: PriorityClasses) -> JobSpec:
    """Return the job that the settings ask for; `checkpoints` is the result of `checkpoint_places`."""
    wanted = stack.training
    return JobSpec(
        namespace=wanted.namespace,
        name=wanted.job,
        workers=stack.workers,
        prefers_core=stack.surge is not None,
        efa=len(stack.efa_cards),
        images=wanted.images,
        code_uri=code_uri,
        service_account=TRAINER_SERVICE_ACCOUNT,
        etcd=etcd.endpoint(wanted.namespace),
        data=dataset.directory(wanted.dataset),
        data_claim=wanted.dataset.name if wanted.dataset.mounted else None,
        lustre=stack.lustre is not None,
        checkpoints=checkpoints,
        keep_checkpoints=wanted.checkpoints.keep,
        packages=wanted.packages,
        arguments=wanted.trainer_args,
        secret_arguments=wanted.secret_args,
        priorities=priorities,
        proxy_variables=wanted.proxy_variables,
    )


def job_manifest(job: JobSpec) -> Manifest:
    """Return the ElasticJob."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata(
            job.name,
            labels.worker_pods(job.name),
            namespace=job.namespace,
            annotations={"pulumi.com/waitFor": wait_for(job.workers)},
        ),
        "spec": {
            "rdzvEndpoint": job.etcd,
            "launcher": Launcher.TIDEWATER.value,
            **({} if job.workers.count else {"suspend": True}),
            "minReplicas": job.workers.fewest,
            "maxReplicas": job.workers.most,
            # Pods of one replica exchange all of a model in each step, and AWS bills what goes to another zone.
            **({"workersPerReplica": each, "topologyKey": ZONE} if (each := job.workers.per_replica) > 1 else {}),
            "backoffLimit": BACKOFF_LIMIT,
            # Every worker exits with 0 when the training is done, and with another code before.
            "successPolicy": SuccessPolicy.ANY_WORKER.value,
            "schedulingPolicy": {
                "corePriorityClassName": job.priorities.core,
                "surgePriorityClassName": job.priorities.surge,
            },
            "replicaSpecs": {
                names.WORKER: {
                    "replicas": job.workers.replicas or job.workers.fewest,
                    "restartPolicy": RestartPolicy.EXIT_CODE.value,
                    "retryableExitCodes": list(exit_codes.RETRYABLE),
                    "template": {
                        "metadata": {"labels": labels.worker_pods(job.name), "annotations": scraped(job.processes)},
                        "spec": pod_spec(job),
                    },
                }
            },
        },
    }


def wait_for(workers: settings.Workers) -> str:
    """Return what Pulumi waits for: the size that it has set; or any, if it does not set the size.

    A suspended job is to have no worker left that isn't ending. A job that has failed has none either, while it never
    reaches a size again.
    https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/#pulumicomwaitfor
    """
    settled = "jsonpath={.status.settledReplicas}"
    if not workers.sized_by_pulumi:
        return settled
    return f"{settled}={workers.replicas}" if workers.count else "jsonpath={.status.replicas}=0"


def ignored(workers: settings.Workers) -> list[str]:
    """Return the fields that Pulumi sets when it creates the job, and then leaves to others."""
    if workers.sized_by_pulumi:
        return []
    return [REPLICAS] if workers.count else [REPLICAS, SUSPEND]


def replaced_on(workers: settings.Workers) -> list[str]:
    """Return the fields that replace the job when they change: those that can't be changed, and the template.

    A finished job starts no worker any more. One that failed, of a mistake in the script or its arguments, starts again
    when that is corrected. If Pulumi does not set the size, a replaced job would lose it, so the job is not replaced.
    """
    fields = ["apiVersion", "kind", "spec.launcher", "spec.rdzvEndpoint"]
    return [*fields, f"spec.replicaSpecs.{names.WORKER}.template"] if workers.sized_by_pulumi else fields


def scraped(processes: int) -> dict[str, str]:
    """Return the annotations that Prometheus' usual scrape configuration looks for. A PodMonitor uses the ports' names.

    A worker of several processes gets no port here: Prometheus then scrapes every port that the pod declares.
    """
    port = {"prometheus.io/port": str(metrics.FIRST_PORT)} if processes == 1 else {}
    return {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", **port}


def pod_spec(job: JobSpec) -> Manifest:
    """Return a worker's pod, to which the controller adds name, priority and the variables of its launcher."""
    return {
        "automountServiceAccountToken": False,
        "serviceAccountName": job.service_account,
        "terminationGracePeriodSeconds": leaving.GRACE_SECONDS,
        "nodeSelector": WORKER_NODES,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [predecessor(job.name)]},
            **(core_first() if job.prefers_core else {}),
        },
        "tolerations": tolerations(gpus=job.workers.gpus > 0),
        "securityContext": NON_ROOT,
        "initContainers": [fetch_code(job.images.fetch, job.code_uri, job.proxy_variables)],
        "containers": [worker_container(job)],
        "volumes": [
            data_volume(CLAIM),
            *([dataset_volume(job.data_claim)] if job.data_claim else []),
            *([lustre_volume(LUSTRE_CLAIM)] if job.lustre else []),
            empty_volume("code"),
            empty_volume("scratch"),
            empty_volume("shared-memory", memory=f"{memory_mib(job.workers) // SHARED_MEMORY_PART}Mi"),
        ],
    }


def predecessor(job: str) -> Manifest:
    """Return the pods after which the workers start: those of the Job that an older version of this program made.

    Pulumi replaces that Job by the ElasticJob without waiting until its pods have ended. Workers of two versions don't
    train together: one that comes too early ends with an error. The key has the same value on all nodes.
    """
    return {
        "labelSelector": {
            "matchLabels": labels.worker_pods(job),
            "matchExpressions": [{"key": "batch.kubernetes.io/job-name", "operator": "Exists"}],
        },
        "topologyKey": "kubernetes.io/os",
    }


def core_first() -> Manifest:
    """Return the preference for the core's nodes, which cost the same with and without a worker.

    The scheduler weighs it against other preferences, and 100 is the most. Karpenter takes it for a requirement first,
    and drops it when no core node has room.
    """
    core = {"key": labels.NODES, "operator": "In", "values": [labels.NODES_CORE]}
    preferred = {"weight": 100, "preference": {"matchExpressions": [core]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def tolerations(*, gpus: bool) -> list[Manifest]:
    """Return tolerations: workers may run on the tainted worker nodes, and are evicted soon from a lost node."""
    found: list[Manifest] = [{"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"}]
    if gpus:
        found.append({"key": devices.GPU, "operator": "Exists", "effect": "NoSchedule"})
    return [*found, *lost_node_tolerations()]


def worker_container(job: JobSpec) -> Manifest:
    """Return the container that trains. The launcher adds the job's name, etcd, and the worker's name and address."""
    own = job.proxy_variables | {
        # The launcher would add these two. In the template, a change of them replaces all workers, which must agree.
        env.MIN_WORKERS: str(job.workers.fewest),
        env.MAX_WORKERS: str(job.workers.most),
        env.DATA: job.data,
        env.CHECKPOINTS: job.checkpoints,
        env.METRICS_PORT: str(metrics.FIRST_PORT),
        env.PROCESSES: str(job.processes),
        # Images set it to `all`, which on older nodes gives every GPU of the node. GPUs come by the limit, through CDI.
        "NVIDIA_VISIBLE_DEVICES": "void",
        "HOME": "/tmp",
        "USER": labels.APPLICATION,  # the image's passwd has no such user, and libraries ask for the name
        "OMP_NUM_THREADS": str(threads(job.workers)),
        "PYTHONUNBUFFERED": "1",
        **({env.PACKAGES: PACKAGES_DIRECTORY} if job.packages else {}),
    }
    # The user's arguments come last, so they override the others.
    command = ["python3", BUNDLE, "train", f"--keep-checkpoints={job.keep_checkpoints}", *job.arguments]
    return {
        "name": names.WORKER_CONTAINER,
        "image": job.images.trainer,
        "command": pulumi.Output.secret(command) if job.secret_arguments else command,
        "env": environment(own),
        "ports": metrics.ports(job.processes),
        **readiness_probe(job.arguments),
        "resources": resources(job.workers, job.efa),
        "securityContext": CONFINED,
        "volumeMounts": [
            DATA_MOUNT,
            *([DATASET_MOUNT] if job.data_claim else []),
            *([LUSTRE_MOUNT] if job.lustre else []),
            *([packages.mount(job.packages)] if job.packages else []),
            CODE_MOUNT,
            SCRATCH_MOUNT,
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }


def readiness_probe(arguments: Sequence[str]) -> Manifest:
    """Return the probe that makes a worker ready once it has joined the others: Pulumi waits for that.

    There is none if the user's arguments may choose another port: argparse also takes the beginning of a flag's name.
    """
    if any("--metrics-port".startswith(each.partition("=")[0]) for each in arguments if each.strip("-")):
        return {}
    asked = {"httpGet": {"path": metrics.READY_PATH, "port": metrics.FIRST_PORT}}
    return {"readinessProbe": {**asked, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3}}


def threads(workers: settings.Workers) -> int:
    """Return the number of threads of each process for computing: its share of the node's CPUs."""
    processes = workers.per_node * max(1, workers.gpus)
    return max(1, workers.nodes.smallest.schedulable_cpu_millis // processes // 1000)


def memory_mib(workers: settings.Workers) -> int:
    """Return a worker's memory limit: its share of the node's memory."""
    return workers.nodes.smallest.schedulable_memory_mib // workers.per_node


def cpu_millis(workers: settings.Workers) -> int:
    """Return the CPU that a worker requests: its share of the node's."""
    return workers.nodes.smallest.schedulable_cpu_millis // workers.per_node


def resources(workers: settings.Workers, efa: int = 0) -> Manifest:
    """Return a worker's share of its node, which may have EFAs, so that exactly `per_node` workers fit on one."""
    memory = memory_mib(workers)
    gpus = {devices.GPU: str(workers.gpus)} if workers.gpus else {}
    gpus |= {EFA_RESOURCE: str(efa // workers.per_node)} if efa else {}
    return {
        "requests": {
            "cpu": f"{cpu_millis(workers)}m",
            "memory": f"{memory // 2}Mi",
            **gpus,
        },
        "limits": {"memory": f"{memory}Mi", **gpus},
    }


@dataclass(frozen=True)
class TrainingArgs:
    """The stack's settings, the bucket's name, the code's address, and the workers' priorities."""

    stack: settings.Settings
    bucket: pulumi.Input[str]
    code_uri: Text
    priorities: PriorityClasses
    mounts: pulumi.ResourceOptions
    """Of what mounts the file system."""


class Training(pulumi.ComponentResource):
    """The job. It depends on what brings its nodes: a node group, or Karpenter for those above the core.

    It is deleted before its replacement is made: there are nodes for one job, and only one may use its name in etcd.

    With a node group for all nodes, these are there when the job grows. When `workers` decreases, EKS drains the nodes
    that it takes away. The workers there leave, and the job, which becomes smaller next, gives up exactly those: their
    replacements, for which there is no room. With Karpenter only the job changes, and the nodes follow.
    """

    def __init__(self, name: str, args: TrainingArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Training", name, None, opts)
        checkpoints = pulumi.Output.from_input(args.bucket).apply(
            lambda bucket: checkpoint_places(args.stack.training, bucket)
        )
        job = job_spec(args.stack, args.code_uri, checkpoints, args.priorities)
        minutes = f"{START_MINUTES}m"
        objects.register_custom(
            RESOURCE,
            job_manifest(job),
            opts=pulumi.ResourceOptions.merge(
                args.mounts,
                pulumi.ResourceOptions(
                    parent=self,
                    # In older stacks it is a Job, which must be gone before.
                    aliases=[pulumi.Alias(type_="kubernetes:batch/v1:Job", name=f"job-{job.name}")],
                    replace_on_changes=replaced_on(job.workers),
                    ignore_changes=ignored(job.workers),
                    custom_timeouts=pulumi.CustomTimeouts(create=minutes, update=minutes),
                ),
            ),
        )
        self.register_outputs({})
