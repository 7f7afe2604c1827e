"""What the controller observes of one job: frozen views, made from the API server's objects by pure functions.

    types = type_keys(job.spec.replica_specs)
    view = JobView(job=job, pods=tuple(pod_view(pod, types) for pod in pods), nodes={...})

The decision reads these views and nothing else. An object may lack any part that the API server has not filled in yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import Status

Object = Mapping[str, Any]

# Values of a pod's status.reason when the pod failed through no fault of its own: the kubelet, the node controller and
# the garbage collector write them. https://kubernetes.io/docs/concepts/workloads/pods/disruptions/ and
# https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
DISRUPTIONS = frozenset(
    "Evicted Preempting Preempted NodeLost NodeShutdown Shutdown Terminated NodeAffinity"
    " UnexpectedAdmissionError".split()
)
OUT_OF = "OutOf"  # a kubelet refuses a pod that no longer fits: OutOfcpu, OutOfmemory, OutOfpods, ...

# A node with one of these taints will go, or is gone. Karpenter, the cluster autoscaler, the AWS node termination
# handler and the cloud providers set them.
DOOMED_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/out-of-service",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
TERMINATION_HANDLER = "aws-node-termination-handler/"

# Those of them that announce the end for the next minutes. Karpenter's is not among them: it first starts another node
# and takes the taint away if it can't. When it has one, or after a Spot notice, it deletes the Node object.
# https://karpenter.sh/docs/concepts/disruption/#control-flow and
# https://github.com/aws/aws-node-termination-handler#node-termination-handler-mode
ENDING_TAINTS = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        f"{TERMINATION_HANDLER}asg-lifecycle-termination",
        f"{TERMINATION_HANDLER}spot-itn",
    }
)
# What keeps new pods away from a node that will go, unless they tolerate it.
CLOSING_TAINTS = ENDING_TAINTS | {
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.kubernetes.io/unschedulable",
}

LABEL_KARPENTER = "karpenter.sh/nodepool"
"""Of the nodes that Karpenter brings, and takes away again when they are empty."""

# Why the kubelet does not start a container, by the reason that it gives while the container waits. For an image that
# it can't pull, it gives two reasons in turn.
# https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff
STUCK = {
    "ErrImagePull": "ImagePullBackOff",
    **{
        reason: reason
        for reason in "ImagePullBackOff InvalidImageName ErrImageNeverPull CreateContainerConfigError"
        " CreateContainerError CrashLoopBackOff".split()
    },
}


class Admission(Enum):
    """What the queue allows a job. A job without a queue is always FREE."""

    FREE = "no restriction"
    HOLD = "keeps its minimum and what runs; nothing more may wait for room"
    HEAD = "the first job that waits: may have its minimum, and nothing above it"
    WAIT = "may have no pods"
    YIELD = "had its turn and found no room: gives its pods up and goes behind the others"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of the job."""

    name: str
    uid: str
    type: str
    """The key in spec.replicaSpecs, or what the label says if there is no such type."""
    index: int
    """-1 if the label is missing or is not a number."""
    phase: str
    """Pending, Running, Succeeded, Failed or Unknown; the end of the container that trains is that of the pod, also if
    a sidecar still runs."""
    lingers: bool = False
    """Whether other containers, such as a sidecar, still run after the one that trains has ended: a deletion takes as
    long as that of a pod that runs."""
    terminating: bool = False
    gone: bool = False
    """Whether it was deleted, and only the job's status remembers how it ended."""
    core: bool = False
    """Whether it says of itself that it was made for the job's minimum; only pods with podNames Successive do."""
    job_restarts: int = 0
    """How many times all pods of the job had been made anew when it was made."""
    node: str | None = None
    unschedulable_since: datetime | None = None
    unschedulable_reason: str = ""
    """Why no node comes for it, in one word; empty if that is not known. See `tidewater.controller.provisioning`."""
    unschedulable_why: str = ""
    """What is said of it if no node has room for it: why none comes, else the scheduler's words."""
    unschedulable_until: datetime | None = None
    """When something else is said of it although nothing happens; None: never."""
    stuck: str = ""
    """Why the kubelet can't start the pod; empty if it doesn't say so."""
    stuck_why: str = ""
    """What it says about that."""
    disrupted: bool = False
    """Whether the pod was evicted or preempted, or its node refused it or went away."""
    exit_code: int | None = None
    """Of the container that trains; if it has not ended, of the first container that failed."""
    oom_killed: bool = False
    signals: int = 0
    """How many times in a row pods of this name have exited after a signal, this one included: see
    `tidewater.controller.decide.exits`. Not of the pod itself, but of the job's status."""
    restarts: int = 0
    """Restarts of the container that trains, made by the kubelet in this pod; of all if none has that name."""
    restarted_after: int | None = None
    """The exit code before the last of them."""
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    template_hash: str = ""
    """Empty if the pod does not say from which template it was made."""
    patient: bool = False
    """Whether it waits for room rather than displace others: its priority class has `preemptionPolicy: Never`."""
    tolerant: bool = False
    """Whether it tolerates what keeps pods away from a node that will go: its successor might be placed there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node, as far as the job's pods depend on it."""

    name: str
    doomed: bool = False
    """Cordoned, not ready, being deleted, or with the notice that it will be."""
    cordoned: bool = False
    """Answers, and takes no new pods because a person or a program said so; it may or may not go."""
    ends: bool = False
    """Answers, takes no new pods, and is being deleted or has the notice that it will be gone in minutes."""
    elastic: bool = False
    """Brought by Karpenter, which takes it away again when it is empty."""
    lost: bool = False
    """Deleted, or nothing has been heard of the kubelet, so that a pod there can't confirm that it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """Everything that a decision about one job depends on, except the time."""

    job: ElasticJob
    pods: tuple[PodView, ...] = ()
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """By name. Of one that is not among them nothing is known yet, and it is not taken to be doomed: news of a pod may
    come before that of its node. A node that was deleted is among them, as one that is lost."""
    services: frozenset[str] = frozenset()
    """Names of the job's services."""
    admission: Admission = Admission.FREE
    waiting_cores: int = 0
    """Core pods of other jobs that no node has room for."""
    template_hashes: Mapping[str, str] = field(default_factory=dict)
    """By replica type: the hash that a pod made now would have."""
    unused: frozenset[tuple[str, int]] = frozenset()
    """Replica types and numbers that this process has reserved, and certainly not given to a pod."""
    refusal: str = ""
    """What the API server said when it last refused to create a pod of this job; empty after a success."""
    service_refusal: str = ""
    """What it said when it last refused to create the job's service; empty if there is one."""


