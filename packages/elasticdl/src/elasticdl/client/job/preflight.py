"""What the cluster says of a job before anything is made.

    facts = facts_of(cluster, "training")      # of the stack in the namespace; None
    mistakes(asked, cluster, place)            # what the job refers to and the cluster doesn't have
    refusals(cluster, job)                     # what the API server would refuse: the job, or its pods

What a user may not read can't be checked, and is no mistake of the command.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from elasticdl.client.flags.mistakes import Mistake
from elasticdl.client.flags.request import Asked, Deployment, Ship
from elasticdl.client.job import manifest, pods
from elasticdl.client.job.pods import Place
from elasticdl.job import Strategy
from tidewater.cli.errors import CliError
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster, Object
from tidewater.kube.errors import ApiError, Exists, Forbidden, Invalid, NotFound
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, PODS, PRIORITY_CLASSES, Kind

_KINDS = ("master", "ps", "worker")
_VALUES = {"high": 1_000_000, "low": 1_000}
"""Of the priority classes in ElasticDL's tutorial."""

_NO_MISTAKES = ("cannot create resource", "exceeded quota")
"""In refusals of a request that the user has no right to make, and of a pod for which the quota has no room now."""


def facts_of(cluster: Cluster, namespace: str) -> Facts | None:
    """Return what the stack says of itself in a namespace; None if it is no stack's, or the user may not know.

    Raises:
        CliError: the ConfigMap is one of another version.
    """
    try:
        found = cluster.get(CONFIG_MAPS, CONFIG_MAP, namespace)
    except (NotFound, Forbidden):
        return None
    try:
        return Facts.of(found.get("data") or {})
    except KeyError as error:
        raise CliError(
            f"ConfigMap {CONFIG_MAP} in namespace {namespace} has no {error}: the stack is of another version",
            "Run `pulumi up` with this version of the stack, or use the elasticdl command of the stack's version.",
        ) from None


def mistakes(asked: Asked, cluster: Cluster, place: Place) -> list[Mistake]:
    """Return what doesn't fit the namespace, and what the cluster doesn't have."""
    return [*_of_place(asked, place), *_of_cluster(asked, cluster, place)]


def refusals(cluster: Cluster, job: Object) -> list[Mistake]:
    """Return what the API server says against the job, and against the first pod of each type."""
    found = []
    for kind, each in ((JOBS, job), *((PODS, pod) for pod in first_pods(job))):
        try:
            cluster.create(kind, each, dry_run=True)
        except Exists:
            continue
        except (Invalid, Forbidden) as error:
            found += _refusal(error, f"{kind.kind} {each['metadata']['name']}")
    return found


def first_pods(job: Object) -> list[Object]:
    """Return pod 0 of each replica type, nearly as the controller makes it."""
    own, found = job["metadata"], []
    for type, replica in job["spec"]["replicaSpecs"].items():
        template = replica["template"]
        labels = {**template["metadata"]["labels"], **names.pod_labels(own["name"], type, 0)}
        named = {"name": names.pod_name(own["name"], type, 0), "namespace": own["namespace"], "labels": labels}
        spec = {**template["spec"], "restartPolicy": "Never"}
        found.append({"apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": named, "spec": spec})
    return found


def _refusal(error: ApiError, what: str) -> list[Mistake]:
    if any(told in error.message for told in _NO_MISTAKES):
        return []
    return [Mistake(f"the API server refuses {what}: {error.message}", error.remedy)]


def _of_place(asked: Asked, place: Place) -> Iterator[Mistake]:
    deployment, where = asked.deployment, f"namespace {place.namespace}"
    if place.facts is None and pods.shipped(deployment, None) is not Ship.NOTHING:
        yield Mistake(
            f"code and zoo can't go with the job: {where} has no ConfigMap `{CONFIG_MAP}` of a stack",
            "choose a stack's namespace with --namespace, or name an image that has them with --image_name",
        )
    elif not all(pods.image(kind, deployment, place.facts) for kind in _KINDS):
        yield Mistake("--image_name is missing", f"{where} is no stack's, which would have one")
    meets = asked.args.distribution_strategy is Strategy.ALLREDUCE or bool(asked.args.job_command)
    if meets and not manifest.etcd(asked, place):
        yield Mistake(
            "--etcd is missing", f"{where} is no stack's, which would have one: --etcd=http://etcd.NS.svc:2379"
        )
    yield from _of_folders(asked, place)
    for volume in pods.mounted(deployment, place.facts):
        if volume.host_path and place.facts:
            yield Mistake(
                f"--volume: host_path={volume.host_path}: {where} accepts only pods without privileges",
                f"use a claim: claim_name={place.facts.data_claim},mount_path={volume.mount_path}",
            )


def _of_folders(asked: Asked, place: Place) -> Iterator[Mistake]:
    """Yield folders that each pod would have for itself alone, where it writes what others don't find.

    What is only read may be in an image of one's own.
    """
    deployment = asked.deployment
    volumes = pods.mounted(deployment, place.facts)
    flags = {"checkpoint_dir": False, "output": False}
    if not (deployment.image_name or deployment.worker_image or deployment.ps_image):
        flags["checkpoint_dir_for_init"] = True
    for name, only_read in flags.items():
        address: str = getattr(asked.args, name)
        mounts = [each.mount_path for each in volumes if only_read or not each.read_only]
        if address and not address.startswith("s3://") and not any(_below(address, each) for each in mounts):
            where = f"a folder below {' or '.join(mounts)}, or" if mounts else "a --volume and a folder on it, or"
            yield Mistake(f"--{name}={address} is on no volume of the pods", f"name {where} s3://BUCKET/PREFIX")


def _below(address: str, mount: str) -> bool:
    return PurePosixPath(posixpath.normpath(address.removeprefix("file://"))).is_relative_to(mount)


def _of_cluster(asked: Asked, cluster: Cluster, place: Place) -> Iterator[Mistake]:
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
    classes = (deployment.master_pod_priority, deployment.ps_pod_priority, wanted.core, wanted.surge)
    return list(dict.fromkeys(name for name in classes if name))


def _exists(cluster: Cluster, kind: Kind, name: str, namespace: str) -> bool:
    """Return whether there is such an object, or the user may not know."""
    try:
        cluster.get(kind, name, namespace)
    except NotFound:
        return False
    except Forbidden:
        return True
    return True
