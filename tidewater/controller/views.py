"""Views of pods and nodes, made from the API server's objects by pure functions.

    types = type_keys(job.spec.replica_specs)
    pod_view(pod, types)            # a PodView, see `tidewater.controller.decide.observed`
    node_view(node)

An object may lack any part that the API server has not filled in yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidewater.contract.labels import TAINT_DEVICE_FAILING
from tidewater.controller.decide.observed import STARTING, NodeView, PodView
from tidewater.elasticjob import names
from tidewater.elasticjob.pod_end import failed_end

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

LONGEST_WORDS = 500
"""Characters that are kept of what a container printed before it failed."""

GATED = "SchedulingGated"
"""The reason of the condition of a pod that the scheduler leaves alone until its gates are removed.

https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/"""

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
    stuck, stuck_why = _stuck(pod)
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
        ready=all(each.get("ready", True) for each in trainers),
        terminating=bool(metadata.get("deletionTimestamp")),
        core=labels.get(names.LABEL_TIER) == names.CORE,
        job_restarts=_number(annotations.get(names.ANNOTATION_JOB_RESTARTS, ""), 0),
        node=(pod.get("spec") or {}).get("nodeName") or None,
        address=status.get("podIP") or "",
        metrics_ports=_metrics_ports(pod),
        unschedulable_since=_time(unschedulable.get("lastTransitionTime")),
        unschedulable_why=unschedulable.get("message") or "",
        nominated=bool(status.get("nominatedNodeName")),
        stuck=stuck,
        stuck_why=stuck_why,
        disrupted=_disrupted(status, conditions),
        exit_code=ended.get("exitCode"),
        oom_killed=ended.get("reason") == "OOMKilled",
        restarts=sum(each.get("restartCount", 0) for each in trainers),
        restarted_after=max(before, default=None),
        last_words=_last_words(ended, trainers),
        created=_time(metadata.get("creationTimestamp")) or datetime.min.replace(tzinfo=UTC),
        started=_time(ended.get("startedAt")) or _time(status.get("startTime")),
        finished=_time(ended.get("finishedAt")),
        template_hash=annotations.get(names.ANNOTATION_TEMPLATE_HASH, ""),
        patient=(pod.get("spec") or {}).get("preemptionPolicy") == "Never",
        tolerant=_tolerant(pod),
    )


def _metrics_ports(pod: Object) -> tuple[int, ...]:
    """Return the ports that `tidewater.contract.metrics` names."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    ports = (port for each in containers for port in each.get("ports") or ())
    found = (port["containerPort"] for port in ports if port.get("name", "").partition("-")[0] == "metrics")
    return tuple(found)


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
        uid=metadata.get("uid", ""),
        tainted=TAINT_DEVICE_FAILING in taints,
        doomed=deleted or cordoned or marked or ready != "True",
        cordoned=cordoned and not lost,
        ends=ends and not lost,
        elastic=LABEL_KARPENTER in (metadata.get("labels") or {}),
        lost=lost,
    )


def _ended(pod: Object) -> Object:
    """Return the `terminated` part of the container that decides the pod's exit code; empty if there is none."""
    status = pod.get("status") or {}
    mine: Sequence[Object] = status.get("containerStatuses") or ()
    for container in mine:
        if container.get("name") == names.WORKER_CONTAINER or len(mine) == 1:
            terminated: Object = (container.get("state") or {}).get("terminated") or {}
            if terminated:
                return terminated
    return failed_end(status)


def _trainers(statuses: Sequence[Object]) -> Sequence[Object]:
    """Return the container that trains, of those of a pod; all of them if none has its name."""
    return [each for each in statuses if each.get("name") == names.WORKER_CONTAINER] or statuses


def _last_exit(container: Object) -> int | None:
    """Return the exit code with which a container ended before it was restarted."""
    code: int | None = ((container.get("lastState") or {}).get("terminated") or {}).get("exitCode")
    return code


def _last_words(ended: Object, trainers: Sequence[Object]) -> str:
    """Return the end of the message of a container that has failed; if it was restarted, of its last run."""
    last = ((each.get("lastState") or {}).get("terminated") or {} for each in trainers)
    failed = (each for each in (ended, *last) if each.get("exitCode"))
    return str(next(failed, {}).get("message") or "").strip()[-LONGEST_WORDS:]


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


def _stuck(pod: Object) -> tuple[str, str]:
    """Return why the first container that has not started hasn't, and what is known of that; empty if it is not known.

    A pod that runs has started, although a container of it may fail again and again: its restarts are counted.
    """
    status = pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending":
        return "", ""
    first, mine = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    waiting = [(each.get("state") or {}).get("waiting") or {} for each in (*first, *mine)]
    for each in waiting:
        if each.get("reason") in STUCK:
            return STUCK[each["reason"]], each.get("message") or ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == GATED:
            return GATED, condition.get("message") or ""
    reason = next((each["reason"] for each in waiting if each.get("reason") in STARTING), "")
    return reason, _start(pod, first) if reason else ""


def _start(pod: Object, first: Sequence[Object]) -> str:
    """Return what a pod that is being started waits for; `first` are the statuses of its init containers."""
    sidecars = {
        each["name"]
        for each in (pod.get("spec") or {}).get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    }
    for each in first:
        if (each.get("state") or {}).get("running") is not None and each["name"] not in sidecars:
            return f"Its init container {each['name']} has not ended."
    return f"It waits for a volume or its image: `kubectl describe pod {pod['metadata']['name']}` says which."


def _number(text: str, otherwise: int) -> int:
    """Return the number that a label or an annotation contains."""
    return int(text) if text.isascii() and text.isdigit() else otherwise


def _time(text: str | None) -> datetime | None:
    """Return a time of the API server, which is in RFC 3339."""
    return datetime.fromisoformat(text) if text else None
