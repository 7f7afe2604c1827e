"""The logs that a stack has kept of a job, also of pods that are gone, and after the job.

    printed(session, Wanted("digits"), bare, asked=True)

A pod prints them, made from the template of the Deployment that writes them. So who reads them needs no right but those
with which jobs are run, and mounts the volume of that namespace only.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from tidewater.cli.errors import CliError
from tidewater.cli.job.changes import Watched, named, successive
from tidewater.cli.job.describe import pod_state
from tidewater.cli.job.lines import Line, line_of
from tidewater.cli.job.logs import Wanted, started
from tidewater.cli.job.printer import Layout, Printer
from tidewater.cli.session import Session
from tidewater.contract import labels
from tidewater.contract.stack import LOGS, LOGS_DIRECTORY, LOGS_READER
from tidewater.elasticjob import names
from tidewater.kube.cluster import LogOptions, Object
from tidewater.kube.errors import ClusterError, Forbidden, NotFound
from tidewater.kube.kinds import DEPLOYMENTS, PODS

START_SECONDS = 120.0
LIMIT_SECONDS = 600
"""The pod ends after this, whatever becomes of the command."""


@dataclass(frozen=True)
class Kept:
    """What is kept: lines in the order of their times."""

    files: int
    lines: Sequence[Line]
    left_out: int
    """How many lines before these were left out, since there are too many for the log of a pod."""


def writer(session: Session) -> Object | None:
    """Return the Deployment that keeps the namespace's logs; None if there is none, or it can't be asked."""
    try:
        return session.cluster.get(DEPLOYMENTS, LOGS)
    except (NotFound, Forbidden):
        return None


def needed(session: Session) -> Object:
    """Return the Deployment. Raise CliError if there is none."""
    deployment = writer(session)
    if deployment is None:
        raise CliError(
            f"namespace {session.cluster.namespace} keeps no logs of jobs",
            "The stack keeps them from when it has jobLogDays: pulumi config set jobLogDays 14 && pulumi up",
        )
    return deployment


def read(session: Session, deployment: Object, wanted: Wanted, uid: str = "") -> Kept:
    """Return what is kept of a job: of the one with the uid, else of the last one with the name.

    Raises:
        CliError: the pod that prints it doesn't start, or its log breaks off.
        ClusterError: the cluster refuses.
    """
    name = f"tidewater-logs-{secrets.token_hex(3)}"
    pod = session.cluster.create(PODS, reader(deployment, name, arguments(session, wanted, uid)))
    session.note(f"reading the kept logs of {wanted.job} in pod {name}")
    try:
        return _parsed(name, _output(session, pod))
    finally:
        with contextlib.suppress(ClusterError):
            session.cluster.delete(PODS, name)


def reader(deployment: Object, name: str, arguments: Sequence[str]) -> Object:
    """Return the pod that prints kept logs. It mounts the files read-only, and has no service account's token."""
    spec: Object = dict(deployment["spec"]["template"]["spec"])
    container = spec["containers"][0]
    mounts = [{**each, "readOnly": True} for each in container["volumeMounts"]]
    for key in ("serviceAccountName", "serviceAccount"):
        spec.pop(key, None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {labels.NAME: labels.APPLICATION, labels.COMPONENT: "logs-reader"}},
        "spec": {
            **spec,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIMIT_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "containers": [{**container, "command": [*LOGS_READER, *arguments], "volumeMounts": mounts}],
        },
    }


def arguments(session: Session, wanted: Wanted, uid: str) -> list[str]:
    """Return what the reader is to print."""
    found = [f"--job={wanted.job}", *([f"--uid={uid}"] if uid else [])]
    worker = f"{wanted.job}-{names.WORKER.lower()}"
    found += [f"--pod={pod}" for each in wanted.workers for pod in (each, f"{wanted.job}-{each}", f"{worker}-{each}")]
    if wanted.tail is not None:
        found.append(f"--tail={wanted.tail}")
    if wanted.since_seconds is not None:
        since = session.clock.now() - timedelta(seconds=wanted.since_seconds)
        found.append(f"--since={since:%Y-%m-%dT%H:%M:%S}")
    return found


def printed(session: Session, wanted: Wanted, bare: Layout, uid: str = "", *, asked: bool) -> bool:
    """Print what is kept; return whether there is something.

    Args:
        bare: How lines look, without the names of workers.
        uid: Of the job, if it is there.
        asked: Whether the user wants nothing else. If not, a namespace that keeps no logs, and a user who may run no
            pods there, are no error.
    """
    deployment = needed(session) if asked else writer(session)
    if deployment is None:
        return False
    try:
        kept = read(session, deployment, wanted, uid)
    except Forbidden:
        if asked:
            raise
        return False
    if not kept.files:
        return False
    printer = Printer(session, layout(bare, kept.lines))
    if kept.left_out:
        place = f"{LOGS_DIRECTORY}/{wanted.job}"
        printer.note(f"{kept.left_out} lines before these are left out: pods that mount the shared files have {place}")
    for line in kept.lines:
        printer.line(line)
    printer.flush()
    return True


def layout(bare: Layout, lines: Sequence[Line]) -> Layout:
    """Return the layout for lines of a job that may be gone: as wide as the longest worker's name."""
    shorts = [bare.short(pod) for pod in dict.fromkeys(line.pod for line in lines)]
    others = sorted({each.rpartition("-")[0] or each for each in shorts} - {names.WORKER.lower()})
    return replace(bare, types=(names.WORKER.lower(), *others), width=max(map(len, shorts), default=0))


def _output(session: Session, pod: Object) -> Iterator[str]:
    """Yield what a pod prints, when it has started."""
    name, state = str(pod["metadata"]["name"]), "Pending"
    deadline = session.clock.monotonic() + START_SECONDS
    for now in successive(session.cluster, session.clock, Watched(PODS, named(name), deadline)):
        if now and started(now):
            yield from session.cluster.log(name, LogOptions(container=LOGS, follow=True))
            return
        state = pod_state(now) if now else "gone"
    raise CliError(f"pod {name} has not started after {START_SECONDS:.0f} s: {state}", "Try again later.")


def _parsed(name: str, output: Iterator[str]) -> Kept:
    """Return what the reader has printed. Raise CliError if that isn't all of it."""
    first, *rest = [*output] or [""]
    try:
        header = json.loads(first)
        kept = Kept(header["files"], [_line(each) for each in rest], header["left_out"])
    except (ValueError, KeyError, TypeError):
        raise CliError(f"pod {name} could not read the kept logs: {first}", "Try again.") from None
    if len(kept.lines) < header["lines"]:
        raise CliError(f"the log of pod {name} broke off after {len(rest)} of {header['lines']} lines", "Try again.")
    return kept


def _line(text: str) -> Line:
    pod, _, raw = text.partition(" ")
    return line_of(pod, raw)
