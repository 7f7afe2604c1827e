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

from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.client.flags.request import Asked, Ship
from elasticdl.client.job import manifest, models, pods, preflight, shipping
from elasticdl.client.job.pods import Place
from elasticdl.job import JobArgs, JobMode, Strategy
from tidewater.cli.errors import CliError
from tidewater.contract import code
from tidewater.elasticjob.names import JOBS
from tidewater.kube import kubeconfig
from tidewater.kube.cluster import Cluster, Object
from tidewater.kube.errors import Exists


@dataclass(frozen=True)
class Steps:
    """What happens outside of the cluster.

    Attributes:
        say: tells the person what is done.
        upload: stores an archive in a bucket.
        unique: returns a new id for the run, so that each submission of a job starts from the beginning.
        sleep: waits for some seconds.
    """

    say: Callable[[str], None]
    upload: Callable[[code.Archive, str], object] = shipping.upload
    unique: Callable[[], str] = lambda: secrets.token_hex(4)
    sleep: Callable[[float], None] = time.sleep


def needs_no_cluster(asked: Asked) -> bool:
    """Return whether the job is written to a file and nothing in it is what only the cluster knows."""
    args, deployment = asked.args, asked.deployment
    needs_etcd = args.distribution_strategy is Strategy.ALLREDUCE or bool(args.job_command)
    in_image = pods.shipped(deployment, None) is Ship.NOTHING
    return bool(asked.target.yaml) and in_image and bool(deployment.etcd or not needs_etcd)


def submit(asked: Asked, cluster: Cluster | None, steps: Steps) -> Object:
    """Send the job, or write it to the file of --yaml; return it.

    Args:
        asked: The job.
        cluster: None to write the file without one, if the job `needs_no_cluster`.
        steps: What happens outside of it.

    Raises:
        WrongCommand: what the command names doesn't exist or doesn't fit the cluster; it has all of it.
        CliError: the cluster or the bucket can't be reached, or refuses; or there is such a job.
    """
    namespace = asked.target.namespace or (cluster.namespace if cluster else kubeconfig.DEFAULT_NAMESPACE)
    asked = replace(asked, args=replace(asked.args, run_id=steps.unique()))
    facts = preflight.facts_of(cluster, namespace) if cluster else None
    place, what = Place(namespace, facts), pods.shipped(asked.deployment, facts)
    _stop_at([*_of_zoo(asked, what), *(preflight.mistakes(asked, cluster, place) if cluster else ())])
    archive = None
    if facts and what is not Ship.NOTHING:
        archive = shipping.pack(asked.args.model_zoo if what is Ship.ALL else "")
        place = replace(place, code=shipping.address(archive, facts.bucket), zoo=what is Ship.ALL)
    job = manifest.elastic_job(asked, place)
    _stop_at(preflight.refusals(cluster, job) if cluster else [])
    if archive and facts:
        steps.upload(archive, facts.bucket)
        steps.say(f"{'code and zoo' if place.zoo else 'code'}: {place.code}")
    if not manifest.etcd(asked, place):
        steps.say("no --etcd: a master that is replaced begins the job anew")
    if cluster is None or asked.target.yaml:
        _write(asked.target.yaml, job)
        unchecked = "" if cluster else "; not checked against a cluster"
        steps.say(f"written to {asked.target.yaml}: kubectl create -f {asked.target.yaml}{unchecked}")
        return job
    made = _create(cluster, job)
    _say_what_to_read(asked.args, job, steps)
    return made


def _stop_at(mistakes: list[Mistake]) -> None:
    if mistakes:
        raise WrongCommand(mistakes)


def _of_zoo(asked: Asked, what: Ship) -> list[Mistake]:
    """Return what is missing in the zoo, if it goes with the job."""
    return models.mistakes(asked.args) if what is Ship.ALL and asked.args.model_zoo else []


def _create(cluster: Cluster, job: Object) -> Object:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    try:
        return cluster.create(JOBS, job)
    except Exists:
        raise CliError(
            f"there is a job {name} in namespace {namespace}",
            f"Choose another --job_name, or delete it: kubectl delete ej/{name} -n {namespace}",
        ) from None


def _say_what_to_read(args: JobArgs, job: Object, steps: Steps) -> None:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    master, worker = manifest.first_pods(job)
    steps.say(f"job {name} is submitted to namespace {namespace}")
    steps.say(f"  kubectl get pods -n {namespace} -l job-name={name}")
    if args.mode is JobMode.TRAIN and args.log_loss_steps:
        steps.say(f"  kubectl logs -n {namespace} {worker} | grep Loss")
    if "eval_metrics_fn" in args.functions() and args.validation_data:
        steps.say(f"  kubectl logs -n {namespace} {master} | grep Evaluation")


def _write(file: str, job: Object) -> None:
    try:
        Path(file).write_text(yaml.safe_dump(job, sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise CliError(f"--yaml={file} can't be written: {error.strerror}", "Name another file.") from None
