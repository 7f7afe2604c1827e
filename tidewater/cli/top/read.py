"""One look at the cluster: the jobs, their pods and events, and the metrics of every worker.

    sample = look(cluster, Wanted(job="digits"), datetime.now(UTC))

Three lists, and one request for each process of a worker through the API server's proxy, all at the same time; of many
processes, those that `sampling` chooses. A worker that does not answer in time is shown without numbers; a frozen one
does not hold up the others.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tidewater.cli.errors import TimeoutReached
from tidewater.cli.job.lookup import job_named, none
from tidewater.cli.parallel import at_once
from tidewater.cli.top.samples import Metrics, Sample, job_sample
from tidewater.cli.top.sampling import NO_ANSWERS, Answers, Process, alternating, chosen
from tidewater.cli.top.scrape import Reading, metrics_ports, reading
from tidewater.contract.labels import selector
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.advice import REACH
from tidewater.kube.cluster import Cluster, Object, Selection
from tidewater.kube.errors import ErrorWithRemedy, Forbidden, Unreachable
from tidewater.kube.kinds import EVENTS, PODS

LIST_SECONDS = 15.0
"""Longer than the HTTP client waits for a connection: its error says what is wrong."""

_SCRAPE_SECONDS = 1.5
_METRICS_PATH = "/metrics"


@dataclass(frozen=True)
class Wanted:
    """Which jobs: one by name, or all of a namespace (empty: the cluster's own default; `*`: all of them)."""

    job: str = ""
    namespace: str = ""


def look(cluster: Cluster, wanted: Wanted, at: datetime, before: Answers = NO_ANSWERS) -> Sample:
    """Return what there is now; `before` are the answers of the look before.

    Raises:
        NotFound: the one job that is wanted does not exist.
        ClusterError: the API server does not answer, or refuses a list.
    """
    jobs, pods, events = _lists(cluster, wanted)
    by_job = _pods_by_job(pods)
    metrics, answers = _metrics(cluster, list(by_job.values()), before)
    about = defaultdict(list)
    for event in events:
        about[event["involvedObject"].get("uid")].append(event)
    samples = (
        job_sample(job, by_job.get(_key(job), ()), about[job["metadata"]["uid"]], metrics)
        for job in sorted(jobs, key=_key)
    )
    return Sample(at, tuple(samples), "" if jobs else none(cluster, wanted.namespace), answers)


def _lists(cluster: Cluster, wanted: Wanted) -> tuple[Sequence[Object], Sequence[Object], Sequence[Object]]:
    """Return jobs, pods and events. Events are no more than a help: without the right to list them, there are none."""
    labels = names.job_labels(wanted.job) if wanted.job else {names.LABEL_GROUP_NAME: names.GROUP}
    fields = f"involvedObject.kind={names.KIND}" + (f",involvedObject.name={wanted.job}" if wanted.job else "")
    of_job = f"metadata.name={wanted.job}" if wanted.job else ""
    found = at_once(
        [
            lambda: cluster.list(JOBS, Selection(wanted.namespace, fields=of_job)).items,
            lambda: cluster.list(PODS, Selection(wanted.namespace, labels=selector(labels))).items,
            lambda: cluster.list(EVENTS, Selection(wanted.namespace, fields=fields)).items,
        ],
        seconds=LIST_SECONDS,
    )
    if isinstance(found[2], Forbidden):
        found[2] = ()
    jobs, pods, events = (_expected(cluster, each) for each in found)
    if wanted.job and not jobs:
        job_named(cluster, wanted.job)  # raises NotFound with the names that are close to it
    return jobs, pods, events


def _expected(cluster: Cluster, answer: Sequence[Object] | ErrorWithRemedy) -> Sequence[Object]:
    if isinstance(answer, TimeoutReached):
        raise Unreachable(f"the API server {cluster.server} can't be reached: {answer.message}", REACH)
    if isinstance(answer, ErrorWithRemedy):
        raise answer
    return answer


def _pods_by_job(pods: Sequence[Object]) -> Mapping[tuple[str, str], list[Object]]:
    found: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for pod in pods:
        found[pod["metadata"]["namespace"], pod["metadata"]["labels"].get(names.LABEL_JOB_NAME, "")].append(pod)
    return found


def _metrics(cluster: Cluster, pods_by_job: Iterable[Sequence[Object]], before: Answers) -> tuple[Metrics, Answers]:
    """Ask processes of the pods that run, with many jobs one of each first."""
    running = [[pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"] for pods in pods_by_job]
    keys = {_uid(pod): _key(pod) for pods in running for pod in pods}
    ports = {_uid(pod): metrics_ports(pod) for pods in running for pod in pods}
    processes = alternating(*([(_uid(pod), port) for pod in pods for port in ports[_uid(pod)]] for pods in running))
    asked = chosen(processes, before)
    calls = [partial(_scrape, cluster, keys[uid], port) for uid, port in asked]
    new: dict[Process, Reading | str] = {
        process: answer.message if isinstance(answer, ErrorWithRemedy) else answer
        for process, answer in zip(asked, at_once(calls, seconds=_SCRAPE_SECONDS), strict=True)
    }
    answers = before.then(processes, new)
    return {key: answers.scraped(uid, key[1], ports[uid]) for uid, key in keys.items()}, answers


def _scrape(cluster: Cluster, pod: tuple[str, str], port: int) -> Reading:
    namespace, name = pod
    text = cluster.proxy(name, port, _METRICS_PATH, namespace)
    return reading(text, at=time.monotonic())


def _key(object: Object) -> tuple[str, str]:
    return object["metadata"]["namespace"], object["metadata"]["name"]


def _uid(object: Object) -> str:
    return str(object["metadata"]["uid"])
