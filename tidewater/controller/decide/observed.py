"""What the controller observes of one job: frozen views, which `tidewater.controller.views` makes.

    view = JobView(job=job, pods=tuple(pod_view(pod, types) for pod in pods), nodes={...})

The decision reads these views and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from tidewater.controller.sharing.shares import Share
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import Status

STARTING = ("ContainerCreating", "PodInitializing")
"""What the kubelet says of a container while it mounts volumes, pulls the image, or runs init containers."""


ENDED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""


class Admission(Enum):
    """What the queue allows a job. A job without a queue is always FREE."""

    FREE = "no restriction"
    HOLD = "keeps its minimum and what runs; nothing more may wait for room"
    HEAD = "the first job that waits: may have its minimum, and nothing above it"
    WAIT = "may have no pods"
    YIELD = "had its turn and found no room: gives its pods up and goes behind the others"
    ROOM = "the first job that waits, on fixed nodes: may have no pods until all of its minimum has room"
    BACKFILL = "goes ahead of its turn: may have its minimum until the head would fit without it"
    GIVE_BACK = "went ahead of its turn: gives its pods up for the head, and keeps its place"
    MISFIT = "may have no pods: its minimum has no room even on empty nodes, so the others come first"


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
    ready: bool = True
    """Whether the container that trains has passed its startup and readiness probes, as far as it has any, and runs."""
    terminating: bool = False
    gone: bool = False
    """Whether it was deleted, and only the job's status remembers how it ended."""
    core: bool = False
    """Whether it says of itself that it was made for the job's minimum; only pods with podNames Successive do."""
    job_restarts: int = 0
    """How many times all pods of the job had been made anew when it was made."""
    node: str | None = None
    address: str = ""
    """Its IP address; empty if it has none yet."""
    metrics_ports: tuple[int, ...] = ()
    """The container ports named `metrics`, `metrics-1` and so on, at which its processes serve their metrics."""
    unschedulable_since: datetime | None = None
    unschedulable_reason: str = ""
    """Why no node comes for it, in one word; empty if that is not known. See `tidewater.controller.provisioning`."""
    unschedulable_why: str = ""
    """What is said of it if no node has room for it: why none comes, else the scheduler's words."""
    unschedulable_until: datetime | None = None
    """When something else is said of it although nothing happens; None: never."""
    nominated: bool = False
    """Whether a node is chosen for it, which only has to start or to be cleared of other pods."""
    stuck: str = ""
    """Why the pod is not scheduled, or the kubelet can't start it or only has to; empty if nothing says so."""
    stuck_why: str = ""
    """What is said about that."""
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
    last_words: str = ""
    """The end of what the container that trains has printed, if it has failed, or was restarted after a failure."""
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    template_hash: str = ""
    """Empty if the pod does not say from which template it was made."""
    patient: bool = False
    """Whether it waits for room rather than displace others: its priority class has `preemptionPolicy: Never`."""
    tolerant: bool = False
    """Whether it tolerates what keeps pods away from a node that will go: its successor might be placed there again."""
    members: tuple[PodView, ...] = ()
    """Of a replica of several pods, which `tidewater.controller.decide.replicas` makes: those that there are."""
    absent: tuple[int, ...] = ()
    """Of such a replica: the indices of the pods that it lacks and is to get."""

    @property
    def parts(self) -> tuple[PodView, ...]:
        """Return the pods of a replica: the pod itself if it is a whole one."""
        return self.members or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node, as far as the job's pods depend on it."""

    name: str
    uid: str = ""
    """Empty if it is gone."""
    tainted: bool = False
    """Has the taint that keeps pods away from a node on which devices fail."""
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
    replaced: tuple[PodView, ...] = ()
    """Pods that ended, were replaced under another number, and stay only for their logs; `parted` finds them."""
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    """By name. Of one that is not among them nothing is known yet, and it is not taken to be doomed: news of a pod may
    come before that of its node. A node that was deleted is among them, as one that is lost."""
    services: frozenset[str] = frozenset()
    """Names of the job's services."""
    admission: Admission = Admission.FREE
    share: Share | None = None
    """What the quotas of teams allow the job; None: no quota concerns it."""
    fixed_nodes: bool = False
    """Whether no node comes for a pod that waits."""
    taints_nodes: bool = False
    """Whether nodes on which devices fail get a taint."""
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
    silence: str = ""
    """A sentence on how long the job, which runs, has made no step, and which worker it waits for; empty if it makes
    steps, or if that is not known. See `tidewater.controller.progress`."""


def over_quota(view: JobView) -> bool:
    """Return whether the job may have no pods because of the quotas of teams."""
    return view.share is not None and not view.share.workers


def parted(view: JobView) -> JobView:
    """Return the view with the pods apart that were replaced: they no longer count, whatever becomes of the job."""
    found = view.job.status.replica_statuses.items()
    former = {(type, index) for type, each in found for index in indexes.numbers(each.replaced_indexes)}
    if not former:
        return view
    ended = (pod for pod in view.pods if pod.phase == "Failed" and not pod.lingers)
    replaced = tuple(pod for pod in ended if (pod.type, pod.index) in former)
    return replace(view, pods=tuple(pod for pod in view.pods if pod not in replaced), replaced=replaced)


def is_finished(status: Status) -> bool:
    """Return whether the job has succeeded or failed."""
    ends = (names.ConditionType.SUCCEEDED, names.ConditionType.FAILED)
    return any(each.status == "True" and each.type in ends for each in status.conditions)


def doomed(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether the node of a pod will go or is gone, or nothing is heard of the pod; of a replica, of any pod."""
    if pod.members:
        return any(doomed(each, nodes) for each in pod.members)
    if pod.phase == "Unknown":
        return True
    node = None if pod.node is None else nodes.get(pod.node)
    return node is not None and node.doomed


def expects_node(pod: PodView) -> bool:
    """Return whether a pod without room has a node on its way."""
    return pod.nominated or pod.unschedulable_reason == names.NODE_STARTING


def lost(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether the pod's node was deleted or is silent: the kubelet there will not say when the pod has ended.

    Of a node that was deleted while no controller ran nothing is known. Kubernetes' garbage collector removes its pods.
    """
    node = None if pod.node is None else nodes.get(pod.node)
    return node is not None and node.lost
