"""The check that the worker nodes have GPUs, as a job that training waits for.

    GpuCheck("gpu-check", GpuCheckArgs(stack), platform.options(plugin, *worker_nodes))

Nodes may be Ready and have no GPUs for Kubernetes: if the plug-in can't use the image's container runtime, if the
driver is broken, or if it no longer supports the instance type. Then workers stay Pending, and `pulumi up` would
wait for them until its time-out. The job ends with a sentence instead, which Pulumi shows.

It runs again when something changes that decides whether there are GPUs: the plug-in, the nodes' image, their types. It
asks the API server, and needs no free GPU. Its pod runs on a system node, so that it can say why no worker node comes.

Where Karpenter brings all nodes, none comes before a pod needs one. There a second job, on a worker node, has a first
node brought: workers come to that one, and a mistake costs one node and not all of them. EC2 may have no instance for
hours, and training is to start by itself when it has: a check that sees no node until its limit is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pulumi

import settings
from tidewater.contract import devices, labels
from tidewater.contract.devices import NAMESPACE
from workloads import objects
from workloads.devices import plugin
from workloads.devices.in_pod import gpus
from workloads.manifests import CONFINED, NON_ROOT, SYSTEM_NODES, WORKER_NODES, Manifest, field, metadata
from workloads.namespace import with_credentials

NAME = "gpu-check"
NODE_NAME = f"{NAME}-node"
"""Name of the job that has a first node brought."""

PROGRAM = Path(gpus.__file__)
DIRECTORY = "/check"
JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"
"""Kubernetes labels the pods of a job with its UID: https://kubernetes.io/docs/reference/labels-annotations-taints/"""

CHECKED = f"{labels.PREFIX}/checked"
"""Annotation: what the job has looked at. A change of it makes another job."""

START_SECONDS = 300
"""So long the pod may take to start, with the pull of its image."""

DEADLINE_SECONDS = START_SECONDS + round(gpus.NODE_SECONDS + 2 * gpus.PATIENCE_SECONDS)
"""So long the job may take. The program ends before, also if it sees the first node at its limit."""

REMEDY = (
    f"`kubectl logs -n {NAMESPACE} daemonset/{plugin.NAME}` says why; set nodeImageVersion to another release, "
    "instanceTypes to types whose GPUs today's driver supports, or gpusPerWorker to 0"
)


def needed(workers: settings.Workers) -> bool:
    """Return whether there are to be nodes with GPUs: those of the core, or those that Karpenter brings for workers."""
    return workers.gpus > 0 and (workers.nodes.minimum > 0 or workers.count > 0)


def brings_first_node(workers: settings.Workers) -> bool:
    """Return whether no node comes before a pod needs one: there is no core (`minWorkers` 0 or `coreNodes` 0)."""
    return workers.nodes.minimum == 0


def checked(stack: settings.Settings) -> str:
    """Return what decides whether the nodes have GPUs."""
    types = [*stack.workers.nodes.instance_types, *(stack.surge.instance_types if stack.surge else ())]
    return " ".join([stack.training.images.device_plugin, stack.node_image, *dict.fromkeys(types)])


def job_manifest(stack: settings.Settings) -> Manifest:
    """Return the job that Pulumi waits for."""
    return _job(stack, NAME, {"nodeSelector": SYSTEM_NODES})


def node_manifest(stack: settings.Settings) -> Manifest:
    """Return the job that has a first worker node brought, and keeps it until the check has ended.

    It runs the same program, so it ends with it: Karpenter ends a node without pods before its GPUs have shown.
    Pulumi doesn't wait for it, but for the check.
    """
    placed = {
        "nodeSelector": WORKER_NODES,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(stack)}},
        "tolerations": [
            {"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"},
            {"key": devices.GPU, "operator": "Exists", "effect": "NoSchedule"},
        ],
    }
    return _job(stack, NODE_NAME, placed, skipAwait="true")


def _job(stack: settings.Settings, name: str, placed: Manifest, **annotations: str) -> Manifest:
    """Return a job that runs the program.

    It fails at the first failure, except for the loss of its node. A failed one is made again by the next `pulumi up`.
    https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/#pulumicomreplaceunready
    """
    own = _labels(name)
    annotations = {f"pulumi.com/{key}": value for key, value in {"replaceUnready": "true", **annotations}.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(name, own, namespace=NAMESPACE, annotations=annotations),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {"labels": own, "annotations": {CHECKED: checked(stack)}},
                "spec": {
                    **placed,
                    "serviceAccountName": NAME,
                    "restartPolicy": "Never",
                    "securityContext": NON_ROOT,
                    "containers": [_container(stack, name)],
                    "volumes": [{"name": "program", "configMap": {"name": NAME}}],
                },
            },
        },
    }


