"""When a pod is ready, and what it lacks until then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    status,
)
from localcloud.standins.kubernetes.metadata import owned_by


def decide_pod(pod: Object, related: Related) -> Decision:
    """A pod is ready once it is scheduled, initialized and ready, or has succeeded."""
    phase = status(pod).get("phase")
    if phase == "Succeeded" or is_true(pod, "Ready"):
        return Ready()
    problems = pod_problems(pod)
    if phase == "Failed":
        return Failed(problems or (f"[Pod {full_name(pod)}]: {status(pod).get('message') or 'failed'}",))
    steps = {"PodScheduled": "scheduled", "Initialized": "initialized", "Ready": "ready"}
    step = next(what for kind, what in steps.items() if not is_true(pod, kind))
    return Waiting(f'Waiting for Pod "{full_name(pod)}" to be {step}', pods=problems)


def pod_problems(pod: Object) -> tuple[str, ...]:
    """Return why the pod isn't ready, as scheduler and kubelet say; nothing while it starts."""
    if is_true(pod, "Ready") or status(pod).get("phase") == "Succeeded":
        return ()
    scheduled = condition(pod, "PodScheduled")
    states = [*status(pod).get("initContainerStatuses", ()), *status(pod).get("containerStatuses", ())]
    if scheduled.get("status") == "False":
        found = [scheduled.get("message", "not scheduled")]
    else:
        found = [problem for state in states for problem in _container_problems(state)]
    message = condition(pod, "Ready").get("message")
    return tuple(f"[Pod {full_name(pod)}]: {problem}" for problem in found or ([message] if message else []))


def _container_problems(state: Mapping[str, Any]) -> Iterator[str]:
    if state.get("ready"):
        return
    waiting = state.get("state", {}).get("waiting")
    if waiting and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
        yield f"[{waiting.get('reason')}] {waiting.get('message', '')}".rstrip()
    ended = state.get("state", {}).get("terminated")
    if ended and ended.get("exitCode", 0) != 0:
        default = f'container "{state.get("name")}" completed with exit code {ended.get("exitCode")}'
        yield f"[{ended.get('reason', 'Error')}] {ended.get('message') or default}"
    last = state.get("lastState", {}).get("terminated")
    if last:
        yield (
            f'container "{state.get("name")}" terminated at {last.get("finishedAt")} '
            f"({last.get('reason')}: exit code {last.get('exitCode')})"
        )


def problems_of(owner: Object | None, pods: Iterable[Object]) -> tuple[str, ...]:
    """Return the problems of the pods that an object owns."""
    return tuple(problem for pod in pods if owner and owned_by(pod, owner) for problem in pod_problems(pod))
