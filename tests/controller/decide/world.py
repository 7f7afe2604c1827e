"""Jobs, pods and nodes for the tests of the decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidewater.controller.decide.actions import Action, CreatePod, Decision, DeletePod, Emit
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import JobView, NodeView, PodView
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob, JobSpec, ReplicaSpec, SchedulingPolicy
from tidewater.elasticjob.status import Condition, Status

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
WORKER = names.WORKER


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def job(replicas: int = 2, low: int | None = None, high: int | None = None, **spec: Any) -> ElasticJob:
    """Return a job named `j`. Of `spec`, `others` are further replica types and `policy` is the scheduling policy."""
    status = spec.pop("status", Status())
    others = spec.pop("others", {})
    scheduling = SchedulingPolicy(**spec.pop("policy", {}))
    worker = ReplicaSpec(replicas=replicas, template={}, **spec.pop("worker", {}))
    return ElasticJob(
        name="j",
        namespace="n",
        uid="job-uid",
        generation=1,
        created=LONG_AGO,
        status=status,
        spec=JobSpec(
            rdzv_endpoint=spec.pop("rdzv_endpoint", "etcd:2379"),
            replica_specs={WORKER: worker, **others},
            min_replicas=low,
            max_replicas=high,
            scheduling_policy=scheduling,
            **spec,
        ),
    )


def pod(index: int, phase: str = "Running", **changes: Any) -> PodView:
    """Return a worker's pod; one that runs is on node `node-INDEX`, and Pending means that no node has room."""
    type = changes.pop("type", WORKER)
    name = names.pod_name("j", type, index)
    values: dict[str, Any] = {
        "name": name,
        "uid": f"{name}-uid",
        "type": type,
        "index": index,
        "phase": phase,
        "node": None if phase == "Pending" else f"node-{index}",
        "unschedulable_since": ago(300) if phase == "Pending" else None,
        "created": LONG_AGO,
        "started": None if phase == "Pending" else ago(300),
        "finished": ago(1) if phase in ("Succeeded", "Failed") else None,
        "exit_code": {"Succeeded": 0, "Failed": 1}.get(phase),
    }
    return PodView(**{**values, **changes})


def running(*indices: int) -> tuple[PodView, ...]:
    return tuple(pod(index) for index in indices)


def view(of: ElasticJob, pods: Iterable[PodView] = (), **changes: Any) -> JobView:
    return JobView(**{"job": of, "pods": tuple(pods), "services": frozenset({"j"}), **changes})


def nodes(*doomed: str, **more: Sequence[str]) -> dict[str, NodeView]:
    """Return nodes by name; `more` are those that are `sound`, `lost`, `cordoned`, that end (`ends`), or `elastic`."""
    kinds: dict[str, dict[str, Any]] = {
        "sound": {},
        "lost": {"doomed": True, "lost": True},
        "cordoned": {"doomed": True, "cordoned": True},
        "ends": {"doomed": True, "ends": True},
        "elastic": {"elastic": True},
    }
    every = [NodeView(name=name, doomed=True) for name in doomed]
    every += [NodeView(name=name, **kinds[kind]) for kind, found in more.items() for name in found]
    return {node.name: node for node in every}


def after(of: ElasticJob, *pods: PodView, at: datetime = LONG_AGO, **changes: Any) -> ElasticJob:
    """Return the job with the status that the controller gave it when it observed these pods."""
    return replace(of, status=decide(view(of, pods, **changes), at).status)


def created(decision: Decision) -> list[int]:
    return [action.index for action in decision.actions if isinstance(action, CreatePod)]


def deleted(decision: Decision) -> list[str]:
    return [action.name.removeprefix("j-") for action in decision.actions if isinstance(action, DeletePod)]


def changes(decision: Decision) -> list[Action]:
    """Return the actions that are not events."""
    return [action for action in decision.actions if not isinstance(action, Emit)]


def events(decision: Decision) -> list[str]:
    return [action.reason for action in decision.actions if isinstance(action, Emit)]


def condition(status: Status, type: str) -> Condition:
    """Return the condition of a type, which a status must have."""
    return next(each for each in status.conditions if each.type == type)


def holds(status: Status, type: str) -> bool:
    return any(each.type == type and each.status == "True" for each in status.conditions)
