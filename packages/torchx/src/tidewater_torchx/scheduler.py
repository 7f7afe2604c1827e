"""What TorchX calls: its interface `Scheduler`, carried out by this project's ElasticJobs. Thin.

    scheduler = create_scheduler("session")
    app_id = scheduler.submit(app, {"namespace": "training"})       # training:app-kx3p
    scheduler.describe(app_id).state

`cancel` suspends the job: its pods end, and what it was can still be described. `delete` removes it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import yaml
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream, filter_regex
from torchx.schedulers.ids import random_id
from torchx.specs import AppDef, AppDryRunInfo, AppState, CfgVal, runopts

from tidewater.contract import code, labels
from tidewater.contract.stack import Facts
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.codec import InvalidJob
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster, Object, Selection
from tidewater.kube.errors import Exists, NoKubeconfig, NotFound
from tidewater.kube.kinds import PODS
from tidewater.kube.kubeconfig import DEFAULT_NAMESPACE, Access
from tidewater.kube.server import connect
from tidewater_torchx import workspace
from tidewater_torchx.errors import Refused, Unreadable
from tidewater_torchx.observe import failures, states
from tidewater_torchx.observe.logs import Follower, Wanted, written
from tidewater_torchx.observe.states import Observed
from tidewater_torchx.observe.stored import application, of_spec
from tidewater_torchx.submit import checks, overlay, preflight
from tidewater_torchx.submit.job import (
    ANNOTATION_CANCELLED,
    LABEL_ORGANIZATION,
    ORGANIZATION,
    Submission,
    archive_keys,
    elastic_job,
    needs_rendezvous,
)
from tidewater_torchx.submit.options import Options, run_opts

if TYPE_CHECKING:
    from docker import DockerClient

BACKEND = "tidewater"

_NO_KUBECONFIG = (
    "Name one with $KUBECONFIG, and its context with `kubectl config use-context`; `aws eks update-kubeconfig --name "
    "CLUSTER` writes one for EKS. Without a cluster, this shows what would be sent: --dryrun -cfg validate_spec=false "
    '--workspace=""'
)


@dataclass
class Request:
    """What will be sent, as `torchx run --dryrun` prints it.

    Attributes:
        resource: the ElasticJob.
        images_to_push: images with a workspace, by their local names: repository and tag.
        archives: workspaces that were packed here and that the bucket must have. They are in the request, since another
            scheduler may send it.
        bucket: that bucket; empty if nothing goes there.
    """

    resource: dict[str, Any]
    images_to_push: dict[str, tuple[str, str]]
    archives: list[code.Archive]
    bucket: str

    def __str__(self) -> str:
        # By way of JSON, so that nothing is printed as a reference to an equal part.
        return yaml.safe_dump(json.loads(json.dumps(self.resource)), sort_keys=False, allow_unicode=True)

    def __repr__(self) -> str:
        return str(self)


class TidewaterScheduler(workspace.WorkspaceMixin, Scheduler):
    """Runs TorchX applications as ElasticJobs. See packages/torchx/docs/torchx.md for what each method means."""

    def __init__(
        self,
        session_name: str,
        cluster: Callable[[], Cluster],
        docker_client: DockerClient | None = None,
        unique: Callable[[], str] = random_id,
    ) -> None:
        super().__init__(BACKEND, session_name, docker_client=docker_client)
        self._connect = cluster
        self._connected: Cluster | None = None
        self._unique = unique

    # What is submitted.

    def _run_opts(self) -> runopts:
        return run_opts()

    def _validate(self, app: AppDef, scheduler: str) -> None:
        """Raise Refused for an application that can't run as it is."""
        checks.check(app)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo:
        """Return the request. Nothing is made, on this machine or elsewhere; the API server is only asked.

        Raises:
            Refused: the application, an option or a mount is wrong.
            ClusterError: the cluster can't be asked.
        """
        checks.check(app)
        options = Options.of(cfg)
        images = self.dryrun_push_images(app, cfg)
        namespace, facts = self._place(options)
        overlays = {role.name: overlay.read(role) for role in app.roles}
        submission = Submission(
            unique=self._unique(), namespace=namespace, options=options, facts=facts, overlays=overlays
        )
        if needs_rendezvous(app, submission):
            submission = replace(submission, rendezvous=self.keep(workspace.pack(None)))
        manifest = elastic_job(app, submission)
        if options.validate_spec:
            preflight.check(self._cluster, manifest, app, options)
        keys = [*archive_keys(app), *([submission.rendezvous] if submission.rendezvous else [])]
        return AppDryRunInfo(Request(manifest, images, self.kept(keys), submission.bucket), repr)

    def schedule(self, dryrun_info: AppDryRunInfo) -> str:
        """Push the images, upload the workspaces and make the job; return its id, `namespace:name`.

        Raises:
            Refused: a job of this name exists, a workspace can't be stored, or one that isn't here was never stored.
            ClusterError: the API server refuses the job.
        """
        request: Request = dryrun_info.request
        here = {archive.key for archive in request.archives}
        if dryrun_info._app is not None:  # where TorchX keeps the application
            for key in sorted(set(archive_keys(dryrun_info._app)) - here):
                workspace.check_stored(key, request.bucket)
        self.push_images(request.images_to_push)
        for archive in request.archives:
            workspace.upload(archive, request.bucket)
        try:
            made = self._cluster.create(JOBS, request.resource)
        except Exists as error:
            name = request.resource["metadata"]["name"]
            raise Refused(
                f"Job {name} already exists; submit the application again, it then gets another name"
            ) from error
        return _app_id(made)

    # What became of it.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the application with all of its fields, and the states of its replicas; None if there is none.

        A job that can't be read is UNKNOWN, and the message says why: TorchX cancels only what it can describe.

        Raises:
            ClusterError: the cluster can't be asked.
        """
        try:
            found = self._observed(app_id)
        except Unreadable as error:
            return DescribeAppResponse(app_id, AppState.UNKNOWN, msg=str(error))
        if found is None:
            return None
        seen, problem = found
        response = states.described(replace(seen, lines=self._last_lines(seen)), app_id)
        return replace(response, msg=f"{response.msg} {problem}".strip()) if problem else response

    def app(self, app_id: str) -> AppDef | None:
        """Return the application as it was submitted, its name and metadata too; TorchX's runner leaves those out.

        Raises:
            Refused: it was submitted by another version of this package, or the job can't be read.
        """
        found = self._observed(app_id)
        if found is None:
            return None
        seen, problem = found
        if problem:
            raise Refused(problem)
        return seen.app

    def list(self) -> list[ListAppResponse]:
        """Return the applications in the namespace of the kubeconfig's context."""
        selection = Selection(labels=labels.selector({LABEL_ORGANIZATION: ORGANIZATION}))
        return [ListAppResponse(_app_id(job), _state(job)) for job in self._cluster.list(JOBS, selection).items]

    def log_iter(  # noqa: PLR0913 # TorchX's signature
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the lines of replica `k` of a role, each with its end.

        Args:
            app_id: `namespace:name`.
            role_name: the role.
            k: the replica's number.
            regex: only lines in which it is found.
            since: only lines from this time on; without a time zone it is local.
            until: not supported, since Kubernetes can't select by it.
            should_tail: also what comes, over all pods of the replica, until the application has ended.
            streams: only the combined stream is there.

        Raises:
            Refused: `until`, another stream, or a role or replica that doesn't exist. It is a ValueError.
        """
        if until is not None:
            raise Refused("until: Kubernetes has no logs up to a time; leave it out")
        if streams not in (None, Stream.COMBINED):
            raise Refused(f"streams={Stream(streams).value}: Kubernetes has only the combined log of a container")
        pattern = _pattern(regex)
        observed = self._observed(app_id)
        if observed is None:
            raise Refused(f"{app_id}: there is no such application")
        wanted = _wanted(observed[0], role_name, k, since.astimezone() if since is not None else None)
        found = Follower(self._cluster, wanted, _ended).lines() if should_tail else written(self._cluster, wanted)
        lines = (f"{line}\n" for line in found)
        return filter_regex(pattern, lines) if pattern else lines

    # How it ends.

    def _cancel_existing(self, app_id: str) -> None:
        """Suspend the job for good: its pods end, and it can still be described."""
        namespace, name = _parts(app_id)
        with contextlib.suppress(NotFound):
            job = self._cluster.patch(JOBS, name, {"spec": {"suspend": True}}, namespace=namespace)
            mark = {ANNOTATION_CANCELLED: str(job["metadata"]["generation"])}
            self._cluster.patch(JOBS, name, {"metadata": {"annotations": mark}}, namespace=namespace)

    def delete(self, app_id: str) -> None:
        """Remove the application, with its pods and their logs. Nothing happens if there is none."""
        self._delete_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        namespace, name = _parts(app_id)
        with contextlib.suppress(NotFound):
            self._cluster.delete(JOBS, name, namespace)

    def close(self) -> None:
        """Forget the connection. May be called again; the scheduler must not be used after it."""
        self._connected = None

    def _place(self, options: Options) -> tuple[str, Facts | None]:
        """Return the namespace, and the facts of the stack there.

        Without a kubeconfig no cluster can be asked, and nothing can be sent. What would be sent can still be shown,
        unless the options need an answer of the cluster.
        """
        try:
            namespace = options.namespace or self._cluster.namespace
            return namespace, preflight.facts_of(self._cluster, namespace)
        except NoKubeconfig:
            if options.validate_spec:
                raise
            return options.namespace or DEFAULT_NAMESPACE, None

    @property
    def _cluster(self) -> Cluster:
        """Return the cluster, which is connected to when it is first asked: `torchx runopts` needs none."""
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def _observed(self, app_id: str) -> tuple[Observed, str] | None:
        """Return the job with its application and pods, and why the application isn't as it was submitted, else "".

        None if there is no such job.

        Raises:
            Unreadable: the job can't be read.
        """
        namespace, name = _parts(app_id)
        try:
            job = codec.job_of(self._cluster.get(JOBS, name, namespace))
        except NotFound:
            return None
        except InvalidJob as error:
            raise Unreadable(f"{app_id} can't be read: {error}") from error
        problem = ""
        try:
            app, types = application(job)
        except Refused as error:
            app, types = of_spec(job)
            problem = f"The roles are those of the job, since what was submitted can't be read: {error}."
        selection = Selection(namespace, labels=labels.selector(names.job_labels(name)))
        return Observed(job, app, types, self._cluster.list(PODS, selection).items), problem

    def _last_lines(self, seen: Observed) -> dict[str, tuple[str, ...]]:
        """Return the last lines of the replicas that failed, those that failed first."""
        found = [failure for pod in seen.pods if (failure := failures.failure_of(pod)) is not None and failure.ended]
        first = sorted(found, key=lambda failure: failure.moment)[: failures.MOST_WITH_LINES]
        return {each.pod: failures.last_lines(self._cluster, each, seen.job.namespace) for each in first}


def create_scheduler(
    session_name: str,
    client: Cluster | None = None,
    docker_client: DockerClient | None = None,
    **kwargs: object,
) -> TidewaterScheduler:
    """Return the scheduler; the entry point `tidewater` of the group `torchx.schedulers` calls this.

    Args:
        session_name: the runner's.
        client: the cluster; None: the one that the kubeconfig names, when it is first needed.
        docker_client: for images with a workspace; None: the one of the environment, when it is first needed.
        kwargs: what TorchX passes to the schedulers of all kinds; not used.
    """
    return TidewaterScheduler(session_name, (lambda: client) if client is not None else _connect, docker_client)


def _connect() -> Cluster:
    # The command line of TorchX prints what libraries log, and `torchx run --wait` asks every second.
    requests = logging.getLogger("httpx2")
    if not requests.isEnabledFor(logging.DEBUG):
        requests.setLevel(logging.WARNING)
    try:
        return connect(Access())
    except NoKubeconfig as error:
        # The command line of Tidewater has flags for it, and that of TorchX has none.
        raise NoKubeconfig(error.message, _NO_KUBECONFIG) from None


def _app_id(job: Object) -> str:
    return f"{job['metadata']['namespace']}:{job['metadata']['name']}"


def _parts(app_id: str) -> tuple[str, str]:
    """Return namespace and name. Whether there can be such names is the API server's to say."""
    namespace, _, name = app_id.partition(":")
    if not re.fullmatch("[^:/]+:[^:/]+", app_id):
        raise Refused(f"{app_id!r} is no application of this scheduler; its id is NAMESPACE:NAME")
    return namespace, name


def _state(job: Object) -> AppState:
    try:
        return states.state_of(codec.job_of(job))
    except InvalidJob:
        return AppState.UNKNOWN


def _ended(job: Object | None) -> bool:
    return job is None or _state(job) in states.ENDED


def _pattern(regex: str | None) -> str:
    try:
        return re.compile(regex or "").pattern
    except re.error as error:
        raise Refused(f"regex={regex!r} is no regular expression: {error}") from None


def _wanted(seen: Observed, role_name: str, replica: int, since: datetime | None) -> Wanted:
    """Return which log is meant."""
    known = {role.name: (role, type_) for role, type_ in zip(seen.app.roles, seen.types, strict=True)}
    if role_name not in known:
        raise Refused(f"role {role_name!r}: {seen.job.name} has no such role; it has {', '.join(known)}")
    role, type_ = known[role_name]
    most = max(role.num_replicas, seen.job.bounds(type_)[1])
    if not 0 <= replica < most:
        raise Refused(f"replica {replica}: role {role_name} has replicas 0 to {most - 1}")
    return Wanted(seen.job.namespace, seen.job.name, type_, replica, since)