def access_manifests(*, karpenter: bool) -> list[Manifest]:
    """Return the jobs' service account and its rights: to look at nodes, and to say what they wait for.

    With Karpenter also to look at its NodeClaims, and at its events about them and about the pods here.
    """
    own, shared = _labels(NAME), f"{labels.APPLICATION}-{NAME}"
    nodes = [_rule("", "nodes", "list"), *([_rule("karpenter.sh", "nodeclaims", "list")] if karpenter else [])]
    here = _rule("", "events", "create", *(["list"] if karpenter else []))
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, own, namespace=NAMESPACE)},
        *_granted("Cluster", shared, None, nodes),
        *_granted("", NAME, NAMESPACE, [here]),
        *(_granted("", shared, gpus.CLAIMS_NAMESPACE, [_rule("", "events", "list")]) if karpenter else []),
    ]


def _rule(group: str, resources: str, *verbs: str) -> Manifest:
    return {"apiGroups": [group], "resources": [resources], "verbs": list(verbs)}


def _granted(scope: str, name: str, namespace: str | None, rules: list[Manifest]) -> list[Manifest]:
    """Return a Role, or with the scope `Cluster` a ClusterRole, and what gives it to the service account."""
    group = "rbac.authorization.k8s.io"
    made: Manifest = {"apiVersion": f"{group}/v1", "metadata": metadata(name, _labels(NAME), namespace=namespace)}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    reference = {"apiGroup": group, "kind": f"{scope}Role", "name": name}
    return [
        {**made, "kind": f"{scope}Role", "rules": rules},
        {**made, "kind": f"{scope}RoleBinding", "roleRef": reference, "subjects": [account]},
    ]


def program_manifest() -> Manifest:
    """Return the ConfigMap with the job's program."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(NAME, _labels(NAME), namespace=NAMESPACE),
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }


def _labels(name: str) -> dict[str, str]:
    return labels.component(name, instance=labels.APPLICATION)


def _nodes(stack: settings.Settings) -> Manifest:
    """Return the nodes that should have GPUs, as the program finds them too: one of the terms must hold."""
    types = list(stack.workers.nodes.instance_types)
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": gpus.KARPENTER_GPUS, "operator": "Exists"}]},
            {"matchExpressions": [{"key": gpus.INSTANCE_TYPE, "operator": "In", "values": types}]},
        ]
    }


def _container(stack: settings.Settings, job: str) -> Manifest:
    arguments = {
        "resource": devices.GPU,
        "count": str(stack.workers.gpus * stack.workers.per_node),
        "node-labels": labels.selector(WORKER_NODES),
        "instance-types": ",".join(stack.workers.nodes.instance_types),
        "remedy": REMEDY,
        "job": job,
        "job-uid": "$(JOB_UID)",
    }
    return {
        "name": "check",
        "image": stack.training.images.controller,
        "command": ["python3", f"{DIRECTORY}/{PROGRAM.name}", *(f"--{key}={text}" for key, text in arguments.items())],
        "env": [field("JOB_UID", f"metadata.labels['{JOB_UID_LABEL}']")],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the sentence is what Pulumi shows of a failed pod
        # So little that it fits on a node with workers, which request all but what the DaemonSets need.
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "program", "mountPath": DIRECTORY, "readOnly": True}],
    }


@dataclass(frozen=True)
class GpuCheckArgs:
    """The stack's settings."""

    stack: settings.Settings


class GpuCheck(pulumi.ComponentResource):
    """The job, its program and its account. Pulumi waits until the job has succeeded, or has failed."""

    def __init__(self, name: str, args: GpuCheckArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:GpuCheck", name, None, opts)
        stack, child = args.stack, pulumi.ResourceOptions(parent=self)
        manifests = [*access_manifests(karpenter=stack.surge is not None), program_manifest()]
        around = [
            objects.register(with_credentials(each, stack.training.pull_secret), opts=child) for each in manifests
        ]
        limit = f"{DEADLINE_SECONDS // 60 + 2}m"
        after = pulumi.ResourceOptions(
            parent=self, depends_on=around, custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit)
        )
        objects.register(job_manifest(stack), opts=after)
        if brings_first_node(stack.workers):
            objects.register(node_manifest(stack), opts=after)
        self.register_outputs({})
