"""The objects that the controller creates, as pure functions: pods and the service of a job.

    objects.pod(job, CreatePod("Worker", 0, core=True))
    objects.service(job)

A pod is the user's template with: the labels of the old controller and `indexLabel`, a host name and a subdomain, a DNS
search entry, what the launcher adds, the restart policy, and the priority class. Everything else stays as the user
wrote it.

Each pod is reachable under its bare name from the other pods of the job, as it was when every pod had a service of its
own: the headless service gives it the name `<pod>.<job>.<namespace>.svc.<cluster domain>`, and the search entry
completes the bare name to that.
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-hostname-and-subdomain-fields
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidewater.contract import env, labels
from tidewater.controller.decide.actions import CreatePod
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob, Launcher, PodNames, ReplicaSpec, RestartPolicy, RestartScope

Manifest = dict[str, Any]

CLUSTER_DOMAIN = "cluster.local"

_HASH_LENGTH = 16
# What a controller takes over from a pod template's metadata, as Kubernetes' own controllers do.
_TEMPLATE_METADATA = ("finalizers",)
# The kubelet then takes the end of a failed container's log for its message, which the job's status keeps.
_LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Container = Mapping[str, Any]


def template_hash(template: Mapping[str, object]) -> str:
    """Return a hash that differs for templates that differ in anything but the order of their fields."""
    canonical = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HASH_LENGTH]


def template_hashes(job: ElasticJob) -> dict[str, str]:
    """Return hashes by replica type: of its template, and of how its pods make a replica if several do."""
    return {type: _hash(job, type) for type in job.spec.replica_specs}


def _hash(job: ElasticJob, type: str) -> str:
    spec, template = job.spec, job.spec.replica_specs[type].template
    if spec.pods_each(type) == 1:
        return template_hash(template)
    shape = [spec.workers_per_replica, spec.topology_key, spec.topology_required]
    return template_hash({"template": template, "replica": shape})


def pod(job: ElasticJob, which: CreatePod, domain: str = CLUSTER_DOMAIN) -> Manifest:
    """Return a pod. One of the job's minimum gets the core priority class, the others that of the surge."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(job, which),
        "spec": _pod_spec(job, which, domain),
    }


def service(job: ElasticJob) -> Manifest:
    """Return the headless service that gives the job's pods DNS names, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service_name(job.name),
            "namespace": job.namespace,
            "labels": dict(names.job_labels(job.name)),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(names.job_labels(job.name)),
        },
    }


def owner_reference(job: ElasticJob) -> Manifest:
    """Return the reference that makes the garbage collector delete an object after its job."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def remedy(taken: Manifest) -> str:
    """Return what to do about an object of another owner under a name that the job needs."""
    manager = (taken["metadata"].get("labels") or {}).get(labels.MANAGED_BY)
    return f"{manager} manages it; give the job another name" if manager else "delete it, or give the job another name"


