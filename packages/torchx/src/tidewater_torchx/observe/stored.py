"""The application that a job runs: as it was submitted, or as far as the job itself says it. Pure.

app, types = application(job)      # the application, and the replica type of each of its roles
app, types = of_spec(job)          # of a job that TorchX didn't submit, or that another version of this package did
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx.specs import AppDef, RetryPolicy, Role

from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob, RestartScope
from tidewater_torchx.submit import appdef, naming
from tidewater_torchx.submit.job import ANNOTATION_APP, worker


def application(job: ElasticJob) -> tuple[AppDef, tuple[str, ...]]:
    """Return the application of a job, and the replica type of each role.

    An ElasticJob that was not submitted by TorchX is described as well as its spec allows.

    Raises:
        Refused: the job was submitted by another version of this package.
    """
    text = job.annotations.get(ANNOTATION_APP)
    if text is not None:
        app = appdef.decoded(text)
        return app, naming.replica_types([role.name for role in app.roles], worker(app.roles))
    return of_spec(job)


def of_spec(job: ElasticJob) -> tuple[AppDef, tuple[str, ...]]:
    """Return the application as far as the spec of its job says it, and the replica type of each role."""
    types = tuple(sorted(job.spec.replica_specs, key=lambda type_: (type_ != names.WORKER, type_)))
    return AppDef(job.name, [_role(job, type_) for type_ in types]), types


def _role(job: ElasticJob, type_: str) -> Role:
    replica = job.spec.replica_specs[type_]
    fewest, most = job.bounds(type_)
    container = _container(replica.template)
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    whole = job.spec.restart_scope is RestartScope.JOB
    return Role(
        name=type_.lower(),
        image=str(container.get("image", "")),
        entrypoint=str(command[0]) if command else "",
        args=[str(each) for each in command[1:]],
        env={str(each["name"]): str(each["value"]) for each in container.get("env") or () if "value" in each},
        min_replicas=fewest if fewest < most else None,
        num_replicas=most,
        retry_policy=RetryPolicy.APPLICATION if whole else RetryPolicy.REPLICA,
    )


def _container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container that trains: the one of that name, else the first."""
    containers: list[Mapping[str, Any]] = template["spec"]["containers"]
    return next((each for each in containers if each.get("name") == names.WORKER_CONTAINER), containers[0])