def type_keys(types: Iterable[str]) -> dict[str, str]:
    """Return replica types by what the label `replica-type` says of them, which is in lower case."""
    return {type.lower(): type for type in types}


def pod_view(pod: Object, types: Mapping[str, str]) -> PodView:
    """Return the view of a pod; `types` is made by `type_keys`."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    label = labels.get(names.LABEL_REPLICA_TYPE, "")
    annotations = metadata.get("annotations") or {}
    conditions = status.get("conditions") or ()
    ended = _ended(pod)
    trainers = _trainers(status.get("containerStatuses") or ())
    before = [code for each in trainers if (code := _last_exit(each)) is not None]
    unschedulable = _unschedulable(conditions)
    stuck, stuck_why = _stuck(status)
    phase = status.get("phase") or "Pending"
    lingers = phase == "Running" and _lingers(pod)
    if lingers:
        phase = "Failed" if ended.get("exitCode") else "Succeeded"
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        type=types.get(label, label),
        index=_number(labels.get(names.LABEL_REPLICA_INDEX, ""), -1),
        phase=phase,
        lingers=lingers,
        terminating=bool(metadata.get("deletionTimestamp")),
        core=labels.get(names.LABEL_TIER) == names.CORE,
        job_restarts=_number(annotations.get(names.ANNOTATION_JOB_RESTARTS, ""), 0),
        node=(pod.get("spec") or {}).get("nodeName") or None,
        unschedulable_since=_time(unschedulable.get("lastTransitionTime")),
        unschedulable_why=unschedulable.get("message") or "",
        stuck=stuck,
        stuck_why=stuck_why,
        disrupted=_disrupted(status, conditions),
        exit_code=ended.get("exitCode"),
        oom_killed=ended.get("reason") == "OOMKilled",
        restarts=sum(each.get("restartCount", 0) for each in trainers),
        restarted_after=max(before, default=None),
        created=_time(metadata.get("creationTimestamp")) or datetime.min.replace(tzinfo=UTC),
        started=_time(ended.get("startedAt")) or _time(status.get("startTime")),
        finished=_time(ended.get("finishedAt")),
        template_hash=annotations.get(names.ANNOTATION_TEMPLATE_HASH, ""),
        patient=(pod.get("spec") or {}).get("preemptionPolicy") == "Never",
        tolerant=_tolerant(pod),
    )


def node_view(node: Object) -> NodeView:
    """Return the view of a node."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    taints = {taint.get("key", "") for taint in spec.get("taints") or ()}
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    deleted, cordoned = bool(metadata.get("deletionTimestamp")), bool(spec.get("unschedulable"))
    marked = any(key in DOOMED_TAINTS or key.startswith(TERMINATION_HANDLER) for key in taints)
    lost = ready == "Unknown" or "node.kubernetes.io/unreachable" in taints
    # On a node that isn't closed, the successors of the pods that leave might be placed until it is gone.
    hard = {taint.get("key", "") for taint in spec.get("taints") or () if taint.get("effect") != "PreferNoSchedule"}
    ends = not hard.isdisjoint(ENDING_TAINTS) or (deleted and (cordoned or not hard.isdisjoint(CLOSING_TAINTS)))
    return NodeView(
        name=metadata["name"],
        doomed=deleted or cordoned or marked or ready != "True",
        cordoned=cordoned and not lost,
        ends=ends and not lost,
        elastic=LABEL_KARPENTER in (metadata.get("labels") or {}),
        lost=lost,
    )


