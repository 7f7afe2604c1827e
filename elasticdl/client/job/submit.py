"""Sends a job to the cluster, or writes it to a file, after everything has been checked that the cluster can tell.

    submit(asked, cluster, Steps(say=print))

In the namespace of a stack, the stack's ConfigMap says where the code goes, as whom the pods run, and where etcd is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cli.errors import AlreadyThere, CliError, Forbidden, NotFound
from cli.kube import JOBS, PRIORITY_CLASSES, Cluster, Kind, Object
from contract.stack import CONFIG_MAP, Facts
from elasticdl.client.flags.asked import Asked, Deployment, Ship
from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.client.job import manifest, models, pods, shipping
from elasticdl.client.job.pods import Place
from elasticdl.job import Strategy

CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps")
CLAIMS = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

_KINDS = ("master", "ps", "worker")
_VALUES = {"high": 1_000_000, "low": 1_000}
"""Of the priority classes in ElasticDL's tutorial."""


@dataclass(frozen=True)
class Steps:
    """What happens outside of the cluster.

    Attributes:
        say: tells the person what is done.
        upload: stores an archive in a bucket; returns its address.
        unique: a new id for the run, so that a job whose name was used before starts from the beginning.
    """

    say: Callable[[str], None]
    upload: Callable[[shipping.Archive, str], str] = shipping.upload
    unique: Callable[[], str] = lambda: secrets.token_hex(4)


def submit(asked: Asked, cluster: Cluster, steps: Steps) -> Object:
    """Send the job, or write it to the file of --yaml; return it.

    Raises:
        WrongCommand: what the command names doesn't exist or doesn't fit the cluster; it has all of it.
        CliError: the cluster or the bucket can't be reached, or refuses; or there is such a job.
    """
    namespace = asked.target.namespace or cluster.namespace
    asked = replace(asked, args=replace(asked.args, run_id=steps.unique()))
    facts = facts_of(cluster, namespace)
    place, what = Place(namespace, facts), pods.shipped(asked.deployment, facts)
    if mistakes := [*_of_zoo(asked, what), *_of_place(asked, place), *_of_cluster(asked, cluster, place)]:
        raise WrongCommand(mistakes)
    if facts and what is not Ship.NOTHING:
        archive = shipping.pack(asked.args.model_zoo if what is Ship.ALL else "")
        place = replace(place, code=steps.upload(archive, facts.bucket), zoo=what is Ship.ALL)
        steps.say(f"{'code and zoo' if place.zoo else 'code'}: {place.code}")
    if not manifest.etcd(asked, place):
        steps.say("no --etcd: a master that is replaced begins the job anew")
    job = manifest.elastic_job(asked, place)
    if asked.target.yaml:
        _write(asked.target.yaml, job)
        steps.say(f"written to {asked.target.yaml}: kubectl create -f {asked.target.yaml}")
        return job
    return _create(cluster, job, steps)


def facts_of(cluster: Cluster, namespace: str) -> Facts | None:
    """Return what the stack says of itself in a namespace; None if it is no stack's.

    Raises:
        CliError: the ConfigMap is one of another version.
    """
    try:
        found = cluster.get(CONFIG_MAPS, CONFIG_MAP, namespace)
    except NotFound:
        return None
    try:
        return Facts.of(found.get("data") or {})
    except KeyError as error:
        raise CliError(
            f"ConfigMap {CONFIG_MAP} in namespace {namespace} has no {error}: the stack is of another version",
            "Run `pulumi up` with this version of the stack, or use the elasticdl command of the stack's version.",
        ) from None


def _of_zoo(asked: Asked, what: Ship) -> list[Mistake]:
    """Return what is missing in the zoo, if it goes with the job."""
    return models.mistakes(asked.args) if what is Ship.ALL and asked.args.model_zoo else []


def _of_place(asked: Asked, place: Place) -> Iterator[Mistake]:
    """Yield what doesn't fit the namespace."""
    deployment, where = asked.deployment, f"namespace {place.namespace}"
    if place.facts is None and pods.shipped(deployment, None) is not Ship.NOTHING:
        yield Mistake(
            f"code and zoo can't go with the job: {where} has no ConfigMap `{CONFIG_MAP}` of a stack",
            "choose a stack's namespace with --namespace, or name an image that has them with --image_name",
        )
    elif not all(pods.image(kind, deployment, place.facts) for kind in _KINDS):
        yield Mistake("--image_name is missing", f"{where} is no stack's, which would have one")
    if not manifest.etcd(asked, place) and asked.args.distribution_strategy is Strategy.ALLREDUCE:
        yield Mistake(
            "--etcd is missing", f"{where} is no stack's, which would have one: --etcd=http://etcd.NS.svc:2379"
        )
    for volume in pods.mounted(deployment, place.facts):
        if volume.host_path and place.facts:
            yield Mistake(
                f"--volume: host_path={volume.host_path}: {where} accepts only pods without privileges",
                f"use a claim: claim_name={place.facts.data_claim},mount_path={volume.mount_path}",
            )


def _of_cluster(asked: Asked, cluster: Cluster, place: Place) -> Iterator[Mistake]:
    """Yield what the job refers to and the cluster doesn't have."""
    for name in _classes(asked.deployment):
        if not _exists(cluster, PRIORITY_CLASSES, name, ""):
            value = _VALUES.get(name, 1000)
            yield Mistake(
                f"there is no priority class {name}", f"make it: kubectl create priorityclass {name} --value={value}"
            )
    for name in dict.fromkeys(each.claim_name for each in pods.mounted(asked.deployment, place.facts)):
        if name and not _exists(cluster, CLAIMS, name, place.namespace):
            hint = f"; the stack's is {place.facts.data_claim}" if place.facts else ""
            yield Mistake(
                f"--volume: there is no claim {name} in namespace {place.namespace}",
                f"`kubectl get pvc -n {place.namespace}` lists them{hint}",
            )


def _classes(deployment: Deployment) -> Sequence[str]:
    wanted = deployment.worker_pod_priority
    names = (deployment.master_pod_priority, deployment.ps_pod_priority, wanted.core, wanted.surge)
    return list(dict.fromkeys(name for name in names if name))


def _exists(cluster: Cluster, kind: Kind, name: str, namespace: str) -> bool:
    """Return whether there is such an object. Who may not read it is told by the pods' events."""
    try:
        cluster.get(kind, name, namespace)
    except NotFound:
        return False
    except Forbidden:
        return True
    return True


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
