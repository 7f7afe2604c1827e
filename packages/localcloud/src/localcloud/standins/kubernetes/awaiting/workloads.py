"""When Deployments, StatefulSets, DaemonSets and Jobs are ready."""

from __future__ import annotations

from localcloud.standins.kubernetes.awaiting.conditions import warnings
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
    spec,
    status,
)
from localcloud.standins.kubernetes.awaiting.pods import problems_of
from localcloud.standins.kubernetes.metadata import annotation, owned_by

_REVISION = "deployment.kubernetes.io/revision"
_JOB_FAILED = ("BackoffLimitExceeded", "DeadlineExceeded")
"""The reasons for which the official plug-in takes a Job for failed: pulumi-kubernetes,
provider/pkg/await/checker/job/check.go. A Job that failed for another (`PodFailurePolicy`) is waited for."""
_NO_PODS = (
    "Service does not target any Pods. Selected Pods may not be ready, or field '.spec.selector' may not match labels "
    "on any Pods"
)
_NO_ADDRESS = "Service was not allocated an IP address; does your cloud provider support this?"


def decide_deployment(deployment: Object, related: Related) -> Decision:
    """Ready when it is available and the ReplicaSet of its newest revision has all pods ready, claims included."""
    if not _settled(deployment):
        return Waiting("Waiting for the Deployment controller")
    revision = annotation(deployment, _REVISION)
    owned = [each for each in related["ReplicaSet"] if owned_by(each, deployment)]
    replica_set = next((each for each in owned if annotation(each, _REVISION) == revision), None)
    wanted = _count(spec(replica_set or deployment), "replicas", 1)
    ready = _count(status(replica_set), "readyReplicas", 0) if replica_set else 0
    available, live = is_true(deployment, "Available"), replica_set is not None and ready >= wanted
    progressing = condition(deployment, "Progressing")
    rolled = progressing.get("status") == "True" and progressing.get("reason") == "NewReplicaSetAvailable"
    unbound = _unbound_claims(deployment, related)
    if available and live and not unbound and (rolled or revision == "1"):
        return Ready()
    found = (condition(deployment, kind) for kind in ("Progressing", "Available"))
    problems = [f"[{each.get('reason')}] {each.get('message')}" for each in found if each.get("status") == "False"]
    if unbound:
        problems.append(f'Failed to bind PersistentVolumeClaim(s): "{",".join(unbound)}"')
    if not available:
        problems.append("Minimum number of live Pods was not attained")
    elif not rolled and revision != "1":
        problems.append("Minimum number of Pods to consider the application live was not attained")
    elif not live:
        problems.append("Attempted to roll forward to new ReplicaSet, but minimum number of Pods did not become live")
    message = f"Waiting for app ReplicaSet to be available ({ready}/{wanted} Pods available)"
    return Waiting(message, tuple(problems), problems_of(replica_set, related["Pod"]))


def _unbound_claims(deployment: Object, related: Related) -> list[str]:
    volumes = spec(spec(deployment).get("template", {})).get("volumes") or []
    names = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes}
    claims = [each for each in related["PersistentVolumeClaim"] if each["metadata"]["name"] in names]
    return [each["metadata"]["name"] for each in claims if status(each).get("phase") != "Bound"]


def decide_stateful_set(stateful_set: Object, related: Related) -> Decision:
    """Ready when all replicas are ready and, unless it updates on delete, of the newest revision."""
    if not _settled(stateful_set):
        return Waiting("Waiting for the StatefulSet controller")
    now = status(stateful_set)
    wanted, ready = _count(spec(stateful_set), "replicas", 1), _count(now, "readyReplicas", 0)
    current, target = now.get("currentRevision", ""), now.get("updateRevision", "")
    first = stateful_set["metadata"].get("generation", 0) <= 1
    rolls = first or spec(stateful_set).get("updateStrategy", {}).get("type") != "OnDelete"
    revision_ready = not rolls or (bool(current) and current == target)
    counts = {ready, _count(now, "replicas", 0), *((_count(now, "currentReplicas", 0),) if rolls else ())}
    if counts == {wanted} and revision_ready:
        return Ready()
    shown = ready if revision_ready else min(ready, _count(now, "updatedReplicas", 0))
    problems: tuple[str, ...] = ()
    if counts != {wanted}:
        problems += (f"{shown} out of {wanted} replicas succeeded readiness checks",)
    if not revision_ready:
        problems += (f'StatefulSet controller failed to advance from revision "{current}" to revision "{target}"',)
    step = (
        "[1/2] Waiting for StatefulSet to create Pods" if first else "[1/3] Waiting for StatefulSet update to roll out"
    )
    message = f"{step} ({shown}/{wanted} Pods ready)"
    return Waiting(message, problems, problems_of(stateful_set, related["Pod"]))


