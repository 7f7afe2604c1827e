"""An ElasticJob and its pods as TorchX's states, and the sentences that say what the states leave out. Pure.

    state_of(job)                         # AppState.RUNNING
    described(Observed(job, app, pods))   # what `torchx status` and `torchx describe` show

| ElasticJob | TorchX | message |
|---|---|---|
| the controller has not seen it | SUBMITTED | |
| Created, Queued, Restarting: fewer replicas than the minimum | PENDING | what it waits for |
| Running | RUNNING | fewer replicas than wanted; a change of size |
| Suspended by `torchx cancel`, and not changed since | CANCELLED; RUNNING while its pods end | |
| Suspended by other means | PENDING | that it is suspended |
| Succeeded | SUCCEEDED | |
| Failed | FAILED | the reason, and which replica failed first |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torchx.schedulers.api import DescribeAppResponse
from torchx.specs import NONE, AppDef, AppState, ReplicaStatus, Role, RoleStatus

from tidewater.elasticjob import names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.names import ConditionType, Reason
from tidewater.kube.cluster import Object
from tidewater_torchx.observe.failures import Failure, failure_of, structured
from tidewater_torchx.submit.job import ANNOTATION_CANCELLED

ENDED = (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)

_STATES: Mapping[State, AppState] = {
    State.CREATED: AppState.PENDING,
    State.QUEUED: AppState.PENDING,
    State.RUNNING: AppState.RUNNING,
    State.RESTARTING: AppState.PENDING,
    State.SUSPENDED: AppState.PENDING,
    State.SUCCEEDED: AppState.SUCCEEDED,
    State.FAILED: AppState.FAILED,
}

_PHASES: Mapping[str, AppState] = {
    "Pending": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Succeeded": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
}


@dataclass(frozen=True)
class Observed:
    """A job, and what else is known of it.

    Attributes:
        job: the job.
        app: the application that it runs.
        types: the replica type of each role.
        pods: the job's pods.
        lines: the last lines of the logs of replicas that failed, by pod.
    """

    job: ElasticJob
    app: AppDef
    types: Sequence[str]
    pods: Sequence[Object]
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)


def state_of(job: ElasticJob) -> AppState:
    """Return the application's state."""
    status = job.status
    if status.state is None:
        return AppState.SUBMITTED
    if status.state in (State.SUCCEEDED, State.FAILED) or not cancelled(job):
        return _STATES[status.state]
    known = status.observed_generation >= _generation(job)
    gone = not any(count.active or count.pending for count in status.replica_statuses.values())
    # TorchX: an application that is being cancelled runs until it has ended.
    return AppState.CANCELLED if known and gone and status.state is State.SUSPENDED else AppState.RUNNING


def cancelled(job: ElasticJob) -> bool:
    """Return whether the job was cancelled, and since then neither resumed nor changed in its spec."""
    return job.spec.suspend and job.annotations.get(ANNOTATION_CANCELLED) == str(_generation(job))


def _generation(job: ElasticJob) -> int:
    """Return the generation of the job's spec. The API server counts a deletion too, if a finalizer delays it."""
    return job.generation - job.deleting


def described(seen: Observed, app_id: str) -> DescribeAppResponse:
    """Return the application with the states of all of its replicas."""
    state = state_of(seen.job)
    first = first_failure(seen)
    error = NONE
    if state is AppState.FAILED and first is not None:
        role, replica, failure = first
        lines = seen.lines.get(failure.pod, ())
        error = structured(failure, lines, role=role, replica=replica, reason=failure.reason)
    return DescribeAppResponse(
        app_id=app_id,
        state=state,
        num_restarts=_restarts(seen.job),
        msg=message(seen),
        structured_error_msg=error,
        roles_statuses=[
            _role_status(seen, role, type_) for role, type_ in zip(seen.app.roles, seen.types, strict=True)
        ],
        roles=list(seen.app.roles),
    )


def message(seen: Observed) -> str:
    """Return what a person should know in addition to the state."""
    job, state = seen.job, state_of(seen.job)
    if job.deleting:
        return "The application is being deleted."
    if state is AppState.SUBMITTED:
        return "No controller has seen the job yet. If that stays so: tidewater doctor"
    parts = [told(job)]
    if cancelled(job) and state not in (AppState.SUCCEEDED, AppState.FAILED):
        parts = ["The application was cancelled; torchx delete removes it."]
    elif job.status.state is State.SUSPENDED:
        parts.append(f"It goes on after: tidewater job resume {job.name} -n {job.namespace}")
    elif state is AppState.RUNNING:
        parts = [*_sizes(seen), *parts]
    elif state is AppState.FAILED and (first := first_failure(seen)) is not None:
        role, replica, failure = first
        parts.append(f"Replica {replica} of role {role}: {failure.sentence}.")
    return " ".join(part for part in parts if part) or NONE


