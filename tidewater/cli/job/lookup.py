"""A job by its name; for a wrong name the error has the names that are close to it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

import typer

from tidewater.cli.session import cluster_of
from tidewater.contract import labels
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, Cluster, Object, Selection
from tidewater.kube.errors import ClusterError, ErrorWithRemedy, NotFound
from tidewater.kube.kinds import EVENTS, PODS

_MOST_NAMES = 5


def job_named(cluster: Cluster, name: str) -> Object:
    """Return a job.

    Raises:
        NotFound: there is none; the remedy names close ones.
    """
    try:
        return cluster.get(JOBS, name)
    except NotFound as error:
        error.remedy = remedy(cluster, name)
        raise


def remedy(cluster: Cluster, name: str) -> str:
    """Return what to do about a job's name that does not exist."""
    try:
        existing = [str(each["metadata"]["name"]) for each in cluster.list(JOBS).items]
    except ClusterError:
        return ""
    if not existing:
        return none(cluster)
    near = difflib.get_close_matches(name, existing, n=_MOST_NAMES)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = ", …" if len(existing) > _MOST_NAMES else ""
    return f"There are in namespace {cluster.namespace}: {', '.join(existing[:_MOST_NAMES])}{more}"


def none(cluster: Cluster, namespace: str = "") -> str:
    """Return that a namespace has no jobs, and which other ones have some, as far as the user may see that."""
    if namespace == ALL_NAMESPACES:
        return "There are no jobs in any namespace."
    here = f"There are no jobs in namespace {cluster.namespace}"
    try:
        found = Counter(namespace for namespace, _ in cluster.table(JOBS, Selection(ALL_NAMESPACES)).names)
    except ClusterError:
        return f"{here}. Choose another one with -n."
    if not found:
        return f"{here}, nor in any other."
    others = [f"{namespace} ({count})" for namespace, count in found.most_common()]
    more = ", …" if len(others) > _MOST_NAMES else ""
    return f"{here}. There are in {', '.join(others[:_MOST_NAMES])}{more}: choose one with -n, or list all with -A."


def pods_of(job: str, namespace: str = "") -> Selection:
    """Return the selection of a job's pods, of all types."""
    return Selection(namespace, labels=labels.selector(names.job_labels(job)))


def job_pods(cluster: Cluster, job: str) -> list[Object]:
    """Return a job's pods by type and index."""
    return sorted(cluster.list(PODS, pods_of(job)).items, key=place)


def job_events(cluster: Cluster, job: Object) -> list[Object]:
    """Return the events about a job, oldest first."""
    chosen = f"involvedObject.kind={names.KIND},involvedObject.uid={job['metadata'].get('uid', '')}"
    return sorted(cluster.list(EVENTS, Selection(fields=chosen)).items, key=last_seen)


def pod_events(cluster: Cluster, pods: Sequence[Object]) -> list[Object]:
    """Return the events about these pods, oldest first."""
    uids = {each["metadata"].get("uid") for each in pods}
    found = cluster.list(EVENTS, Selection(fields=f"involvedObject.kind={PODS.kind}")).items if uids else ()
    return sorted((each for each in found if each["involvedObject"].get("uid") in uids), key=last_seen)


def last_seen(event: Object) -> str:
    """Return when an event last occurred. Old and new ways to record events have it in different fields."""
    series = event.get("series") or {}
    for stamp in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if stamp:
            return str(stamp)
    return str(event.get("metadata", {}).get("creationTimestamp", ""))


def place(pod: Object) -> tuple[bool, str, int]:
    """Return the key that sorts pods: workers first, then the other types by name, each by index."""
    type, index = worker_of(pod)
    return type != names.WORKER.lower(), type, index


def worker_of(pod: Object) -> tuple[str, int]:
    """Return the replica type, in small letters, and the index of a pod."""
    found = pod["metadata"].get("labels") or {}
    index = str(found.get(names.LABEL_REPLICA_INDEX, ""))
    return str(found.get(names.LABEL_REPLICA_TYPE, "")), int(index) if index.isdigit() else -1


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs with names that begin with what has been typed."""
    try:
        found = [str(each["metadata"]["name"]) for each in cluster_of(context).list(JOBS).items]
    except ErrorWithRemedy:
        return []
    return [name for name in found if name.startswith(incomplete)]
