"""A TorchX application as an ElasticJob, exactly as it is sent. Pure.

    manifest = elastic_job(app, Submission(unique="kx3p", namespace="training", options=options, facts=facts))

One role becomes the replica type `Worker`, which `tidewater job scale` resizes: the elastic one, else the first. Each
other role is a type with its own name. Several roles start together: the job is then in a queue, if in none with
others, then in one of its own. The application itself is kept in an annotation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torchx
from torchx.specs import AppDef, Role

from tidewater.contract.code import Shipped
from tidewater.contract.stack import Facts
from tidewater.elasticjob import names
from tidewater.elasticjob.model import Launcher, SuccessPolicy
from tidewater_torchx import workspace
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit import appdef, naming, torchrun
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.overlay import merged
from tidewater_torchx.submit.pods import LABEL_REPLICA_ID, Manifest, Pod, pod_template
from tidewater_torchx.submit.retries import is_elastic, policy, retries
from tidewater_torchx.submit.roles import Values, resolved

LABEL_VERSION = "torchx.pytorch.org/version"
LABEL_APP_NAME = "torchx.pytorch.org/app-name"
LABEL_ROLE_INDEX = "torchx.pytorch.org/role-index"
LABEL_ROLE_NAME = "torchx.pytorch.org/role-name"
LABEL_KUBE_APP_NAME = "app.kubernetes.io/name"
LABEL_ORGANIZATION = "app.kubernetes.io/managed-by"
LABEL_UNIQUE_NAME = "app.kubernetes.io/instance"
ORGANIZATION = "torchx.pytorch.org"

ANNOTATION_APP = "tidewater.dev/torchx-app"
"""Of a job: the application that was submitted, as `appdef.encoded` writes it."""

ANNOTATION_CANCELLED = "tidewater.dev/torchx-cancelled"
"""Of a job: its generation when `torchx cancel` had suspended it, so that it will not go on.

A program that resumes it changes the generation. So a later suspension is no cancellation. Labels,
annotations and the status don't change it:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#status-subresource
"""

LARGEST_ANNOTATIONS = 256 << 10
"""Bytes of an object's annotations together.

https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/ and
https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go (TotalAnnotationSizeLimitB)
"""

FETCH_IMAGE = "public.ecr.aws/aws-cli/aws-cli:2.27.50"
"""Image with the AWS CLI for a namespace without a stack; the default of the stack's own key `fetchImage`."""

RENDEZVOUS_PORT = 29500
_PYTHONPATH = "PYTHONPATH"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is known when an application is submitted.

    Attributes:
        unique: random end of the application's name.
        namespace: where it will run.
        options: the options of this submission.
        facts: of the stack in that namespace; None if there is no stack.
        rendezvous: key of an archive with the rendezvous on etcd alone, for roles without a workspace; empty: none.
        overlays: what is laid over the pod templates of roles, by their names.
    """

    unique: str
    namespace: str
    options: Options
    facts: Facts | None = None
    rendezvous: str = ""
    overlays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def etcd(self) -> str:
        """Return the address of etcd; empty if none is known."""
        return self.options.etcd or (self.facts.etcd if self.facts is not None else "")

    @property
    def bucket(self) -> str:
        """Return the bucket for code; empty if none is known."""
        return self.options.bucket or (self.facts.bucket if self.facts is not None else "")


def elastic_job(app: AppDef, submission: Submission) -> Manifest:
    """Return the job.

    Raises:
        Refused: a name, a mount, a port or a variable is impossible, or the application is too large to be kept.
    """
    lead = worker(app.roles)
    types = naming.replica_types([role.name for role in app.roles], lead)
    last = {type_: role.num_replicas - 1 for type_, role in zip(types, app.roles, strict=True)}
    own = naming.app_id(app.name, submission.unique, last)
    roles = [_for_etcd(role, submission) for role in app.roles]
    rank0 = names.pod_name(own, types[0], 0)
    replica_specs = {
        types[index]: _replica_spec(
            resolved(role, Values(app_id=own)),
            _pod(app, index, role, own, rank0, submission),
            submission,
            limits=index != lead,
        )
        for index, role in enumerate(roles)
    }
    annotations = {ANNOTATION_APP: appdef.encoded(app)}
    _check_size(annotations)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": own,
            "namespace": submission.namespace,
            "labels": app_labels(app, own),
            "annotations": annotations,
        },
        "spec": {**_job_spec(app.roles, roles, own, lead, submission), "replicaSpecs": replica_specs},
    }


def worker(roles: Sequence[Role]) -> int:
    """Return the position of the role that becomes `Worker`: the first elastic one, else the first."""
    return next((index for index, role in enumerate(roles) if is_elastic(role)), 0)


def app_labels(app: AppDef, own: str) -> dict[str, str]:
    """Return the labels of the job and of all of its pods."""
    name = naming.label_value(app.name)
    return {
        LABEL_VERSION: naming.label_value(torchx.__version__),
        LABEL_APP_NAME: name,
        LABEL_KUBE_APP_NAME: name,
        LABEL_ORGANIZATION: ORGANIZATION,
        LABEL_UNIQUE_NAME: own,
    }


def role_labels(index: int, name: str) -> dict[str, str]:
    """Return the labels of the pods of one role. The controller adds the replica's number."""
    return {LABEL_ROLE_INDEX: str(index), LABEL_ROLE_NAME: naming.label_value(name)}


def archive_keys(app: AppDef) -> list[str]:
    """Return the keys under which the bucket must have the workspaces of the application."""
    return [str(role.metadata[workspace.METADATA]) for role in app.roles if workspace.METADATA in role.metadata]


