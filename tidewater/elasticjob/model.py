"""What an ElasticJob is, as frozen dataclasses: the one place where its fields, defaults and bounds are written.

The CustomResourceDefinition (`crd`), what `kubectl explain` prints and what the controller reads (`codec`) are all
made from these classes. A field is `snake_case` here and `camelCase` in the API; None means that it is not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from tidewater.elasticjob import names, pod_template
from tidewater.elasticjob.about import About
from tidewater.elasticjob.choices import (
    CleanPodPolicy,
    Launcher,
    PodNames,
    RestartPolicy,
    RestartScope,
    State,
    SuccessPolicy,
)
from tidewater.elasticjob.names import DNS_LABEL
from tidewater.elasticjob.scheduling import MOST_REPLICAS, SchedulingPolicy
from tidewater.elasticjob.status import MOST_TYPES, Condition, ReplicaStatus, Status

__all__ = [
    "DNS_LABEL",
    "LONGEST_SECONDS",
    "LONGEST_TYPE",
    "MOST_REPLICAS",
    "MOST_TYPES",
    "REPLICA_TYPE",
    "CleanPodPolicy",
    "Condition",
    "ElasticJob",
    "JobSpec",
    "Launcher",
    "PodNames",
    "ReplicaSpec",
    "ReplicaStatus",
    "RestartPolicy",
    "RestartScope",
    "SchedulingPolicy",
    "State",
    "Status",
    "SuccessPolicy",
]

LONGEST_TYPE = 40
LONGEST_SECONDS = 2**31 - 1
"""68 years, so that any moment plus such a duration is a date that Python can represent."""

REPLICA_TYPE = "^[A-Za-z][A-Za-z0-9]*$"
"""Without a dash, which separates the parts of a pod's name. Roles of TorchX are in lower case."""


