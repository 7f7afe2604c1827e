"""A pod that writes data: only pods have the stack's file system.

    run(Task("digits", "/data/digits", options={}), cluster, steps)

The pod is like a worker's, with the same code and volumes. It is deleted when it has ended, or when the client stops
waiting for it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.flags.request import Asked, Deployment, Resources, Target
from elasticdl.client.flags.values import Volume
from elasticdl.client.job import pods, preflight, shipping
from elasticdl.client.job.pods import Place, Process
from elasticdl.client.job.submit import Steps
from elasticdl.job import JobArgs
from tidewater.cli.errors import CliError
from tidewater.contract.stack import CONFIG_MAP
from tidewater.kube.cluster import Cluster, LogOptions, Object
from tidewater.kube.errors import ClusterError, NotFound
from tidewater.kube.kinds import PODS

POLL_SECONDS = 1.0
NEEDS: Mapping[str, str] = {"cpu": "200m", "memory": "1Gi"}
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Task:
    """What is written: see `elasticdl.client.writing`."""

    source: str
    out: str
    options: Mapping[str, Any]
    volumes: Sequence[Volume] | None = None
    image_name: str = ""


def run(task: Task, cluster: Cluster, steps: Steps) -> None:
    """Write data in a pod, print what the pod prints, and delete it.

    Raises:
        WrongCommand: the cluster lacks something, or refuses the pod.
        CliError: the namespace is no stack's, or the pod has failed.
    """
    namespace = cluster.namespace
    facts = preflight.facts_of(cluster, namespace)
    if facts is None:
        raise CliError(
            f"--in_pod: namespace {namespace} has no ConfigMap `{CONFIG_MAP}` of a stack",
            "Choose a stack's namespace with --namespace, or write to a folder or to s3:// from here.",
        )
    archive = shipping.pack("")
    place = Place(namespace, facts, shipping.address(archive, facts.bucket), zoo=False)
    asked = _asked(task, f"data-{steps.unique()}")
    if mistakes := preflight.mistakes(asked, cluster, place):
        raise WrongCommand(mistakes)
    steps.upload(archive, facts.bucket)
    pod = data_pod(task, asked, place)
    name = cluster.create(PODS, pod)["metadata"]["name"]
    steps.say(f"pod {name} in namespace {namespace} writes {task.out}")
    try:
        phase = _await_end(cluster, pod, steps)
        for line in cluster.log(name, LogOptions(), namespace):
            steps.say(line)
    finally:
        with contextlib.suppress(ClusterError):
            cluster.delete(PODS, name, namespace)
    if phase != _ENDED[0]:
        raise CliError(f"{task.out} was not written: pod {name} has failed", "Its log is above.")


def data_pod(task: Task, asked: Asked, place: Place) -> Object:
    """Return the pod."""
    words = ["python3", "-m", "elasticdl.client.writing", task.source, task.out, json.dumps(task.options)]
    template = pods.template("worker", Process([pods.literal(word) for word in words]), asked, place)
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {**template["metadata"], "name": f"elasticdl-{asked.args.job_name}", "namespace": place.namespace},
        "spec": {**template["spec"], "restartPolicy": "Never"},
    }


def _asked(task: Task, name: str) -> Asked:
    volumes = None if task.volumes is None else tuple(task.volumes)
    small = Resources(request=NEEDS)
    deployment = Deployment(image_name=task.image_name, volumes=volumes, master=small, ps=small, worker=small)
    return Asked(args=JobArgs(job_name=name), deployment=deployment, target=Target())


def _await_end(cluster: Cluster, pod: Object, steps: Steps) -> str:
    """Wait until the pod has ended; return its phase. What it waits for is said whenever that changes."""
    name, namespace, told = pod["metadata"]["name"], pod["metadata"]["namespace"], ""
    while True:
        try:
            status = cluster.get(PODS, name, namespace).get("status") or {}
        except NotFound:
            raise CliError(f"pod {name} was deleted by somebody", "Write again.") from None
        if status.get("phase") in _ENDED:
            return str(status["phase"])
        if (reason := _waits_for(status)) and reason != told:
            steps.say(f"  {reason}")
            told = reason
        steps.sleep(POLL_SECONDS)


def _waits_for(status: Mapping[str, Any]) -> str:
    """Return why a pod doesn't run: the scheduler's words, or the kubelet's; empty if it runs."""
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "Unschedulable":
            return str(condition.get("message", ""))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    return ""
