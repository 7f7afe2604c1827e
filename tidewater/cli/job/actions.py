"""What several `job` commands do, or what takes a command longer than a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated

import typer

from tidewater.cli import durations
from tidewater.cli.errors import CliError, JobFailed, TimeoutReached
from tidewater.cli.job import waiting
from tidewater.cli.job.changes import FOREVER, Watched, named, snapshots, successive
from tidewater.cli.job.lookup import job_named, pods_of, remedy
from tidewater.cli.job.waiting import Goal, Verdict
from tidewater.cli.session import Session
from tidewater.cli.show import plural
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import ApiError, ErrorWithRemedy, Forbidden, NotFound
from tidewater.kube.kinds import PODS

FOLLOW_TAIL = 10
"""Lines of each worker with which `logs -f` begins, as with `kubectl logs -l`."""


@dataclass(frozen=True)
class LogFlags:
    """The flags of `job logs`."""

    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what comes, also of workers that come later.")
    ] = False
    since: Annotated[
        timedelta | None,
        typer.Option(parser=durations.parsed, metavar="DURATION", help="Only lines of the last 90s, 10m, 1h30m."),
    ] = None
    tail: Annotated[
        int | None,
        typer.Option(min=-1, help=f"Only the last lines of each worker; -1 for all. With -f: {FOLLOW_TAIL}."),
    ] = None
    previous: Annotated[
        bool,
        typer.Option("--previous", "-p", help="The runs before, and the end of the log of the pod that failed last."),
    ] = False
    kept: Annotated[
        bool,
        typer.Option("--kept", help="What the stack has kept, also of pods that are gone (jobLogDays)."),
    ] = False
    worker: Annotated[
        list[str],
        typer.Option("--worker", "-w", metavar="WORKER", help="Only this worker: 0, worker-0 or a pod; repeatable."),
    ] = field(default_factory=list)
    prefix: Annotated[bool, typer.Option(help="The worker's name before each line.")] = True
    timestamps: Annotated[bool, typer.Option("--timestamps", help="The time before each line.")] = False


def flags_of(session: Session, job: Object) -> str:
    """Return the flags with which a command finds a job that is submitted: a manifest may name its namespace."""
    return replace(session.target, namespace=job["metadata"].get("namespace", "")).repeated


def already(session: Session, job: Object) -> str:
    """Return what to do about a job with a name that is taken."""
    name, flags = job["metadata"]["name"], flags_of(session, job)
    return (
        f"Choose another name, or delete the job: tidewater job delete {name}{flags}. "
        f"To change its size: tidewater job scale {name} WORKERS{flags}"
    )


def set_suspended(session: Session, name: str, *, suspended: bool) -> None:
    """Suspend or resume a job; it may be so already.

    Raises:
        ErrorWithRemedy: the job has ended.
    """
    job = job_named(session.cluster, name)
    state = waiting.state_of(job)
    word = "suspended" if suspended else "resumed"
    if state in waiting.ENDED:
        raise CliError(f"{name} has {state.lower()} and can't be {word}", "Submit it again under another name.")
    if bool(job["spec"].get("suspend", False)) == suspended:
        session.out.print(f"{name} is already suspended" if suspended else f"{name} is not suspended")
        return
    session.cluster.patch(JOBS, name, {"spec": {"suspend": suspended}})
    session.out.print(f"{name} {word}")


def wait_for(session: Session, name: str, goal: Goal, timeout: timedelta | None) -> Verdict:
    """Return when the goal is reached.

    Raises:
        JobFailed: the job has failed.
        ErrorWithRemedy: the goal can't be reached any more.
        TimeoutReached: not in time.
    """
    verdict = Verdict(False, "")
    watched = Watched(JOBS, named(name), _deadline(session, timeout))
    with session.progress(f"{name} {waiting.MISSED[goal]} yet") as show:
        for job in successive(session.cluster, session.clock, watched):
            verdict = waiting.judge(goal, job)
            if verdict.reached:
                return verdict
            if verdict.hopeless:
                raise _hopeless(session, name, goal, verdict)
            show(f"{name} {waiting.MISSED[goal]} yet: {verdict.seen}")
    raise TimeoutReached(
        f"{name} {waiting.MISSED[goal]} after {durations.spoken(timeout or timedelta())}: {verdict.seen}",
        f"See why: tidewater job describe {name}{session.target.repeated}",
    )


def delete_jobs(session: Session, jobs: Sequence[str]) -> tuple[list[str], list[ErrorWithRemedy]]:
    """Begin to delete all jobs; return the names of those, and what was refused about the others."""
    begun: list[str] = []
    errors: list[ErrorWithRemedy] = []
    for name in dict.fromkeys(jobs):
        try:
            session.cluster.delete(JOBS, name)
        except NotFound as error:
            error.remedy = remedy(session.cluster, name)
            errors.append(error)
        except ApiError as error:
            errors.append(error)
        else:
            begun.append(name)
    return begun, errors


def wait_until_gone(session: Session, jobs: Sequence[str], timeout: timedelta | None) -> None:
    """Return when neither the jobs nor any of their pods are left; print each job's name when it is gone.

    Raises:
        TimeoutReached: not all in time.
    """
    deadline = _deadline(session, timeout)
    late = []
    for name in jobs:
        try:
            gone = _is_gone(session, name, deadline)
        except Forbidden as error:
            gone = True  # the job is deleted: who may do no more than that has nothing to wait for
            session.note(f"{name}: whether its pods are gone is not known: {error.message}")
        if gone:
            session.out.print(f"{name} deleted")
        else:
            late.append(name)
    if late:
        verb, rest = ("is", "It will go on by itself") if len(late) == 1 else ("are", "They will go on by themselves")
        raise TimeoutReached(
            f"{', '.join(late)} {verb} not gone after {durations.spoken(timeout or timedelta())}",
            f"{rest}. See: kubectl get pods -l 'job-name in ({', '.join(late)})'{session.target.repeated}",
        )


def _is_gone(session: Session, name: str, deadline: float) -> bool:
    """Return whether a job and its pods are gone before the deadline. They are looked at once even after it."""
    with session.progress(f"{name}: deleting") as show:
        for job in successive(session.cluster, session.clock, Watched(JOBS, named(name), deadline)):
            if job is None:
                break
        else:
            return False  # a finalizer keeps it
        for pods in snapshots(session.cluster, session.clock, Watched(PODS, pods_of(name), deadline)):
            if not pods:
                return True
            show(f"{name}: waiting for {plural(len(pods), 'pod')} to leave")
    return False


def together(errors: Sequence[ErrorWithRemedy]) -> ErrorWithRemedy:
    """Return several errors as one, with the exit code of a timeout if one of them is that."""
    kind = TimeoutReached if any(isinstance(each, TimeoutReached) for each in errors) else ErrorWithRemedy
    return kind("; ".join(each.message for each in errors), "\n".join(each.remedy for each in errors if each.remedy))


def _hopeless(session: Session, name: str, goal: Goal, verdict: Verdict) -> ErrorWithRemedy:
    remedy = f"{verdict.advice}: tidewater job {verdict.command} {name}{session.target.repeated}"
    if verdict.failed:
        return JobFailed(f"{name} has failed: {verdict.hopeless}", remedy)
    return CliError(f"{name} {waiting.MISSED[goal]} and can't any more: {verdict.hopeless}", remedy)


def _deadline(session: Session, timeout: timedelta | None) -> float:
    return FOREVER if timeout is None else session.clock.monotonic() + timeout.total_seconds()