def told(job: ElasticJob) -> str:
    """Return what the controller says of the job; empty until it has seen it."""
    conditions = {each.type: each for each in job.status.conditions}
    for type_ in (ConditionType.SUCCEEDED, ConditionType.FAILED, ConditionType.SUSPENDED):
        if (found := conditions.get(type_)) is not None and found.status == "True":
            return found.message
    created = conditions.get(ConditionType.CREATED)
    # If the controller can't read the job, Created says what to correct, and Running is of earlier.
    if created is not None and created.reason == Reason.INVALID and created.status == "False":
        return created.message
    running = conditions.get(ConditionType.RUNNING) or created
    return running.message if running is not None else ""


def first_failure(seen: Observed) -> tuple[str, int, Failure] | None:
    """Return the replica that failed first, with its role; None if none of those that still exist has failed."""
    found = [
        (role.name, index, failure)
        for role, type_ in zip(seen.app.roles, seen.types, strict=True)
        for index, pod in replicas(seen.pods, type_)
        if (failure := failure_of(pod)) is not None and failure.ended
    ]
    return min(found, key=lambda each: each[2].moment, default=None)


def replicas(pods: Sequence[Object], type_: str) -> Iterator[tuple[int, Object]]:
    """Yield the pods of a replica type with their numbers, in order; of several with one number the newest."""
    newest: dict[int, Object] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))):
        labels = pod["metadata"].get("labels") or {}
        index = str(labels.get(names.LABEL_REPLICA_INDEX, ""))
        if labels.get(names.LABEL_REPLICA_TYPE) == type_.lower() and index.isdecimal():
            newest[int(index)] = pod
    yield from sorted(newest.items())


def _role_status(seen: Observed, role: Role, type_: str) -> RoleStatus:
    """Return the states of a role's replicas: those that have pods, and those that shall have one."""
    found = dict(replicas(seen.pods, type_))
    statuses = {index: _replica_status(seen, role, index, pod) for index, pod in found.items()}
    if state_of(seen.job) not in ENDED and not seen.job.spec.suspend:
        for index in range(_wanted(seen.job, type_)):
            statuses.setdefault(index, ReplicaStatus(index, AppState.PENDING, role.name, ""))
    return RoleStatus(role.name, [statuses[index] for index in sorted(statuses)])


def _replica_status(seen: Observed, role: Role, index: int, pod: Object) -> ReplicaStatus:
    failure = failure_of(pod)
    name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
    error = NONE if failure is None else structured(failure, seen.lines.get(name, ()))
    state = _PHASES.get(str(status.get("phase", "")), AppState.UNKNOWN)
    host = f"{name}.{seen.job.name}.{seen.job.namespace}.svc" if status.get("podIP") else ""
    return ReplicaStatus(index, state, role.name, host, error)


def _sizes(seen: Observed) -> Iterator[str]:
    """Yield a sentence on each role that runs with another number of replicas than is wanted."""
    for role, type_ in zip(seen.app.roles, seen.types, strict=True):
        counts = seen.job.status.replica_statuses.get(type_)
        running = 0 if counts is None else counts.active + counts.succeeded
        wanted, (fewest, _) = _wanted(seen.job, type_), seen.job.bounds(type_)
        settled = seen.job.status.settled_replicas if type_ == names.WORKER else wanted
        if settled and settled != wanted:
            yield f"Role {role.name} is resized from {settled} to {wanted} replicas; {running} run now."
        elif running != wanted:
            yield f"Role {role.name} runs with {running} of {wanted} replicas, and needs at least {fewest}."


def _restarts(job: ElasticJob) -> int:
    """Return how many times all of the application was restarted, or, if only replicas are, how many of them failed.

    The controller counts when all pods leave. After a suspension they haven't come back. Of failures it also counts the
    one too many, with which the job has failed, and after which nothing was restarted.
    """
    if job.status.job_restarts is None:
        failed = job.status.state is State.FAILED and job.status.restarts >= job.spec.backoff_limit
        return max(0, job.status.restarts - failed)
    return max(0, job.status.job_restarts - (job.status.state is State.SUSPENDED))


def _wanted(job: ElasticJob, type_: str) -> int:
    """Return how many pods the controller aims for."""
    if type_ == names.WORKER and job.status.desired:
        return job.status.desired
    return job.spec.replica_specs[type_].replicas
