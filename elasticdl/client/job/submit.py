"""Sends a job to the cluster, or writes it to a file, after everything has been checked that the cluster can tell.

    submit(asked, cluster, Steps(say=print))

In the namespace of a stack, the stack's ConfigMap says where the code goes, as whom the pods run, and where etcd is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cli.errors import AlreadyThere, CliError
from cli.kube import JOBS, Cluster, Object
from contract import code
from elasticdl.client.flags.asked import Asked, Ship
from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.client.job import manifest, models, pods, preflight, shipping
from elasticdl.client.job.pods import Place


@dataclass(frozen=True)
class Steps:
    """What happens outside of the cluster.

    Attributes:
        say: tells the person what is done.
        upload: stores an archive in a bucket.
        unique: a new id for the run, so that a job whose name was used before starts from the beginning.
        sleep: waits for some seconds.
    """

    say: Callable[[str], None]
    upload: Callable[[code.Archive, str], object] = shipping.upload
    unique: Callable[[], str] = lambda: secrets.token_hex(4)
    sleep: Callable[[float], None] = time.sleep


def submit(asked: Asked, cluster: Cluster, steps: Steps) -> Object:
    """Send the job, or write it to the file of --yaml; return it.

    Raises:
        WrongCommand: what the command names doesn't exist or doesn't fit the cluster; it has all of it.
        CliError: the cluster or the bucket can't be reached, or refuses; or there is such a job.
    """
    namespace = asked.target.namespace or cluster.namespace
    asked = replace(asked, args=replace(asked.args, run_id=steps.unique()))
    facts = preflight.facts_of(cluster, namespace)
    place, what = Place(namespace, facts), pods.shipped(asked.deployment, facts)
    _stop_at([*_of_zoo(asked, what), *preflight.mistakes(asked, cluster, place)])
    archive = None
    if facts and what is not Ship.NOTHING:
        archive = shipping.pack(asked.args.model_zoo if what is Ship.ALL else "")
        place = replace(place, code=shipping.address(archive, facts.bucket), zoo=what is Ship.ALL)
    job = manifest.elastic_job(asked, place)
    _stop_at(preflight.refusals(cluster, job))
    if archive and facts:
        steps.upload(archive, facts.bucket)
        steps.say(f"{'code and zoo' if place.zoo else 'code'}: {place.code}")
    if not manifest.etcd(asked, place):
        steps.say("no --etcd: a master that is replaced begins the job anew")
    if asked.target.yaml:
        _write(asked.target.yaml, job)
        steps.say(f"written to {asked.target.yaml}: kubectl create -f {asked.target.yaml}")
        return job
    return _create(cluster, job, steps)


def _stop_at(mistakes: list[Mistake]) -> None:
    if mistakes:
        raise WrongCommand(mistakes)


def _of_zoo(asked: Asked, what: Ship) -> list[Mistake]:
    """Return what is missing in the zoo, if it goes with the job."""
    return models.mistakes(asked.args) if what is Ship.ALL and asked.args.model_zoo else []


def _create(cluster: Cluster, job: Object, steps: Steps) -> Object:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    try:
        made = cluster.create(JOBS, job)
    except AlreadyThere:
        raise CliError(
            f"there is a job {name} in namespace {namespace}",
            f"Choose another --job_name, or delete it: kubectl delete ej/{name} -n {namespace}",
        ) from None
    steps.say(f"job {name} is submitted to namespace {namespace}")
    master, worker = manifest.first_pods(job)
    steps.say(f"  kubectl get pods -n {namespace} -l job-name={name}")
    steps.say(f"  kubectl logs -n {namespace} {worker} | grep Loss")
    steps.say(f"  kubectl logs -n {namespace} {master} | grep Evaluation")
    return made


def _write(file: str, job: Object) -> None:
    try:
        Path(file).write_text(yaml.safe_dump(job, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise CliError(f"--yaml={file} can't be written: {error.strerror}", "Name another file.") from None