@dataclass(frozen=True, kw_only=True)
class ReplicaSpec:
    """Pods of one type: how many, from which template, and what happens when one of them fails."""

    replicas: Annotated[
        int,
        About(
            "Number of pods that is wanted. For Worker, `kubectl scale` sets it, at any time and without an"
            " interruption; it must be between spec.minReplicas and spec.maxReplicas.",
            minimum=0,
            maximum=MOST_REPLICAS,
        ),
    ] = 1
    min_replicas: Annotated[
        int | None,
        About(
            "Fewest pods of this type with which the job can run. Defaults to replicas. Not for Worker: its"
            " minimum is spec.minReplicas.",
            minimum=0,
            maximum=MOST_REPLICAS,
        ),
    ] = None
    max_replicas: Annotated[
        int | None,
        About(
            "Most pods of this type. Defaults to replicas. Not for Worker: its maximum is spec.maxReplicas.",
            minimum=0,
            maximum=MOST_REPLICAS,
        ),
    ] = None
    pod_names: Annotated[
        PodNames,
        About(
            "How the pods are named. Indexed: JOB-TYPE-0 and so on; a replacement has the name of the pod that it"
            " replaces. Successive: a replacement has the next number that no pod of this type has had. Single:"
            " JOB-TYPE without a number, for at most one pod. Immutable.",
            immutable=True,
        ),
    ] = PodNames.INDEXED
    index_label: Annotated[
        str | None,
        About(
            "Key of a further label that each pod has, with its index as the value; in addition to replica-index."
            " Immutable.",
            pattern=names.LABEL_KEY,
            max_length=names.LONGEST_LABEL_KEY,
        ),
    ] = None
    restart_policy: Annotated[
        RestartPolicy,
        About(
            "What happens after a container fails. Always and OnFailure: the kubelet restarts it in its pod. Never:"
            " its pod is not replaced. ExitCode: the pod is replaced if the exit code is 130, 137, 138, 143, 200,"
            " 201 or one of retryableExitCodes; any other non-zero code is permanent. A pod that was evicted, preempted"
            " or lost with its node is always replaced. Overrides the template's own restartPolicy.",
            blank=True,
        ),
    ] = RestartPolicy.EXIT_CODE
    retryable_exit_codes: Annotated[
        tuple[int, ...],
        About(
            "Further exit codes after which restartPolicy ExitCode replaces a pod.",
            minimum=1,
            maximum=255,
            most=255,
            list_type="set",
        ),
    ] = ()
    template: Annotated[
        Mapping[str, object],
        About(
            "The pods' template, as of a Deployment. The container that trains is named elasticjob-worker, or is the"
            " only one; if there is neither, with launcher torchelastic or none, all containers train. After a change"
            " of the template all pods are replaced.",
            schema=pod_template.schema,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What is wanted of a job."""

    rdzv_endpoint: Annotated[
        str,
        About(
            "Where the workers meet, as host:port. Of launcher torchelastic an etcd server. Immutable.",
            pattern=r"^\S+$",
            max_length=1024,
            immutable=True,
        ),
    ]
    replica_specs: Annotated[
        Mapping[str, ReplicaSpec],
        About(
            "The job's pods by type. Worker is required and elastic; others, such as Master, PS or a role of TorchX,"
            " may be added. The set of types is immutable.",
            pattern=REPLICA_TYPE,
            max_length=LONGEST_TYPE,
            most=MOST_TYPES,
        ),
    ]
    min_replicas: Annotated[
        int | None,
        About(
            "Fewest workers with which the training can run. Defaults to replicaSpecs.Worker.replicas.",
            minimum=1,
            maximum=MOST_REPLICAS,
        ),
    ] = None
    max_replicas: Annotated[
        int | None,
        About("Most workers. Defaults to replicaSpecs.Worker.replicas.", minimum=1, maximum=MOST_REPLICAS),
    ] = None
    workers_per_replica: Annotated[
        int,
        About(
            "Pods of type Worker that are one replica: each has a part of one copy of the model, and they start and end"
            " together. Pod i belongs to replica i / workersPerReplica. With more than 1, all numbers of workers in"
            " the spec and in the status count replicas. Only with launcher tidewater. After a change all pods are"
            " replaced.",
            minimum=1,
            maximum=MOST_REPLICAS,
        ),
    ] = 1
    topology_key: Annotated[
        str | None,
        About(
            "With workersPerReplica: label of nodes, such as topology.kubernetes.io/zone. The pods of a replica come on"
            " nodes with the same value of it. After a change all pods are replaced.",
            pattern=names.LABEL_KEY,
            max_length=names.LONGEST_LABEL_KEY,
        ),
    ] = None
    topology_required: Annotated[
        bool,
        About(
            "With topologyKey: whether a pod waits when there is no room where the others of its replica are. Otherwise"
            " it comes elsewhere."
        ),
    ] = False
    launcher: Annotated[
        Launcher | None,
        About(
            "How a worker learns of its job. torchelastic: --rdzv_backend=etcd, --rdzv_endpoint, --rdzv_id and --nnodes"
            " are put before the arguments of its containers. torchrun: the same for today's torchrun, --rdzv-backend"
            " and so on. tidewater: environment variables TIDEWATER_*. none: nothing is added. Defaults to the"
            " annotation tidewater.dev/launcher, then to torchelastic. Immutable."
        ),
    ] = None
    rdzv_backend: Annotated[
        str,
        About(
            "Rendezvous backend of launcher torchrun; the other launchers do not use it. Immutable.",
            pattern=r"^[A-Za-z0-9][-_.A-Za-z0-9]*$",
            max_length=names.LONGEST_NAME,
            immutable=True,
        ),
    ] = "c10d"
    success_policy: Annotated[
        SuccessPolicy,
        About(
            "The pods that must exit with 0 for the job to succeed. Rank0: pod 0 of type Master if there is one, else"
            " of Worker. AnyWorker: any worker. AllWorkers: every worker. AllPods: every pod of every type, but for"
            " those that failed for good if their type has its minimum without them."
        ),
    ] = SuccessPolicy.RANK0
    restart_scope: Annotated[
        RestartScope,
        About(
            "What is made anew when a pod is replaced because it failed or was disrupted. Pod: that pod. Job: all pods"
            " of the job, including those that have exited with 0; this counts once against backoffLimit, and the"
            " kubelet restarts no container."
        ),
    ] = RestartScope.POD
    clean_pod_policy: Annotated[
        CleanPodPolicy,
        About(
            "Which pods a finished job loses. None: those that are Pending; if it has failed, also those that run."
            " Running: those that are Pending or run. All: all. Those that run have 30 seconds to end by themselves.",
            blank=True,
        ),
    ] = CleanPodPolicy.NONE
    ttl_seconds_after_finished: Annotated[
        int | None,
        About(
            "The job is deleted this many seconds after it has finished. Default: never.",
            minimum=0,
            maximum=LONGEST_SECONDS,
        ),
    ] = None
    active_deadline_seconds: Annotated[
        int | None,
        About(
            "The job fails when it has run for this many seconds; the time in which it is suspended or waits in a"
            " queue does not count. Default: never, as with 0.",
            minimum=0,
            maximum=LONGEST_SECONDS,
        ),
    ] = None
    backoff_limit: Annotated[
        int,
        About(
            "The job fails after this many failures that were retried. Evictions, preemptions and lost nodes do not"
            " count.",
            minimum=0,
            maximum=2**31 - 1,
        ),
    ] = 20
    suspend: Annotated[
        bool, About("Delete all pods and keep the job. Setting it back to false resumes the training.")
    ] = False
    autoscale: Annotated[
        bool,
        About(
            "Grow above replicaSpecs.Worker.replicas, towards maxReplicas, while there is room in the cluster, and"
            " give the room back when others wait for it."
        ),
    ] = False
    sizes: Annotated[
        tuple[int, ...],
        About(
            "Numbers of workers with which the training may run, each between minReplicas and maxReplicas. The largest"
            " that is not above the wanted number is used; minReplicas is always allowed. Excludes sizeStep.",
            minimum=1,
            maximum=MOST_REPLICAS,
            most=64,
            list_type="set",
        ),
    ] = ()
    size_step: Annotated[
        int | None,
        About(
            "The training may run with minReplicas workers, or with that number and a multiple of this one. Excludes"
            " sizes.",
            minimum=1,
            maximum=MOST_REPLICAS,
        ),
    ] = None
    snooze_seconds: Annotated[
        int,
        About(
            "With autoscale: how long to wait before growing again after an added worker found no room.",
            minimum=1,
            maximum=86400,
        ),
    ] = 60
    scheduling_policy: Annotated[SchedulingPolicy, About("How the job shares a cluster with others.")] = field(
        default_factory=SchedulingPolicy
    )

    @property
    def worker(self) -> ReplicaSpec:
        """Return the spec of type Worker, which every job has."""
        return self.replica_specs[names.WORKER]

    def bounds(self, type: str) -> tuple[int, int]:
        """Return the fewest and the most pods of a replica type, with the defaults taken into account."""
        replica = self.replica_specs[type]
        limits = self if type == names.WORKER else replica
        low = replica.replicas if limits.min_replicas is None else limits.min_replicas
        high = replica.replicas if limits.max_replicas is None else limits.max_replicas
        return low, high

    def pods_each(self, type: str) -> int:
        """Return how many pods one replica of a type is; the job's numbers count replicas."""
        return self.workers_per_replica if type == names.WORKER else 1


@dataclass(frozen=True, kw_only=True)
class ElasticJob:
    """A job as the API server has it."""

    name: str
    namespace: str
    spec: JobSpec
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    created: datetime | None = None
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Status = field(default_factory=Status)

    @property
    def launcher(self) -> Launcher:
        """Return the launcher: the spec's, else the annotation's, else the old one."""
        return self.spec.launcher or Launcher(self.annotations.get(names.ANNOTATION_LAUNCHER, Launcher.TORCHELASTIC))

    def bounds(self, type: str) -> tuple[int, int]:
        """Return the fewest and the most pods of a replica type, with the defaults taken into account."""
        return self.spec.bounds(type)

    def pod_name(self, type: str, index: int) -> str:
        """Return the name of the pod of a replica type with this index."""
        return self.name + self._suffix(type, index)

    def host_name(self, type: str, index: int) -> str:
        """Return the name under which the others of the job reach a pod: its own, if that can be one in DNS."""
        return names.host_name(self.name, self._suffix(type, index))

    def _suffix(self, type: str, index: int) -> str:
        if self.spec.replica_specs[type].pod_names is PodNames.SINGLE:
            return names.single_pod_name("", type)
        return names.pod_name("", type, index)
