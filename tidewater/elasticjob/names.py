"""Names of the ElasticJob API: group and kind, labels, annotations, conditions and their reasons, pods.

    names.pod_name("imagenet", names.WORKER, 0)        # imagenet-worker-0
    names.single_pod_name("imagenet", names.MASTER)    # imagenet-master
    names.pod_labels("imagenet", names.WORKER, 0)      # {"job-name": "imagenet", ...}

Labels, the container's name, pod names and the reasons of conditions and events are those of the TorchElastic
controller, since people's selectors, dashboards and scripts contain them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum

from tidewater.kube import kinds
from tidewater.kube.kinds import Kind

GROUP = "elastic.pytorch.org"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ElasticJob"
LIST_KIND = "ElasticJobList"
PLURAL = "elasticjobs"
SINGULAR = "elasticjob"
SHORT_NAME = "ej"
CRD_NAME = f"{PLURAL}.{GROUP}"

WORKER = "Worker"
"""The replica type that every job has, and the only one that `kubectl scale` resizes."""

MASTER = "Master"
"""A replica type with a meaning: where it exists, its pod 0 decides whether the job has succeeded."""

WORKER_CONTAINER = "elasticjob-worker"
"""Name of the container that trains, in the template of any type. A pod's only container needs no such name."""

LABEL_GROUP_NAME = "group-name"
LABEL_JOB_NAME = "job-name"
LABEL_REPLICA_TYPE = "replica-type"
LABEL_REPLICA_INDEX = "replica-index"

LABEL_JOB_UID = "tidewater.dev/job-uid"
"""Of a pod: the uid of its job, which another job of the same name doesn't have."""

LABEL_TIER = "tidewater.dev/tier"
"""Of a pod of a type with `podNames: Successive`: whether it was made for the job's minimum (`CORE`) or above it
(`SURGE`), which its index doesn't say."""

CORE = "core"
SURGE = "surge"

LABEL_REPLICA = "tidewater.dev/replica"
"""Of a worker of a job with workersPerReplica: the number of its replica."""

ANNOTATION_LAUNCHER = "tidewater.dev/launcher"
"""Of a job: its launcher, for manifests that keep to the old schema. `spec.launcher` overrides it."""

ANNOTATION_TEMPLATE_HASH = "tidewater.dev/template-hash"
"""Of a pod: the hash of the template that it was made from."""

ANNOTATION_JOB_RESTARTS = "tidewater.dev/job-restarts"
"""Of a pod: `status.jobRestarts` of its job when it was made. Absent: 0."""

FIELD_MANAGER = "elasticjob-controller"

JOBS = Kind(API_VERSION, KIND, PLURAL, install="Install it: tidewater install | kubectl apply -f -")
"""The kind, for clients of the API server."""

DNS_LABEL = kinds.DNS_LABEL

LONGEST_NAME = kinds.LONGEST_LABEL
"""Characters of a host name and of the value of a label (RFC 1123)."""

SUCCESSIVE_DIGITS = 7
"""Digits for which the name of a job leaves room, where it must be part of host names and its pods are numbered on and
on: a thousand workers that are each replaced ten thousand times."""

LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""Regular expression of the key of a label.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set"""

LONGEST_LABEL_PREFIX = 253
LONGEST_LABEL_KEY = LONGEST_LABEL_PREFIX + len("/") + 63


class ConditionType(StrEnum):
    """Types of a job's conditions. The last three are for tools that know no ElasticJob: kstatus, Flux and Argo CD."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DEVICE_FAILING = "DeviceFailing"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Reasons of a job's conditions and of the events about it; those before QUEUED are the old controller's."""

    CREATED = "ElasticJobCreated"
    RUNNING = "ElasticJobRunning"
    RESTARTING = "ElasticJobRestarting"
    SUCCEEDED = "ElasticJobSucceeded"
    FAILED = "ElasticJobFailed"
    SUCCESSFUL_CREATE_POD = "SuccessfulCreatePod"
    FAILED_CREATE_POD = "FailedCreatePod"
    SUCCESSFUL_DELETE_POD = "SuccessfulDeletePod"
    FAILED_DELETE_POD = "FailedDeletePod"
    FAILED_CREATE_SERVICE = "FailedCreateService"
    EXITED_WITH_CODE = "ExitedWithCode"
    QUEUED = "ElasticJobQueued"
    SUSPENDED = "ElasticJobSuspended"
    RESUMED = "ElasticJobResumed"
    RESIZED = "ElasticJobResized"
    INVALID = "ElasticJobInvalid"
    UNSCHEDULABLE = "Unschedulable"
    PODS_NOT_STARTING = "PodsNotStarting"
    NO_STEP = "NoStep"
    BACKOFF_LIMIT = "BackoffLimitExceeded"
    DEADLINE = "DeadlineExceeded"
    OUT_OF_MEMORY = "OutOfMemory"
    TOO_FEW_WORKERS = "TooFewWorkers"
    PERMANENT_FAILURE = "PermanentFailure"
    DEVICE_FAILING = "DeviceFailing"
    NO_DEVICE_FAILING = "NoDeviceFailing"
    TAINTED_NODE = "TaintedNode"
    FAILED_TAINT_NODE = "FailedTaintNode"
    QUOTA = "QuotaExceeded"


NODE_STARTING = "NodeStarting"
"""What a job waits for, in one word, while all of its pods without room only wait for nodes that start."""


def pod_name(job: str, type: str, index: int) -> str:
    """Return the name of the pod with this index, which is also its host name."""
    return f"{job}-{type.lower()}-{index}"


def single_pod_name(job: str, type: str) -> str:
    """Return the name of the only pod of a type with `podNames: Single`, which is also its host name."""
    return f"{job}-{type.lower()}"


def job_of_pod(name: str, type: str, index: int) -> str:
    """Return the name of the job that a pod with this name, replica type (in any case) and index belongs to."""
    return name.removesuffix(f"-{index}").removesuffix(f"-{type.lower()}")


def service_name(job: str) -> str:
    """Return the name of the headless service that gives the job's pods their names in DNS: the job's if it can be.

    The name of a service is a label of DNS that begins with a letter (RFC 1035).
    """
    return job if "." not in job and not job[0].isdigit() else f"job-{_abridged(job, LONGEST_NAME - len('job-'))}"


def host_name(job: str, suffix: str) -> str:
    """Return the host name of the pod with the name `job` + `suffix`: the same if it is a label of DNS."""
    whole = job + suffix
    fits = "." not in job and len(whole) <= LONGEST_NAME
    return whole if fits else _abridged(job, LONGEST_NAME - len(suffix)) + suffix


def _abridged(name: str, most: int) -> str:
    """Return a label of DNS with at most so many characters that stands for no other name."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.replace('.', '-')[: most - len(digest) - 1].rstrip('-')}-{digest}"


def pod_labels(job: str, type: str, index: int) -> Mapping[str, str]:
    """Return the labels of one pod, as the old controller set them."""
    return {**type_labels(job, type), LABEL_REPLICA_INDEX: str(index)}


def type_labels(job: str, type: str) -> Mapping[str, str]:
    """Return the labels that select the pods of one replica type."""
    return {**job_labels(job), LABEL_REPLICA_TYPE: type.lower()}


def job_labels(job: str) -> Mapping[str, str]:
    """Return the labels that select all pods of a job, and its service."""
    return {LABEL_GROUP_NAME: GROUP, LABEL_JOB_NAME: job}