def needs_rendezvous(app: AppDef, submission: Submission) -> bool:
    """Return whether a role meets in etcd and has no workspace with which the rendezvous comes along.

    Without a bucket nothing comes along. A role that names this rendezvous itself may have an image with it.

    Raises:
        Refused: a role must meet in etcd, and there is no bucket to bring the rendezvous.
    """
    for role in app.roles:
        if workspace.METADATA in role.metadata or not _meets_in_etcd(_for_etcd(role, submission)):
            continue
        if submission.bucket:
            return True
        if not _meets_in_etcd(role):
            raise Refused(
                f"option etcd={submission.etcd}: the rendezvous {torchrun.BACKEND} comes to the replicas of role"
                f" {role.name} by a bucket, and none is known; add bucket=…, or leave etcd out"
            )
    return False


def _job_spec(given: Sequence[Role], roles: Sequence[Role], own: str, lead: int, submission: Submission) -> Manifest:
    """Return the fields of the job that belong to no replica type.

    Args:
        given: the roles as they were submitted.
        roles: the same roles as they run.
        own: the job's name.
        lead: the position of the role that is `Worker`.
        submission: what else is known.
    """
    plan, first = retries(given), given[lead]
    queue = submission.options.queue or (own if len(given) > 1 else None)
    return {
        "rdzvEndpoint": submission.etcd or f"{names.pod_name(own, names.WORKER, 0)}:{RENDEZVOUS_PORT}",
        "launcher": Launcher.NONE.value,
        "minReplicas": first.num_replicas if first.min_replicas is None else first.min_replicas,
        "maxReplicas": first.num_replicas,
        "successPolicy": _success(roles).value,
        "restartScope": plan.scope.value,
        "backoffLimit": plan.backoff_limit,
        **({"schedulingPolicy": {"queue": queue}} if queue else {}),
    }


def _success(roles: Sequence[Role]) -> SuccessPolicy:
    """Return which pods must succeed for the application to succeed: all replicas.

    The agents of an elastic torchrun wait for each other before they exit with 0, so the first of them says that the
    training is done. One that was made again late finds the run closed, and would never succeed.
    """
    if len(roles) == 1 and is_elastic(roles[0]) and torchrun.found_in(roles[0]) is not None:
        return SuccessPolicy.ANY_WORKER
    return SuccessPolicy.ALL_PODS


def _replica_spec(role: Role, pod: Pod, submission: Submission, *, limits: bool) -> Manifest:
    """Return a replica type.

    Args:
        role: the role with its macros filled in.
        pod: what its pods have in addition.
        submission: what else is known.
        limits: whether the type has its own bounds; those of `Worker` are the job's.
    """
    elastic = {"minReplicas": role.min_replicas, "maxReplicas": role.num_replicas}
    return {
        "replicas": role.num_replicas,
        **(elastic if limits and is_elastic(role) else {}),
        "indexLabel": LABEL_REPLICA_ID,
        **policy(role),
        "template": merged(
            pod_template(role, pod, submission.options, submission.facts), submission.overlays.get(role.name, {})
        ),
    }


def _pod(app: AppDef, index: int, role: Role, own: str, rank0: str, submission: Submission) -> Pod:
    """Return what the pods of a role have in addition to it."""
    labels = {**app_labels(app, own), **role_labels(index, role.name)}
    pod = Pod(labels=labels, rank0=rank0)
    key = str(role.metadata.get(workspace.METADATA, ""))
    if key:
        pod = replace(pod, code=_code(key, role, submission), working_directory=workspace.WORKING_DIRECTORY)
    elif submission.rendezvous and _meets_in_etcd(role):
        pod = replace(pod, code=_code(submission.rendezvous, role, submission))
    return pod


def _code(key: str, role: Role, submission: Submission) -> Shipped:
    if not submission.bucket:
        raise workspace.no_bucket(submission.namespace)
    facts = submission.facts
    fetch_image, variables = (facts.fetch_image, facts.variables) if facts else (FETCH_IMAGE, {})
    return workspace.mounted(key, fetch_image, role.image, bucket=submission.bucket, variables=variables)


def _for_etcd(role: Role, submission: Submission) -> Role:
    """Return a role as it runs: an elastic torchrun meets in etcd, if one is known.

    Raises:
        Refused: none is known, and the role's command names this rendezvous without an etcd.
    """
    lacks = torchrun.lacks_etcd(role)
    if lacks and not submission.etcd:
        raise Refused(
            f"role {role.name}: no etcd is known for its rendezvous {torchrun.BACKEND}; add -cfg etcd=…, or leave"
            " --rdzv_backend out"
        )
    changed = torchrun.met_in_etcd(role, submission.etcd) if submission.etcd and (lacks or is_elastic(role)) else role
    if not _meets_in_etcd(changed) or not (workspace.METADATA in role.metadata or submission.rendezvous):
        return changed
    others = changed.env.get(_PYTHONPATH)
    path = f"{workspace.PACKAGES}:{others}" if others else workspace.PACKAGES
    with_path: Role = replace(changed, env={**changed.env, _PYTHONPATH: path})
    return with_path


def _meets_in_etcd(role: Role) -> bool:
    command = torchrun.found_in(role)
    backend = None if command is None else command.option("rdzv-backend")
    return backend is not None and backend.value.strip("'\"") == torchrun.BACKEND


def _check_size(annotations: dict[str, Any]) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > LARGEST_ANNOTATIONS:
        raise Refused(
            f"the application is kept with its job and has {size} bytes, and at most {LARGEST_ANNOTATIONS} fit: put"
            " long arguments and variables into a file of the workspace"
        )
