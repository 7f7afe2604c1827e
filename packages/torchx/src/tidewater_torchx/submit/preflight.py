"""What the cluster says of an application before anything is made.

    facts = facts_of(cluster, "training")        # of the stack in the namespace; None
    check(cluster, manifest, app, options)       # raises Refused

What a user may not read can't be checked, and is no mistake of the application: then the job is submitted, and its
status says what the controller finds.
"""

from __future__ import annotations

from typing import Any

from torchx.specs import AppDef

from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster
from tidewater.kube.errors import ApiError, Forbidden, Invalid, NotFound
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, PODS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, Kind
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.pods import LABEL_REPLICA_ID, Manifest, claims

_NO_MISTAKES = ("cannot create resource", "exceeded quota")
"""In the API server's refusals of a request that the user has no right to make, and of a pod for which the namespace's
quota has no room now. Of a pod that may not be as it is, for instance since it is privileged, it says something else.
"""


def facts_of(cluster: Cluster, namespace: str) -> Facts | None:
    """Return what the stack says of itself; None if there is no stack in the namespace, or the user may not know.

    Raises:
        Refused: the stack is of another version.
    """
    try:
        data = cluster.get(CONFIG_MAPS, CONFIG_MAP, namespace).get("data") or {}
    except (NotFound, Forbidden):
        return None
    try:
        return Facts.of(data)
    except KeyError as error:
        raise Refused(
            f"ConfigMap {CONFIG_MAP} in namespace {namespace} says nothing of {error}: the stack there is of another"
            " version than this scheduler. Bring both to the same version"
        ) from None


def check(cluster: Cluster, manifest: Manifest, app: AppDef, options: Options) -> None:
    """Ask the API server for what the pods refer to, and for what it thinks of the job and of a pod of each role.

    Raises:
        Refused: something doesn't exist, or the API server would refuse the job or a pod.
        ClusterError: it can't be asked.
    """
    namespace = str(manifest["metadata"]["namespace"])
    for role in app.roles:
        for claim in claims(role):
            what = f"role {role.name}: mount {claim}: namespace {namespace} has no PersistentVolumeClaim of this name"
            _exists(cluster, CLAIMS, claim, namespace, what)
    if options.service_account:
        what = f"option service_account={options.service_account}: namespace {namespace} has no such ServiceAccount"
        _exists(cluster, SERVICE_ACCOUNTS, options.service_account, namespace, what)
    if options.priority_class:
        what = f"option priority_class={options.priority_class}: the cluster has no such PriorityClass"
        _exists(cluster, PRIORITY_CLASSES, options.priority_class, "", what)
    _try_job(cluster, manifest)
    for role, pod in zip(app.roles, first_pods(manifest), strict=True):
        _try_pod(cluster, pod, role.name)


def first_pods(manifest: Manifest) -> list[Manifest]:
    """Return pod 0 of each replica type, nearly as the controller makes it."""
    own, pods = manifest["metadata"], []
    for type_, replica in manifest["spec"]["replicaSpecs"].items():
        template: dict[str, Any] = replica["template"]
        metadata = template["metadata"]
        labels = {**metadata["labels"], **names.pod_labels(own["name"], type_, 0), LABEL_REPLICA_ID: "0"}
        pods.append(
            {
                "apiVersion": PODS.api_version,
                "kind": PODS.kind,
                "metadata": {
                    **metadata,
                    "labels": labels,
                    "name": names.pod_name(own["name"], type_, 0),
                    "namespace": own["namespace"],
                },
                "spec": {**template["spec"], "restartPolicy": "Never"},
            }
        )
    return pods


def _exists(cluster: Cluster, kind: Kind, name: str, namespace: str, what: str) -> None:
    try:
        cluster.get(kind, name, namespace)
    except NotFound:
        raise Refused(f"{what}; create it, or name another") from None
    except Forbidden:
        return  # a user who may submit jobs may not always read this


def _try_job(cluster: Cluster, manifest: Manifest) -> None:
    try:
        cluster.create(JOBS, manifest, dry_run=True)
    except NotFound as error:
        namespace = manifest["metadata"]["namespace"]
        raise Refused(
            f"option namespace={namespace}: the cluster has no such namespace; name another, or create it: kubectl"
            f" create namespace {namespace}"
        ) from error
    except Invalid as error:
        raise Refused(f"Invalid job spec: {error.message}") from error


def _try_pod(cluster: Cluster, pod: Manifest, role: str) -> None:
    try:
        cluster.create(PODS, pod, dry_run=True)
    except ApiError as error:
        if isinstance(error, Forbidden) and any(told in error.message for told in _NO_MISTAKES):
            return
        raise Refused(f"role {role}: the API server refuses its pods: {error.message}") from error
