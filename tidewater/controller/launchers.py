"""How a worker learns of its job: arguments or environment variables that are added to its containers.

    launched(containers, job)      # the containers of a Worker pod, with what the job's launcher adds

What is added comes first, so that the user's own arguments and variables override it. Only pods of type Worker get it.

torchelastic   every container: the flags of the launcher of the TorchElastic controller's time, in its order
torchrun       the container that trains: the flags of torchrun 2, which must be the container's command
tidewater      the container that trains: the environment that this project's trainer reads
none           nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidewater.contract import env
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob, Launcher

Container = Mapping[str, Any]


def launched(containers: Sequence[Container], job: ElasticJob) -> list[dict[str, Any]]:
    """Return the containers of a pod of type Worker with what the job's launcher adds to them."""
    match job.launcher:
        case Launcher.TORCHELASTIC:
            return [_with_arguments(each, _torchelastic(job)) for each in containers]
        case Launcher.TORCHRUN:
            add = _torchrun(job)
            return [_with_arguments(each, add if _trains(each, containers) else []) for each in containers]
        case Launcher.TIDEWATER:
            variables = _environment(job)
            return [_with_environment(each, variables if _trains(each, containers) else []) for each in containers]
        case Launcher.NONE:
            return [dict(each) for each in containers]


def _torchelastic(job: ElasticJob) -> list[str]:
    low, high = job.bounds(names.WORKER)
    return [
        "--rdzv_backend=etcd",
        f"--rdzv_endpoint={job.spec.rdzv_endpoint}",
        f"--rdzv_id={job.name}",
        f"--nnodes={low}:{high}",
    ]


def _torchrun(job: ElasticJob) -> list[str]:
    low, high = job.bounds(names.WORKER)
    return [
        f"--rdzv-backend={job.spec.rdzv_backend}",
        f"--rdzv-endpoint={job.spec.rdzv_endpoint}",
        f"--rdzv-id={job.name}",
        f"--nnodes={low}:{high}",
    ]


def _environment(job: ElasticJob) -> list[dict[str, Any]]:
    low, high = job.bounds(names.WORKER)
    endpoint = job.spec.rdzv_endpoint
    values = {
        env.JOB: job.name,
        env.ETCD: endpoint if "://" in endpoint else f"http://{endpoint}",
        env.MIN_WORKERS: str(low),
        env.MAX_WORKERS: str(high),
    }
    fields = {env.WORKER: "metadata.name", env.HOST: "status.podIP"}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _trains(container: Container, containers: Sequence[Container]) -> bool:
    """Return whether this is the container that trains: the one of that name, or the only one."""
    return container.get("name") == names.WORKER_CONTAINER or len(containers) == 1


def _with_arguments(container: Container, arguments: list[str]) -> dict[str, Any]:
    if not arguments:
        return dict(container)
    return {**container, "args": [*arguments, *(container.get("args") or ())]}


def _with_environment(container: Container, variables: list[dict[str, Any]]) -> dict[str, Any]:
    own = container.get("env") or ()
    named = {each.get("name") for each in own}
    added = [each for each in variables if each["name"] not in named]
    return {**container, "env": [*added, *own]} if added else dict(container)
