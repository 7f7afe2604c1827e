"""Carries out what was decided about a job: one request per action, and one for the status.

    hands = Hands(cluster, store, recorder)
    await hands.carry_out(job, decision.actions)
    await hands.write_status(job, manifest, decision.status)

Actions of the same kind that follow each other are carried out in order, a few at a time. The first creations are sent
one by one, so that the minimum and then the lowest indexes come first where not all fit. An error that concerns one
pod, such as a name that is taken, doesn't keep the others from being created, unless none of the first can be. What the
API server returns goes into the mirrors at once, so that the next decision counts it. Every action may be repeated: an
action says the pod's name, so a second creation finds the first one's pod; a deletion names the uid; a status names the
resourceVersion.

Numbers that no pod may have twice are reserved in the status before. The ones that were reserved and certainly given
to no pod, because no request was sent or the API server refused it, are noted for the next decision: otherwise every
attempt under a quota would use up others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from tidewater.contract.labels import TAINT_DEVICE_FAILING
from tidewater.controller import objects
from tidewater.controller.cluster.client import Cluster, Manifest, Ref
from tidewater.controller.cluster.mirror import Key, Mirror
from tidewater.controller.decide.actions import Action, CreatePod, CreateService, DeleteJob, DeletePod, Emit, TaintNode
from tidewater.controller.decide.displacement import QUOTA
from tidewater.controller.observe.events import About, Recorder, about
from tidewater.controller.observe.log import Log
from tidewater.controller.store import Store
from tidewater.elasticjob import codec, indexes, names
from tidewater.elasticjob.model import ElasticJob, Status
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Busy, ClusterError, Conflict, Exists, NotFound, Refused, Unavailable, Unreachable
from tidewater.kube.kinds import NODES, PODS, SERVICES, Kind

AT_A_TIME = 8
"""Requests for one job at the same time."""

T = TypeVar("T")


class ServiceRefused(Refused):
    """The API server does not accept the service. The job's pods were created all the same."""


class TaintRefused(Refused):
    """The API server does not accept a node's taint. All other actions were carried out."""


