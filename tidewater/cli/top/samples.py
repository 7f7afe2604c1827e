"""What one look at the cluster has found: jobs, their workers, and what the workers' metrics say. Pure.

    job = job_sample(elasticjob, pods, events, metrics)

Objects are read tolerantly: a job that the controller has not seen yet has no status, and old manifests have no limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidewater.cli.job.lookup import last_seen
from tidewater.cli.job.waiting import told
from tidewater.cli.show import moment
from tidewater.cli.top.sampling import NO_ANSWERS, Answers
from tidewater.cli.top.scrape import Scraped
from tidewater.elasticjob import names
from tidewater.elasticjob.pod_end import failed_end
from tidewater.kube.cluster import Object

READY_STATE = "Running"


@dataclass(frozen=True)
class Worker:
    """One pod of a job."""

    name: str
    uid: str
    type: str
    index: int
    state: str
    """As `kubectl get pods` shows it, and more exact where a pod waits, ends or has failed."""
    node: str
    core: bool
    """Whether the job needs it to reach its minimum; the others are surge."""
    restarts: int
    """Restarts of its containers by the kubelet."""
    scraped: Scraped = field(default_factory=Scraped)


@dataclass(frozen=True)
class Note:
    """A Kubernetes event about a job."""

    key: str
    """Differs for each occurrence."""
    at: datetime
    warning: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Job:
    """One job."""

    namespace: str
    name: str
    uid: str
    state: str
    message: str
    """What the controller says of it."""
    waiting: str
    """What keeps workers from running, in one word; empty if nothing does."""
    desired: int
    minimum: int
    maximum: int
    active: int
    failures: int
    """Failures of workers that counted towards the back-off limit."""
    since: datetime
    """When it started; before that, when it was created."""
    ended: datetime | None = None
    workers: tuple[Worker, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True)
class Sample:
    """One look at the cluster."""

    at: datetime
    jobs: tuple[Job, ...]
    none: str = ""
    """If there are no jobs: where there are some."""
    answers: Answers = NO_ANSWERS
    """What the workers have answered up to this look; the next one needs it."""


Metrics = Mapping[tuple[str, str], Scraped]
"""By namespace and name of the pod."""


def job_sample(job: Object, pods: Iterable[Object], events: Iterable[Object], metrics: Metrics) -> Job:
    """Return the job; `pods` are its own, `events` those about it."""
    meta, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    replicas = int(_worker_spec(spec).get("replicas", 1))
    return Job(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        state=str(status.get("state") or "New"),
        message=told(job),
        waiting=str(status.get("waiting", "")),
        desired=int(status.get("desired", replicas)),
        minimum=core_count(spec, names.WORKER),
        maximum=int(spec.get("maxReplicas", replicas)),
        active=int((status.get("replicaStatuses") or {}).get(names.WORKER, {}).get("active", 0)),
        failures=int(status.get("restarts", 0)),
        since=moment(status.get("startTime") or meta["creationTimestamp"]),
        ended=moment(status["completionTime"]) if status.get("completionTime") else None,
        workers=workers(spec, pods, metrics),
        notes=tuple(sorted(map(note, events), key=lambda each: (each.at, each.key))),
    )


def workers(spec: Object, pods: Iterable[Object], metrics: Metrics) -> tuple[Worker, ...]:
    """Return the pods of a job as workers, type by type, in the order of their indices."""
    found = []
    for pod in pods:
        meta, labels = pod["metadata"], pod["metadata"]["labels"]
        kind, index = type_of(spec, labels), int(labels.get(names.LABEL_REPLICA_INDEX, 0))
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        found.append(
            Worker(
                name=meta["name"],
                uid=meta["uid"],
                type=kind,
                index=index,
                state=pod_state(pod),
                node=str(pod["spec"].get("nodeName", "")),
                core=is_core(spec, labels),
                restarts=sum(int(each.get("restartCount", 0)) for each in statuses),
                scraped=metrics.get((meta["namespace"], meta["name"]), Scraped()),
            )
        )
    # A pod that is ending and its replacement may be there at the same time.
    return tuple(sorted(found, key=lambda each: (each.type != names.WORKER, each.type, each.index, each.name)))


def type_of(spec: Object, labels: Object) -> str:
    """Return the replica type of a pod as the job's spec spells it: labels have it in lower case."""
    label = str(labels.get(names.LABEL_REPLICA_TYPE, ""))
    return next((name for name in spec.get("replicaSpecs") or {} if name.lower() == label), label)


def is_core(spec: Object, labels: Object) -> bool:
    """Return whether the job needs a pod with these labels to reach its minimum.

    With podNames Successive the controller says so in a label, and the index doesn't. With workersPerReplica the
    number of the replica counts.
    """
    tier = labels.get(names.LABEL_TIER)
    number = int(labels.get(names.LABEL_REPLICA) or labels.get(names.LABEL_REPLICA_INDEX, 0))
    return number < core_count(spec, type_of(spec, labels)) if tier is None else tier == names.CORE


def core_count(spec: Object, kind: str) -> int:
    """Return how many replicas of a type the job needs."""
    replica = (spec.get("replicaSpecs") or {}).get(kind) or {}
    place = spec if kind == names.WORKER else replica
    return int(place.get("minReplicas", replica.get("replicas", 1)))


def pod_state(pod: Object) -> str:
    """Return the state of a pod in one or two words."""
    status = pod.get("status") or {}
    phase = str(status.get("phase", "Unknown"))
    if pod["metadata"].get("deletionTimestamp"):
        return "Ending"
    if phase == "Failed":
        return str(status.get("reason") or f"Failed {failed_end(status).get('exitCode', '')}".strip())
    return _waiting_reason(status) or _condition_reason(status, phase) or phase


def _waiting_reason(status: Object) -> str:
    """Return why a container waits, as `ImagePullBackOff`; empty if none does, or if it is only being started."""
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        reason = str(container.get("state", {}).get("waiting", {}).get("reason", ""))
        if reason and reason not in ("PodInitializing", "ContainerCreating"):
            return reason
    return ""


def _condition_reason(status: Object, phase: str) -> str:
    conditions = {each.get("type"): each for each in status.get("conditions") or []}
    scheduled, ready = conditions.get("PodScheduled", {}), conditions.get("Ready", {})
    if phase == "Pending" and scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable")
    if phase == READY_STATE and ready.get("status") in ("False", "Unknown"):
        return "Not ready"
    return ""


def note(event: Object) -> Note:
    """Return an event, with the time of its last occurrence."""
    count = (event.get("series") or {}).get("count", event.get("count", 1))
    return Note(
        key=f"{event['metadata']['uid']} {count}",
        at=moment(last_seen(event)),
        warning=event.get("type") == "Warning",
        reason=str(event.get("reason", "")),
        message=str(event.get("message", "")).strip(),
    )


def _worker_spec(spec: Object) -> Object:
    found: Object = (spec.get("replicaSpecs") or {}).get(names.WORKER) or {}
    return found