def decide_daemon_set(daemon_set: Object, related: Related) -> Decision:
    """Ready when every node that should has an updated, available pod; with no such node, at once."""
    now = status(daemon_set)
    if not _settled(daemon_set) or "desiredNumberScheduled" not in now:
        return Waiting("Waiting for the DaemonSet controller")
    wanted = _count(now, "desiredNumberScheduled", 0)
    for key, what in (
        ("currentNumberScheduled", "Current"),
        ("updatedNumberScheduled", "Updated"),
        ("numberAvailable", "Available"),
        ("numberReady", "Ready"),
    ):
        if _count(now, key, 0) < wanted:
            return Waiting(f"{what}: {_count(now, key, 0)}/{wanted}", pods=problems_of(daemon_set, related["Pod"]))
    return Ready()


def decide_job(job: Object, related: Related) -> Decision:
    """Ready when complete. A Job that failed for one of `_JOB_FAILED` stays failed, and its pods say why.

    Until then the warnings about it are shown.
    """
    pods, failed = problems_of(job, related["Pod"]), condition(job, "Failed")
    if failed.get("status") == "True" and failed.get("reason") in _JOB_FAILED:
        return Failed((f"[{failed.get('reason')}] {failed.get('message')}", *pods))
    if is_true(job, "Complete"):
        return Ready()
    shown = (*pods, *warnings(job, related.get("Event", ())))
    if not status(job).get("startTime"):
        return Waiting(f'Waiting for Job "{full_name(job)}" to start', pods=shown)
    counts = (f"{key.capitalize()}: {_count(status(job), key, 0)}" for key in ("active", "succeeded", "failed"))
    return Waiting(f'Waiting for Job "{full_name(job)}" to succeed ({" | ".join(counts)})', pods=shown)


def _settled(obj: Object) -> bool:
    """Return whether the controller has seen the object as it is now."""
    return bool(status(obj).get("observedGeneration") == obj.get("metadata", {}).get("generation"))


def _count(values: Object, key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else default


def decide_service(service: Object, related: Related) -> Decision:
    """Ready when it has an endpoint and, for a load balancer, an address.

    Headless and ExternalName services, and those without a selector, need no endpoints.
    """
    wanted, name = spec(service), service.get("metadata", {}).get("name")
    exempt = wanted.get("clusterIP") == "None" or wanted.get("type") == "ExternalName" or not wanted.get("selector")
    targeted = exempt or any(
        endpoint.get("conditions", {}).get("ready") is not False
        for each in related["EndpointSlice"]
        if (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
        for endpoint in each.get("endpoints") or ()
    )
    addressed = wanted.get("type") != "LoadBalancer" or bool(status(service).get("loadBalancer", {}).get("ingress"))
    problems = (() if targeted else (_NO_PODS,)) + (() if addressed else (_NO_ADDRESS,))
    if not problems:
        return Ready()
    if targeted:
        return Waiting("[2/3] Attempting to allocate IP address to Service", problems)
    return Waiting("[1/3] Finding Pods to direct traffic to", problems)


def decide_volume(volume: Object, related: Related) -> Decision:
    """A PersistentVolume is ready when it is available or bound."""
    phase = status(volume).get("phase")
    if phase in ("Available", "Bound"):
        return Ready()
    if phase == "Failed":
        return Failed((f'PersistentVolume "{full_name(volume)}" failed: {status(volume).get("message", "")}',))
    return Waiting(f'PersistentVolume "{full_name(volume)}" is {phase or "new"}')


def decide_claim(claim: Object, related: Related) -> Decision:
    """A claim is ready when bound; with a class that waits for the first consumer, as soon as it is pending."""
    phase, wanted = status(claim).get("phase"), spec(claim).get("storageClassName")
    late = any(
        each.get("volumeBindingMode") == "WaitForFirstConsumer"
        for each in related["StorageClass"]
        if each["metadata"]["name"] == wanted
    )
    if phase == "Bound" or (late and phase == "Pending"):
        return Ready()
    return Waiting(f'PersistentVolumeClaim "{full_name(claim)}" is not ready. status.phase currently at: {phase}')


def decide_definition(definition: Object, related: Related) -> Decision:
    """A CustomResourceDefinition is ready when it is established: its objects can be made."""
    if is_true(definition, "Established"):
        return Ready()
    names = condition(definition, "NamesAccepted")
    if names.get("status") == "False":
        return Failed((f"[{names.get('reason')}] {names.get('message')}",))
    return Waiting("Waiting for the CustomResourceDefinition to be established")
