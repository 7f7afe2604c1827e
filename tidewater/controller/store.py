"""What the controller knows: mirrors of jobs, pods, services and nodes, and the views of single jobs made of them.

    store = Store(cluster, Options(), work.add_after)
    view = store.view(key, now)     # a JobView, or None if there is no such job

The mirrors keep as little as they can, since there may be thousands of jobs: of a job its JSON without
`metadata.managedFields`, of a pod and a node what the decision reads, of a service nothing but its owner.

Whatever changes makes the jobs that it concerns due. What the controller itself has just written does not, since the
reconciliation that wrote it decides again anyway.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from tidewater.controller import objects
from tidewater.controller.admission.queues import Queues
from tidewater.controller.admission.quotas import Quotas
from tidewater.controller.cluster.client import Cluster, Manifest, Source, within
from tidewater.controller.cluster.mirror import Change, Entry, Key, Mirror, Report
from tidewater.controller.decide.actions import CreatePod
from tidewater.controller.decide.observed import Admission, JobView, NodeView, PodView
from tidewater.controller.decide.queue import need
from tidewater.controller.decide.replica_groups import core_bound
from tidewater.controller.options import Options
from tidewater.controller.pod_index import PodIndex
from tidewater.controller.progress.watch import ProgressWatch
from tidewater.controller.provisioning.event_watch import EventWatch
from tidewater.controller.room.watch import RoomWatch
from tidewater.controller.views import node_view, pod_view, type_keys
from tidewater.elasticjob import codec, indexes, names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob, PodNames
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import NODES, PODS, SERVICES

SELECTOR = f"{names.LABEL_GROUP_NAME}={names.GROUP}"

COALESCE_SECONDS = 0.1
"""How long to wait for more news of a job's pods while they start: several often do at once, and the status is then
written once."""

DECODED = 256
"""Jobs that are also kept as objects: those that were looked at last."""

GONE_NODES = 1024
"""Nodes that are remembered after their deletion: the last ones. Kubernetes soon removes the pods of any of them."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_COMMON_TYPES = type_keys((names.WORKER, names.MASTER, "PS"))

Due = Callable[[Key, float], None]
"""Called with a job's key and the seconds after which it is due."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What the mirror keeps of a job: its JSON, and what is looked at for all jobs at once."""

    body: bytes
    generation: int
    state: str
    queued: bool
    autoscale: bool

    def manifest(self) -> Manifest:
        """Return the job as the API server has it, without what the mirror leaves out."""
        found: Manifest = msgspec.json.decode(self.body, type=dict[str, Any])
        return found


def read_job(manifest: Manifest) -> JobRecord:
    """Return what the mirror keeps of a job."""
    meta = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    if _LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if key != _LAST_APPLIED}
    spec, status = _part(manifest, "spec"), _part(manifest, "status")
    return JobRecord(
        body=msgspec.json.encode({**manifest, "metadata": meta}),
        generation=meta.get("generation", 0),
        state=str(status.get("state", "")),
        queued="queue" in _part(spec, "schedulingPolicy"),
        autoscale=spec.get("autoscale") is True,
    )


def read_pod(manifest: Manifest) -> PodView:
    """Return what the mirror keeps of a pod."""
    return pod_view(manifest, _COMMON_TYPES)


def read_service(manifest: Manifest) -> str:
    """Return what the mirror keeps of a service: its name."""
    return str(manifest["metadata"]["name"])