class PodNotCreated(Exception):
    """At least one pod was not created. `cause` is the first error: why the API server refused, or did not answer."""

    def __init__(self, cause: ClusterError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class NameTaken(Unavailable):
    """An object of an earlier job, which is being deleted, still has the name."""


class Hands:
    """Carries out actions.

    Args:
        cluster: A fenced one.
        store: Its mirrors take over what is written.
        recorder: Where to record what was done.
        log: Where to log it.
        domain: The cluster's DNS domain.
    """

    def __init__(
        self, cluster: Cluster, store: Store, recorder: Recorder, log: Log, domain: str = objects.CLUSTER_DOMAIN
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._recorder = recorder
        self._log = log
        self._domain = domain

    async def carry_out(self, job: ElasticJob, actions: Sequence[Action]) -> None:
        """Carry out the actions in order. What comes after an action that failed is left for the next decision.

        Raises:
            PodNotCreated: A pod was not created; the message is for people. All pods that could be created are.
            ServiceRefused, TaintRefused: It does not accept these. All other actions have been carried out.
            ClusterError: Anything else that may succeed the next time.
        """
        refused: Refused | None = None
        self._store.note_unused(job, [action for action in actions if isinstance(action, CreatePod)])
        for kind, same in itertools.groupby(actions, type):
            group = list(same)
            if kind is CreatePod:
                await self._create_pods(job, [each for each in group if isinstance(each, CreatePod)])
            elif kind is DeletePod:
                await self._delete_pods(job, [each for each in group if isinstance(each, DeletePod)])
            elif kind is CreateService:
                refused = await self._create_service(job)
            elif kind is TaintNode:
                for each in group:
                    if isinstance(each, TaintNode):
                        refused = await self._taint_node(job, each) or refused
            elif kind is DeleteJob:
                await self._delete_job(job)
        if refused is not None:
            raise refused

    def emit(self, job: ElasticJob, events: Iterable[Emit]) -> None:
        """Record events that a decision asks for."""
        for event in events:
            self._recorder.record(about(job), event.type, event.reason, event.message)
            self._log.info("job_event", job=f"{job.namespace}/{job.name}", reason=event.reason, message=event.message)

    async def write_status(self, job: ElasticJob, status: Status) -> None:
        """Write the status if it differs from the job's.

        Raises:
            Conflict: The job has changed since it was read.
        """
        if status != job.status:
            # A new job has no status, not even the zeros that an empty one reads as: a client may wait for one of them.
            old = codec.status_object(job.status) if job.status.observed_generation else {}
            new = codec.status_object(status)
            await self.patch_status(about(job), job.resource_version, old, new)

    async def patch_status(self, job: About, version: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Write the difference between two statuses of a job.

        Args:
            job: The job.
            version: Its resourceVersion when it had the old status.
            old: What it says.
            new: What it shall say.

        Raises:
            Conflict: The job has changed since.
            Refused: The job was stored under another definition, and breaks a rule of this one. The API server then
                accepts no change that doesn't correct it; it compares a spec with the stored one only if the definition
                describes every field of it, and templates are not described.
                https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-ratcheting
        """
        patch = {"metadata": {"resourceVersion": version}, "status": difference(old, new)}
        try:
            found = await self._cluster.patch(Ref(JOBS, job.namespace, job.name), patch, "status")
        except NotFound:
            return  # deleted: its event is on the way
        except Refused as error:
            self._recorder.record(job, "Warning", names.Reason.INVALID, str(error))
            raise
        self._store.jobs.wrote(found)

    async def _create_pods(self, job: ElasticJob, actions: Sequence[CreatePod]) -> None:
        done: list[str] = []
        errors: list[ClusterError] = []
        try:
            for wave in waves(actions):
                await paced(
                    wave,
                    lambda action: self._create_pod(job, action, done, errors),
                    lambda: hopeless(errors, len(done)),
                )
        finally:
            if done:
                message = f"Created pod{'s' if len(done) > 1 else ''}: {indexes.listed(done)}"
                self._recorder.record(about(job), "Normal", names.Reason.SUCCESSFUL_CREATE_POD, message)
                self._log.info("pods_created", job=f"{job.namespace}/{job.name}", pods=indexes.listed(done))
        if errors:
            self._recorder.record(about(job), "Warning", names.Reason.FAILED_CREATE_POD, str(errors[0]))
            self._log.warning("pod_refused", job=f"{job.namespace}/{job.name}", reason=str(errors[0]))
            raise PodNotCreated(errors[0]) from errors[0]

    async def _create_pod(
        self, job: ElasticJob, action: CreatePod, done: list[str], errors: list[ClusterError]
    ) -> None:
        """Create a pod and add its name to `done`, or the reason why there is none to `errors`."""
        manifest = objects.pod(job, action, self._domain)
        self._store.note_used(job, action)
        try:
            await self._create(PODS, manifest, job, self._store.pods, done)
        except (Refused, Unavailable) as error:
            if isinstance(error, (Refused, NameTaken)):
                self._store.note_unused(job, [action])
            errors.append(error)

    async def _create_service(self, job: ElasticJob) -> ServiceRefused | None:
        """Create the service. Return a refusal rather than raise it, since pods are useful without the service."""
        try:
            await self._create(SERVICES, objects.service(job), job, self._store.services, [])
        except Refused as error:
            self._recorder.record(about(job), "Warning", names.Reason.FAILED_CREATE_SERVICE, str(error))
            self._log.warning("service_refused", job=f"{job.namespace}/{job.name}", reason=str(error))
            self._store.service_refused(job, str(error))
            return ServiceRefused(str(error), status=error.status)
        return None

    async def _create(
        self, kind: Kind, manifest: Manifest, job: ElasticJob, mirror: Mirror[T], done: list[str]
    ) -> None:
        """Create an object, or adopt it if an earlier request has created it; add its name to `done` if it is new."""
        name = manifest["metadata"]["name"]
        try:
            found = await self._cluster.create(kind, manifest)
            done.append(name)
        except Exists:
            found = await self._adopted(Ref(kind, job.namespace, name), job)
        mirror.wrote(found)

    async def _adopted(self, ref: Ref, job: ElasticJob) -> Manifest:
        """Return the object of that name if it is the job's.

        Raises:
            Refused: It belongs to something else.
            NameTaken: It belongs to a job of the same name that was deleted, or is itself being deleted.
        """
        try:
            found = await self._cluster.get(ref)
        except NotFound as error:
            raise Unavailable(f"{ref.kind.kind} {ref.name} was deleted just now") from error
        if objects.owned_by(found, job.uid):
            return found
        references = found["metadata"].get("ownerReferences") or ()
        former = any(each.get("kind") == names.KIND and each.get("name") == job.name for each in references)
        if former or found["metadata"].get("deletionTimestamp"):
            raise NameTaken(f"{ref.kind.kind} {ref.name} of an earlier job is being deleted")
        raise Refused(f"{ref.kind.kind} {ref.name} exists and does not belong to this job: {objects.remedy(found)}")

    async def _delete_pods(self, job: ElasticJob, actions: Sequence[DeletePod]) -> None:
        done: list[DeletePod] = []
        try:
            await paced(actions, lambda action: self._delete_pod(job, action, done))
        except Refused as error:
            self._recorder.record(about(job), "Warning", names.Reason.FAILED_DELETE_POD, str(error))
            raise
        finally:
            by_reason: dict[str, list[str]] = defaultdict(list)
            for action in done:
                by_reason[action.reason].append(action.name)
            for reason, pods in by_reason.items():
                message = f"Deleted pod{'s' if len(pods) > 1 else ''} {indexes.listed(pods)}: {reason}"
                self._recorder.record(about(job), "Normal", names.Reason.SUCCESSFUL_DELETE_POD, message)
                self._log.info(
                    "pods_deleted", job=f"{job.namespace}/{job.name}", pods=indexes.listed(pods), reason=reason
                )

    async def _delete_pod(self, job: ElasticJob, action: DeletePod, done: list[DeletePod]) -> None:
        key = Key(job.namespace, action.name)
        try:
            found = await self._cluster.delete(Ref(PODS, *key), uid=action.uid, grace=action.grace)
        except (NotFound, Conflict):  # it is gone, and there may be another pod of that name
            self._store.pods.gone(key, action.uid)
            return
        done.append(action)
        if found is None:
            self._store.pods.gone(key, action.uid)
        else:
            self._store.pods.deleted(found)

    async def _taint_node(self, job: ElasticJob, action: TaintNode) -> TaintRefused | None:
        """Taint a node. Return a refusal rather than raise it, since the job goes on without the taint.

        Raises:
            Conflict: The node has changed meanwhile.
        """
        ref = Ref(NODES, None, action.name)
        try:
            node = await self._cluster.get(ref)
            if node["metadata"]["uid"] != action.uid:
                return None  # another node of that name: its event is on the way
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}  # the list of taints is replaced
            others = [each for each in node["spec"].get("taints") or () if each["key"] != TAINT_DEVICE_FAILING]
            taints = [*others, {"key": TAINT_DEVICE_FAILING, "effect": "NoSchedule"}]
            found = await self._cluster.patch(ref, {"metadata": version, "spec": {"taints": taints}})
        except NotFound:
            return None
        except Refused as error:
            self._recorder.record(about(job), "Warning", names.Reason.FAILED_TAINT_NODE, str(error))
            self._log.warning("taint_refused", node=action.name, reason=str(error))
            return TaintRefused(str(error), status=error.status)
        self._store.nodes.wrote(found)
        message = f"Tainted node {action.name} with {TAINT_DEVICE_FAILING}: devices fail there again and again"
        self._recorder.record(about(job), "Normal", names.Reason.TAINTED_NODE, message)
        self._log.info("node_tainted", job=f"{job.namespace}/{job.name}", node=action.name)
        return None

    async def _delete_job(self, job: ElasticJob) -> None:
        key = Key(job.namespace, job.name)
        try:
            found = await self._cluster.delete(Ref(JOBS, *key), uid=job.uid)
        except (NotFound, Conflict):
            found = None
        if found is None:
            self._store.jobs.gone(key, job.uid)
        else:
            self._store.jobs.deleted(found)
        self._log.info("job_deleted", job=f"{job.namespace}/{job.name}", reason="its time to live is over")


def concerns_all(error: ClusterError) -> bool:
    """Return whether the API server would create no other pod either: it is busy, or a quota is exhausted."""
    return isinstance(error, (Busy, Unreachable)) or QUOTA in str(error)


def hopeless(errors: Sequence[ClusterError], created: int) -> bool:
    """Return whether to try no further pod now: the next would not be created either, or none of the first was.

    A webhook that denies every pod of a job is then asked about a few of them each time, not about a thousand.
    """
    return any(map(concerns_all, errors)) or (len(errors) >= AT_A_TIME and not created)


async def paced(
    items: Iterable[T], send: Callable[[T], Awaitable[None]], over: Callable[[], bool] = lambda: False
) -> None:
    """Send a request for each item, in order, `AT_A_TIME` at the same time, until `over` or until one fails.

    A slow request holds up none of the others. All that were sent have ended before the first error is raised.
    """
    rest, failed = iter(items), False

    async def sender() -> None:
        nonlocal failed
        while not (failed or over()):
            try:
                item = next(rest)
            except StopIteration:
                return
            try:
                await send(item)
            except BaseException:
                failed = True
                raise

    for result in await asyncio.gather(*(sender() for _ in range(AT_A_TIME)), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def waves(creations: Sequence[CreatePod]) -> Iterable[Sequence[CreatePod]]:
    """Return the creations, those of the minimum first: the first `AT_A_TIME` one by one, then the rest."""
    for core in (True, False):
        mine = [each for each in creations if each.core is core]
        alone = AT_A_TIME if core else max(0, AT_A_TIME - (len(creations) - len(mine)))
        yield from ([each] for each in mine[:alone])
        if mine[alone:]:
            yield mine[alone:]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Manifest:
    """Return the JSON merge patch (RFC 7386) that turns `old` into `new`."""
    patch: Manifest = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                patch[key] = inner
        elif value != before:
            patch[key] = value
    return patch


def stamp(moment: datetime) -> str:
    """Return a time as the API server writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
