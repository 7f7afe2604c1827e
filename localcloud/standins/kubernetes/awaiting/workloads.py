"""When Deployments, StatefulSets, DaemonSets, Jobs and ReplicationControllers count as ready."""

from __future__ import annotations

from localcloud.standins.kubernetes.awaiting.decision import (
    Decision,
    Failed,
    Object,
    Ready,
    Related,
    Waiting,
    condition,
    full_name,
    is_true,
    settled,
    spec,
    status,
)
from localcloud.standins.kubernetes.awaiting.pods import problems_of
from localcloud.standins.kubernetes.metadata import annotation, owned_by

_REVISION = "deployment.kubernetes.io/revision"


def decide_deployment(deployment: Object, related: Related) -> Decision:
    """Ready when it is available and the ReplicaSet of its newest revision has all its pods ready, claims included."""
    if not settled(deployment):
        return Waiting("Waiting for the Deployment controller")
    revision = annotation(deployment, _REVISION)
    replica_set = next((each for each in _owned(related, deployment) if annotation(each, _REVISION) == revision), None)
    wanted = _count(spec(replica_set), "replicas", 1) if replica_set else _count(spec(deployment), "replicas", 1)
    ready = _count(status(replica_set), "readyReplicas", 0) if replica_set else 0
    available = is_true(deployment, "Available")
    progressing = condition(deployment, "Progressing")
    rolled = progressing.get("status") == "True" and progressing.get("reason") == "NewReplicaSetAvailable"
    unbound = [
        each["metadata"]["name"] for each in _claims(deployment, related) if status(each).get("phase") != "Bound"
    ]
    live = replica_set is not None and ready >= wanted
    if available and live and not unbound and (rolled or revision == "1"):
        return Ready("Deployment initialization complete")
    problems = _condition_problems(deployment)
    if unbound:
        problems += (f'Failed to bind PersistentVolumeClaim(s): "{",".join(unbound)}"',)
    if not available:
        problems += ("Minimum number of live Pods was not attained",)
    elif not rolled and revision != "1":
        problems += ("Minimum number of Pods to consider the application live was not attained",)
    elif not live:
        problems += ("Attempted to roll forward to new ReplicaSet, but minimum number of Pods did not become live",)
    warnings = problems_of(replica_set, related.pods)
    message = f"Waiting for app ReplicaSet to be available ({ready}/{wanted} Pods available)"
    return Waiting(message, problems + warnings, warnings)


def _owned(related: Related, deployment: Object) -> list[Object]:
    return [each for each in related.replica_sets if owned_by(each, deployment)]


def _claims(deployment: Object, related: Related) -> list[Object]:
    volumes = spec(deployment).get("template", {}).get("spec", {}).get("volumes") or []
    names = {
        volume["persistentVolumeClaim"].get("claimName") for volume in volumes if volume.get("persistentVolumeClaim")
    }
    return [claim for claim in related.claims if claim["metadata"]["name"] in names]


def _condition_problems(deployment: Object) -> tuple[str, ...]:
    found = (condition(deployment, kind) for kind in ("Progressing", "Available"))
    return tuple(f"[{each.get('reason')}] {each.get('message')}" for each in found if each.get("status") == "False")


def decide_stateful_set(stateful_set: Object, related: Related) -> Decision:
    """Ready when all replicas are ready and, unless it updates on delete, of the newest revision."""
    if not settled(stateful_set):
        return Waiting("Waiting for the StatefulSet controller")
    now = status(stateful_set)
    wanted = _count(spec(stateful_set), "replicas", 1)
    ready, updated = _count(now, "readyReplicas", 0), _count(now, "updatedReplicas", 0)
    current, target = now.get("currentRevision", ""), now.get("updateRevision", "")
    on_delete = spec(stateful_set).get("updateStrategy", {}).get("type") == "OnDelete"
    first = stateful_set["metadata"].get("generation", 0) <= 1
    revision_ready = (on_delete and not first) or (bool(current) and current == target)
    replicas_ready = wanted == _count(now, "replicas", 0) == ready
    if not (on_delete and not first):
        replicas_ready = replicas_ready and wanted == _count(now, "currentReplicas", 0)
    if replicas_ready and revision_ready:
        return Ready("StatefulSet initialization complete")
    shown = ready if revision_ready else min(ready, updated)
    problems: tuple[str, ...] = ()
    if not replicas_ready:
        problems += (f"{shown} out of {wanted} replicas succeeded readiness checks",)
    if not revision_ready:
        problems += (f'StatefulSet controller failed to advance from revision "{current}" to revision "{target}"',)
    warnings = problems_of(stateful_set, related.pods)
    return Waiting(_stateful_set_message(first, replicas_ready, shown, wanted), problems + warnings, warnings)


def _stateful_set_message(first: bool, replicas_ready: bool, shown: int, wanted: int) -> str:
    if first:
        return f"[1/2] Waiting for StatefulSet to create Pods ({shown}/{wanted} Pods ready)"
    if not replicas_ready:
        return f"[1/3] Waiting for StatefulSet update to roll out ({shown}/{wanted} Pods ready)"
    return "[2/3] Waiting for StatefulSet to update .status.currentRevision"


def decide_daemon_set(daemon_set: Object, related: Related) -> Decision:
    """Ready when every node that should has an updated, available pod; with no such node, at once."""
    if not settled(daemon_set) or "desiredNumberScheduled" not in status(daemon_set):
        return Waiting("Waiting for the DaemonSet controller")
    now = status(daemon_set)
    wanted = _count(now, "desiredNumberScheduled", 0)
    for key, what in (
        ("currentNumberScheduled", "Current"),
        ("updatedNumberScheduled", "Updated"),
        ("numberAvailable", "Available"),
        ("numberReady", "Ready"),
    ):
        if _count(now, key, 0) < wanted:
            message = f"{what}: {_count(now, key, 0)}/{wanted}"
            warnings = problems_of(daemon_set, related.pods)
            return Waiting(message, (message, *warnings), warnings)
    return Ready(f"All replicas scheduled as expected. Replicas: {wanted}")


def decide_job(job: Object, related: Related) -> Decision:
    """Ready when complete; a failed Job has failed for good, and its pods say why."""
    warnings = problems_of(job, related.pods)
    failed = condition(job, "Failed")
    if failed.get("status") == "True":
        return Failed((f"[{failed.get('reason')}] {failed.get('message')}", *warnings))
    if is_true(job, "Complete"):
        return Ready("Job complete")
    if not status(job).get("startTime"):
        message = f'Waiting for Job "{full_name(job)}" to start'
        return Waiting(message, (message, *warnings), warnings)
    now = status(job)
    counts = " | ".join(f"{key.capitalize()}: {_count(now, key, 0)}" for key in ("active", "succeeded", "failed"))
    message = f'Waiting for Job "{full_name(job)}" to succeed ({counts})'
    return Waiting(message, (message, *warnings), warnings)


def decide_replication_controller(controller: Object, related: Related) -> Decision:
    """Ready when as many replicas are available as wanted."""
    wanted, available = _count(spec(controller), "replicas", 1), _count(status(controller), "availableReplicas", 0)
    if wanted == available:
        return Ready()
    message = f"Waiting for ReplicationController ({available}/{wanted} Pods available)"
    return Waiting(message, (message,))


def _count(values: Object, key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else default