def is_finished(status: Status) -> bool:
    """Return whether the job has succeeded or failed."""
    ends = (names.ConditionType.SUCCEEDED, names.ConditionType.FAILED)
    return any(each.status == "True" and each.type in ends for each in status.conditions)


def doomed(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether the pod's node will go or is gone, or nothing is heard of the pod."""
    if pod.phase == "Unknown":
        return True
    node = None if pod.node is None else nodes.get(pod.node)
    return node is not None and node.doomed


def lost(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether the pod's node was deleted or is silent: the kubelet there will not say when the pod has ended.

    Of a node that was deleted while no controller ran nothing is known. Kubernetes' garbage collector removes its pods.
    """
    node = None if pod.node is None else nodes.get(pod.node)
    return node is not None and node.lost


def _ended(pod: Object) -> Object:
    """Return the `terminated` part of the container that decides the pod's exit code; empty if there is none."""
    status = pod.get("status") or {}
    mine: Sequence[Object] = status.get("containerStatuses") or ()
    for container in mine:
        if container.get("name") == names.WORKER_CONTAINER or len(mine) == 1:
            terminated: Object = (container.get("state") or {}).get("terminated") or {}
            if terminated:
                return terminated
    for container in (*(status.get("initContainerStatuses") or ()), *mine):
        terminated = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            return terminated
    return {}


def _trainers(statuses: Sequence[Object]) -> Sequence[Object]:
    """Return the container that trains, of those of a pod; all of them if none has its name."""
    return [each for each in statuses if each.get("name") == names.WORKER_CONTAINER] or statuses


def _last_exit(container: Object) -> int | None:
    """Return the exit code with which a container ended before it was restarted."""
    code: int | None = ((container.get("lastState") or {}).get("terminated") or {}).get("exitCode")
    return code


def _lingers(pod: Object) -> bool:
    """Return whether a pod that runs has others than the container that trains, which has ended and stays so.

    Kubernetes says Running until all containers have ended, and a sidecar may never end. Of a pod's only container the
    kubelet reports the end with the phase.
    """
    statuses: Sequence[Object] = pod["status"].get("containerStatuses") or ()
    if len(statuses) < 2 or (pod.get("spec") or {}).get("restartPolicy") != "Never":
        return False
    return any(
        each.get("name") == names.WORKER_CONTAINER and bool((each.get("state") or {}).get("terminated"))
        for each in statuses
    )


def _disrupted(status: Object, conditions: Sequence[Object]) -> bool:
    reason = status.get("reason") or ""
    if reason in DISRUPTIONS or reason.startswith(OUT_OF):
        return True
    return any(each.get("type") == "DisruptionTarget" and each.get("status") == "True" for each in conditions)


def _unschedulable(conditions: Sequence[Object]) -> Object:
    """Return the scheduler's condition that no node has room; empty if there is none."""
    for each in conditions:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return each if each.get("reason") == "Unschedulable" else {}
    return {}


def _tolerant(pod: Object) -> bool:
    """Return whether the pod tolerates all taints, or one of those that close a node.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    tolerations: Sequence[Object] = (pod.get("spec") or {}).get("tolerations") or ()
    return any(
        each.get("effect", "") in ("", "NoSchedule") and (not each.get("key") or each["key"] in CLOSING_TAINTS)
        for each in tolerations
    )


def _stuck(status: Object) -> tuple[str, str]:
    """Return why the first container that can't start doesn't, and the kubelet's words; empty if there is none.

    A pod that runs has started, although a container of it may fail again and again: its restarts are counted.
    """
    if status.get("phase", "Pending") != "Pending":
        return "", ""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in STUCK:
            return STUCK[waiting["reason"]], waiting.get("message") or ""
    return "", ""


def _number(text: str, otherwise: int) -> int:
    """Return the number that a label or an annotation contains."""
    return int(text) if text.isascii() and text.isdigit() else otherwise


def _time(text: str | None) -> datetime | None:
    """Return a time of the API server, which is in RFC 3339."""
    return datetime.fromisoformat(text) if text else None