def owned_by(manifest: Mapping[str, Any], uid: str) -> bool:
    """Return whether the object's controlling owner has this uid."""
    references = manifest["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each.get("uid") == uid for each in references)


def _pod_metadata(job: ElasticJob, which: CreatePod) -> Manifest:
    template: Mapping[str, Any] = job.spec.replica_specs[which.type].template
    given = template.get("metadata") or {}
    restarts = {names.ANNOTATION_JOB_RESTARTS: str(which.job_restarts)} if which.job_restarts else {}
    return {
        **{key: given[key] for key in _TEMPLATE_METADATA if key in given},
        "name": job.pod_name(which.type, which.index),
        "namespace": job.namespace,
        "labels": {**(given.get("labels") or {}), **_pod_labels(job, which)},
        "annotations": {
            **(given.get("annotations") or {}),
            names.ANNOTATION_TEMPLATE_HASH: _hash(job, which.type),
            **restarts,
        },
        "ownerReferences": [owner_reference(job)],
    }


def _pod_labels(job: ElasticJob, which: CreatePod) -> dict[str, str]:
    """Return the labels that the controller sets; its own come last."""
    replica = job.spec.replica_specs[which.type]
    found = {} if replica.index_label is None else {replica.index_label: str(which.index)}
    found |= {**names.pod_labels(job.name, which.type, which.index), names.LABEL_JOB_UID: job.uid}
    if replica.pod_names is PodNames.SUCCESSIVE:
        found[names.LABEL_TIER] = names.CORE if which.core else names.SURGE
    if job.launcher is Launcher.TIDEWATER and which.type == names.WORKER:
        found |= labels.worker_pods(job.name)
    return found | _replica_labels(job, which)


def _replica_labels(job: ElasticJob, which: CreatePod) -> dict[str, str]:
    """Return the label that the pods of a replica have in common; none of a replica of one pod."""
    each = job.spec.pods_each(which.type)
    return {names.LABEL_REPLICA: str(which.index // each)} if each > 1 else {}


def _restart_policy(job: ElasticJob, replica: ReplicaSpec) -> str:
    """Return what the kubelet does after a failure: nothing where the controller is to replace pods."""
    if replica.restart_policy is RestartPolicy.EXIT_CODE or job.spec.restart_scope is RestartScope.JOB:
        return RestartPolicy.NEVER.value
    return replica.restart_policy.value


def _pod_spec(job: ElasticJob, which: CreatePod, domain: str) -> Manifest:
    replica = job.spec.replica_specs[which.type]
    template: Mapping[str, Any] = replica.template
    given: Mapping[str, Any] = template.get("spec") or {}
    policy = job.spec.scheduling_policy
    priority = policy.core_priority_class_name if which.core else policy.surge_priority_class_name
    containers = [{**_LAST_WORDS, **each} for each in given.get("containers") or ()]
    dns = given.get("dnsConfig") or {}
    search = f"{names.service_name(job.name)}.{job.namespace}.svc.{domain}"
    return {
        **given,
        **({"priorityClassName": priority} if priority else {}),
        **({"affinity": affinity} if (affinity := _affinity(job, which)) else {}),
        "containers": launched(containers, job, which.index) if which.type == names.WORKER else containers,
        "restartPolicy": _restart_policy(job, replica),
        "hostname": job.host_name(which.type, which.index),
        "subdomain": names.service_name(job.name),
        "dnsConfig": {**dns, "searches": [search, *(dns.get("searches") or ())]},
    }


def _affinity(job: ElasticJob, which: CreatePod) -> Manifest:
    """Return the template's affinity with what the controller adds; empty if it adds nothing."""
    template: Mapping[str, Any] = job.spec.replica_specs[which.type].template
    own = (template.get("spec") or {}).get("affinity") or {}
    found = _avoiding(which.avoid, own) if which.avoid else own
    key = job.spec.topology_key if job.spec.pods_each(which.type) > 1 else None
    return _near(key, job, which, found) if key else dict(found) if which.avoid else {}


def _near(key: str, job: ElasticJob, which: CreatePod, affinity: Mapping[str, Any]) -> Manifest:
    """Return an affinity with the rule that a pod comes where the others of its replica are, as `key` says.

    A required one keeps no replica from starting: the scheduler accepts a pod that matches the rule itself where no
    other pod does. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    """
    selector = {names.LABEL_JOB_UID: job.uid, **_replica_labels(job, which)}
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    own = affinity.get("podAffinity") or {}
    rule = term if job.spec.topology_required else {"weight": 100, "podAffinityTerm": term}
    kind = _REQUIRED if job.spec.topology_required else _PREFERRED
    return {**affinity, "podAffinity": {**own, kind: [*(own.get(kind) or ()), rule]}}


def _avoiding(nodes: Sequence[str], affinity: Mapping[str, Any]) -> Manifest:
    """Return an affinity with the preference for any other nodes than these."""
    own = affinity.get("nodeAffinity") or {}
    # A field has one value in each expression; all expressions of a term must hold.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    preferred = [*(own.get(_PREFERRED) or ()), {"weight": 100, "preference": {"matchFields": fields}}]
    return {**affinity, "nodeAffinity": {**own, _PREFERRED: preferred}}


def launched(containers: Sequence[Container], job: ElasticJob, index: int = 0) -> list[dict[str, Any]]:
    """Return the containers of the pod of type Worker with this index, with what the job's launcher adds to them.

    What is added comes first, so that the user's own arguments and variables override it.

    torchelastic   every container: the flags of the launcher of the TorchElastic controller's time, in its order
    torchrun       the container that trains: the flags of torchrun 2, which must be the container's command
    tidewater      the container that trains: the environment that this project's trainer reads
    none           nothing
    """
    match job.launcher:
        case Launcher.TORCHELASTIC:
            return [_with_arguments(each, _torchelastic(job)) for each in containers]
        case Launcher.TORCHRUN:
            add = _torchrun(job)
            return [_with_arguments(each, add if _trains(each, containers) else []) for each in containers]
        case Launcher.TIDEWATER:
            variables = _environment(job, index)
            return [_with_environment(each, variables if _trains(each, containers) else []) for each in containers]
        case Launcher.NONE:
            return [dict(each) for each in containers]


def _torchelastic(job: ElasticJob) -> list[str]:
    low, high = job.bounds(names.WORKER)
    return [
        "--rdzv_backend=etcd",
        f"--rdzv_endpoint={job.spec.rdzv_endpoint}",
        f"--rdzv_id={job.name}",
        f"--nnodes={low}:{high}",
    ]


def _torchrun(job: ElasticJob) -> list[str]:
    low, high = job.bounds(names.WORKER)
    return [
        f"--rdzv-backend={job.spec.rdzv_backend}",
        f"--rdzv-endpoint={job.spec.rdzv_endpoint}",
        f"--rdzv-id={job.name}-{job.uid}",  # a run that is finished closes its id, and the job may be applied again
        f"--nnodes={low}:{high}",
    ]


def _environment(job: ElasticJob, index: int) -> list[dict[str, Any]]:
    low, high = job.bounds(names.WORKER)
    endpoint = job.spec.rdzv_endpoint
    values = {
        env.JOB: job.name,
        env.ETCD: endpoint if "://" in endpoint else f"http://{endpoint}",
        env.MIN_WORKERS: str(low),
        env.MAX_WORKERS: str(high),
        **_place(job, index),
        **env.FIXED_HASHES,
    }
    fields = {env.WORKER: "metadata.name", env.HOST: "status.podIP"}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _place(job: ElasticJob, index: int) -> dict[str, str]:
    """Return what a pod knows of its place in its replica; nothing if it is a replica of its own."""
    each = job.spec.pods_each(names.WORKER)
    if each == 1:
        return {}
    return {
        env.SHARD_NODES: str(each),
        env.SHARD_NODE: str(index % each),
        env.REPLICA: job.pod_name(names.WORKER, index - index % each),
    }


def _trains(container: Container, containers: Sequence[Container]) -> bool:
    """Return whether this is the container that trains: the one of that name, or the only one."""
    return container.get("name") == names.WORKER_CONTAINER or len(containers) == 1


def _with_arguments(container: Container, arguments: list[str]) -> dict[str, Any]:
    if not arguments:
        return dict(container)
    return {**container, "args": [*arguments, *(container.get("args") or ())]}


def _with_environment(container: Container, variables: list[dict[str, Any]]) -> dict[str, Any]:
    own = container.get("env") or ()
    named = {each.get("name") for each in own}
    added = [each for each in variables if each["name"] not in named]
    return {**container, "env": [*added, *own]} if added else dict(container)