class Store:
    """The mirrors, and the indexes that lead from a pod, a service or a node to the jobs that it concerns.

    Args:
        cluster: Where to list and watch.
        options: What to look after.
        due: Called for each job that something has changed for.
        report: Called when a watch has ended.
    """

    def __init__(
        self, cluster: Cluster, options: Options, due: Due, report: Report = lambda plural, error: None
    ) -> None:
        self._due = due
        self._taints_nodes, namespaces = options.taints_nodes, options.namespaces
        self._keys: dict[str, Key] = {}
        self._pods = PodIndex()
        self._services: dict[str, set[str]] = {}
        self._nodes: dict[str, NodeView] = {}
        self._gone_nodes: dict[str, None] = {}  # the oldest first
        self._autoscaled: set[Key] = set()
        self._waiting: Counter[str] = Counter()
        self._all_waiting = 0
        self.service_refusals: dict[str, str] = {}
        self._unused: dict[str, set[tuple[str, int]]] = {}
        self._decoded: OrderedDict[tuple[str, int], tuple[ElasticJob, Mapping[str, str]]] = OrderedDict()
        self._rooms = RoomWatch(cluster, lambda: self._queues.room_changed(), report) if options.fixed_nodes else None
        self._queues = Queues(due, self._rooms, lambda key: self._quotas.may(key))
        self._quotas = Quotas(options.quotas, options.worker_size, self._pods.of, due)
        self._hearing = EventWatch(cluster, namespaces, self._provisioning_changed, report)
        self._progress = ProgressWatch(self._running, self._pods.by_job, self._owner_due)
        jobs, pods, services = (
            within(Source(kind, selector=selector), namespaces)
            for kind, selector in ((JOBS, ""), (PODS, SELECTOR), (SERVICES, SELECTOR))
        )
        self.jobs = Mirror(cluster, jobs, read_job, self._job_changed, report)
        self.pods = Mirror(cluster, pods, read_pod, self._pod_changed, report)
        self.services = Mirror(cluster, services, read_service, self._service_changed, report)
        # A controller without rights in the whole cluster can't read nodes. It then learns less about doomed pods.
        self.nodes = Mirror(cluster, [Source(NODES, optional=True)], node_view, self._node_changed, report)

    @property
    def synced(self) -> bool:
        """Return whether everything has been listed once."""
        return all(mirror.synced.is_set() for mirror in (self.jobs, self.pods, self.services, self.nodes))

    async def wait_synced(self) -> None:
        """Wait until everything has been listed once."""
        for synced in (self.jobs.synced, self.pods.synced, self.services.synced, self.nodes.synced):
            await synced.wait()

    async def run(self) -> None:
        """Keep the mirrors current, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for run in (self.jobs.run, self.pods.run, self.services.run, self.nodes.run, self._hearing.run):
                tasks.create_task(run())
            tasks.create_task(self._progress.run())
            if self._rooms is not None:
                tasks.create_task(self._rooms.run())

    def job(self, key: Key) -> Manifest | None:
        """Return a job as the API server has it; None if there is no such job."""
        entry = self.jobs.entries.get(key)
        return None if entry is None else entry.value.manifest()

    def view(self, key: Key, now: datetime, refusal: str = "") -> JobView | None:
        """Return everything that a decision about a job depends on; None if there is no such job.

        Args:
            key: The job.
            now: The time.
            refusal: What the API server said when it refused to create a pod just now.

        Raises:
            codec.InvalidJob: The job can't be read.
        """
        entry = self.jobs.entries.get(key)
        if entry is None:
            return None
        job, hashes = self._decode(entry)
        types = type_keys(job.spec.replica_specs)
        return JobView(
            job=job,
            pods=tuple(self._told(_typed(pod, job, types), now) for pod in self._pods.of(job.uid)),
            nodes=self._nodes,
            services=frozenset(self._services.get(job.uid, ())),
            share=self._quotas.share(key),
            admission=self._queues.admission(key, now),
            fixed_nodes=self._rooms is not None,
            taints_nodes=self._taints_nodes,
            waiting_cores=self._all_waiting - self._waiting[job.uid],
            template_hashes=hashes,
            unused=frozenset(self._unused.get(job.uid, ())),
            refusal=refusal,
            service_refusal=self.service_refusals.get(job.uid, ""),
            silence=self._progress.sentence(job.uid),
        )

    def _running(self) -> list[str]:
        return [entry.uid for entry in self.jobs.entries.values() if entry.value.state == State.RUNNING]

    def service_refused(self, job: ElasticJob, why: str) -> None:
        """Note why the API server does not accept the job's service, for every decision until there is one.

        Unlike a refused pod, it is no reason to decide otherwise, so most decisions don't come from an attempt.
        """
        if job.uid in self._keys:
            self.service_refusals[job.uid] = why

    def note_unused(self, job: ElasticJob, creations: Iterable[CreatePod]) -> None:
        """Note numbers that are reserved in the job's status and that certainly no pod has got.

        Only the process that has reserved them knows that. After its end they stay unused.
        """
        types = job.spec.replica_specs
        numbers = {(each.type, each.index) for each in creations if types[each.type].pod_names is PodNames.SUCCESSIVE}
        if numbers and job.uid in self._keys:
            self._unused.setdefault(job.uid, set()).update(numbers)

    def note_used(self, job: ElasticJob, creation: CreatePod) -> None:
        """Note that a pod gets this number, or may have got it, as the answer of the API server may be lost."""
        self._unused.get(job.uid, set()).discard((creation.type, creation.index))

    def states(self) -> Mapping[str, int]:
        """Return the number of jobs by state."""
        return Counter(entry.value.state or "New" for entry in self.jobs.entries.values())

    def note(self, view: JobView) -> None:
        """Note for how many core pods this job waits for room, for the jobs that would give room back."""
        waits = sum(_core_waits(pod, view.job) for pod in view.pods)
        if view.admission is Admission.ROOM:  # it gets no pods that could wait until all of them have room
            waits = sum(need(view.job, type) * view.job.spec.pods_each(type) for type in view.job.spec.replica_specs)
        self._set_waiting(view.job.uid, waits)

    def _set_waiting(self, uid: str, waits: int) -> None:
        if waits == self._waiting[uid]:
            return
        self._all_waiting += waits - self._waiting[uid]
        self._waiting[uid] = waits
        if not waits:
            del self._waiting[uid]
        for key in self._autoscaled:
            self._due(key, COALESCE_SECONDS)

    def _decode(self, entry: Entry[JobRecord]) -> tuple[ElasticJob, Mapping[str, str]]:
        """Return a job as the model has it, and the hashes of its templates. Raise InvalidJob if it can't be read."""
        at = (entry.uid, entry.version)
        found = self._decoded.pop(at, None)
        if found is None:
            job = codec.job_of(entry.value.manifest())
            found = (job, objects.template_hashes(job))
        self._decoded[at] = found
        if len(self._decoded) > DECODED:
            self._decoded.popitem(last=False)
        return found

    def _job_changed(self, change: Change[JobRecord]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or new.uid != old.uid):
            self._keys.pop(old.uid, None)
            self.service_refusals.pop(old.uid, None)
            self._unused.pop(old.uid, None)
            self._set_waiting(old.uid, 0)
        if new is not None:
            self._keys[new.uid] = new.key
        entry = new or old
        if entry is None:
            return
        if new is not None and new.value.autoscale:
            self._autoscaled.add(entry.key)
        else:
            self._autoscaled.discard(entry.key)
        if any(each is not None and each.value.queued for each in (old, new)):
            self._queues.put(entry.key, self._readable(new))
        if self._quotas.concern(entry.key):
            self._quotas.put(entry.key, self._readable(new))
        if change.mine:
            return
        if old is not None and new is not None and (old.uid, old.value.generation) == (new.uid, new.value.generation):
            self._owner_due(new.uid)  # perhaps what this process has just written, before the answer to that
        else:
            self._due(entry.key, 0.0)

    def _readable(self, entry: Entry[JobRecord] | None) -> ElasticJob | None:
        """Return the job; None if it is gone or can't be read."""
        try:
            return None if entry is None else self._decode(entry)[0]
        except codec.InvalidJob:
            return None

    def _pod_changed(self, change: Change[PodView]) -> None:
        old, new = change.old, change.new
        if old is not None:
            self._pods.drop(old.owner, old.value)
            if new is None or new.uid != old.uid:
                self._hearing.waits(old.key, old.uid, False)
        if new is not None and new.owner:
            self._pods.put(new.owner, new.value)
            waits = new.value.unschedulable_since is not None and not new.value.terminating
            self._hearing.waits(new.key, new.uid, waits)
        if old is None or new is None or old.value.phase != new.value.phase:
            self._quotas.pods_changed()
        if change.mine:
            return
        starts = new is not None and not new.value.terminating and new.value.phase in ("Pending", "Running")
        for owner in {entry.owner for entry in (old, new) if entry is not None}:
            self._owner_due(owner, COALESCE_SECONDS if starts else 0.0)
        if old is not None and new is None:
            self._freed(Key(old.key.namespace, names.job_of_pod(old.key.name, old.value.type, old.value.index)))

    def _told(self, pod: PodView, now: datetime) -> PodView:
        """Return the pod with what Karpenter says of why no node comes for it."""
        if pod.unschedulable_since is None:
            return pod
        found = self._hearing.explanation(pod.uid, now)
        if not found.reason:
            return pod
        return replace(
            pod,
            unschedulable_reason=found.reason,
            unschedulable_why=found.why,
            unschedulable_until=found.until,
        )

    def _provisioning_changed(self, pod: Key, uid: str) -> None:
        """Karpenter has said something of a pod, which its job's status may repeat."""
        entry = self.pods.entries.get(pod)
        if entry is not None and entry.uid == uid:
            self._owner_due(entry.owner, COALESCE_SECONDS)

    def _owner_due(self, uid: str, seconds: float = 0.0) -> None:
        """Let the job of that uid be looked at, if there is one; later if it has many pods."""
        if uid in self._keys:
            self._due(self._keys[uid], max(seconds, self._pods.patience(uid)))

    def _service_changed(self, change: Change[str]) -> None:
        old, new = change.old, change.new
        if old is not None:
            self._services.get(old.owner, set()).discard(old.value)
            if not self._services.get(old.owner):
                self._services.pop(old.owner, None)
        if new is not None and new.owner:
            self._services.setdefault(new.owner, set()).add(new.value)
            self.service_refusals.pop(new.owner, None)
        for entry in (old, new):
            if entry is not None and not change.mine:
                self._owner_due(entry.owner)
        if old is not None and new is None:
            self._freed(old.key)  # a service has its job's name

    def _freed(self, job: Key) -> None:
        """A name is free again: a job that was made anew under its name may wait for that."""
        if job in self.jobs.entries:
            self._due(job, 0.0)

    def _node_changed(self, change: Change[NodeView]) -> None:
        entry = change.new or change.old
        if entry is None:
            return
        name = entry.key.name
        self._nodes.pop(name, None)
        self._gone_nodes.pop(name, None)
        if change.new is not None:
            self._nodes[name] = entry.value
        else:
            self._nodes[name] = NodeView(name=name, doomed=True, lost=True)
            self._gone_nodes[name] = None
            if len(self._gone_nodes) > GONE_NODES:
                oldest = next(iter(self._gone_nodes))
                del self._gone_nodes[oldest], self._nodes[oldest]
        for owner in self._pods.jobs_on(name):
            self._owner_due(owner)


def _part(manifest: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return a part of an object, empty if it is missing or not what it should be."""
    found = manifest.get(field)
    return found if isinstance(found, dict) else {}


def _typed(pod: PodView, job: ElasticJob, types: Mapping[str, str]) -> PodView:
    """Return the pod with the replica type as the job writes it; a pod's label has it in lower case."""
    if pod.type in job.spec.replica_specs:
        return pod
    label = pod.type.lower()
    return replace(pod, type=types.get(label, label))


def _core_waits(pod: PodView, job: ElasticJob) -> bool:
    if pod.unschedulable_since is None or pod.terminating or pod.type not in job.spec.replica_specs:
        return False
    if job.spec.replica_specs[pod.type].pod_names is PodNames.SUCCESSIVE:
        return pod.core
    found = job.status.replica_statuses.get(pod.type)
    low, failed = job.bounds(pod.type)[0], indexes.numbers(found.failed_indexes) if found else ()
    return pod.index // job.spec.pods_each(pod.type) < core_bound(low, failed)
