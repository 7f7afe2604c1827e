"""The check that the worker nodes have GPUs, as a job that training waits for.

    GpuCheck("gpu-check", GpuCheckArgs(stack), platform.options(plugin, *worker_nodes))

Nodes may be Ready and have no GPUs for Kubernetes: if the plug-in can't use the image's container runtime, if the
driver is broken, or if it no longer supports the instance type. Then workers stay Pending, and `pulumi up` would
wait for them until its time-out. The job ends with a sentence instead, which Pulumi shows.

It runs again when something changes that decides whether there are GPUs: the plug-in, the nodes' image, their types. It
asks the API server, and needs no free GPU. Its own pod runs on a worker node, so that it has one to look at.
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
from workloads.manifests import CONFINED, NON_ROOT, WORKER_NODES, Manifest, metadata

NAME = "gpu-check"
PROGRAM = Path(gpus.__file__)
DIRECTORY = "/check"
CHECKED = f"{labels.PREFIX}/checked"
"""Annotation: what the job has looked at. A change of it makes another job."""

DEADLINE_SECONDS = 600
"""So long the job may take, with the start of a node and the pull of its image."""

REMEDY = (
    f"`kubectl logs -n {NAMESPACE} daemonset/{plugin.NAME}` says why; set nodeImageVersion to another release, "
    "instanceTypes to types whose GPUs today's driver supports, or gpusPerWorker to 0"
)


def needed(workers: settings.Workers) -> bool:
    """Return whether the core has nodes with GPUs: the check needs one to look at.

    Where Karpenter brings all nodes (`minWorkers` 0 or `coreNodes` 0), EC2 may have none for longer than a check can
    wait. It would fail meanwhile without saying why, and there would be no job; the status of a job has Karpenter's
    words.
    """
    return workers.gpus > 0 and workers.nodes.minimum > 0


def checked(stack: settings.Settings) -> str:
    """Return what decides whether the nodes have GPUs."""
    types = [*stack.workers.nodes.instance_types, *(stack.surge.instance_types if stack.surge else ())]
    return " ".join([stack.training.images.device_plugin, stack.node_image, *dict.fromkeys(types)])


def job_manifest(stack: settings.Settings) -> Manifest:
    """Return the job.

    It fails at the first failure, except for the loss of its node. A failed one is made again by the next `pulumi up`.
    https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/#pulumicomreplaceunready
    """
    own = _labels()
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(NAME, own, namespace=NAMESPACE, annotations={"pulumi.com/replaceUnready": "true"}),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {"labels": own, "annotations": {CHECKED: checked(stack)}},
                "spec": {
                    "serviceAccountName": NAME,
                    "restartPolicy": "Never",
                    "nodeSelector": WORKER_NODES,
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(stack)}},
                    "tolerations": [
                        {"key": labels.TAINT_WORKER, "operator": "Exists", "effect": "NoSchedule"},
                        {"key": devices.GPU, "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "securityContext": NON_ROOT,
                    "containers": [_container(stack)],
                    "volumes": [{"name": "program", "configMap": {"name": NAME}}],
                },
            },
        },
    }


def access_manifests() -> list[Manifest]:
    """Return the job's service account, and its right to look at nodes."""
    own = _labels()
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{labels.APPLICATION}-{NAME}"}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, own, namespace=NAMESPACE)},
        {
            **rbac,
            "kind": "ClusterRole",
            "metadata": metadata(role["name"], own),
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        },
        {
            **rbac,
            "kind": "ClusterRoleBinding",
            "metadata": metadata(role["name"], own),
            "roleRef": role,
            "subjects": [account],
        },
    ]


def program_manifest() -> Manifest:
    """Return the ConfigMap with the job's program."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(NAME, _labels(), namespace=NAMESPACE),
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }


def _labels() -> dict[str, str]:
    return labels.component(NAME, instance=labels.APPLICATION)


def _nodes(stack: settings.Settings) -> Manifest:
    """Return the nodes that should have GPUs, as the program finds them too: one of the terms must hold."""
    types = list(stack.workers.nodes.instance_types)
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": gpus.KARPENTER_GPUS, "operator": "Exists"}]},
            {"matchExpressions": [{"key": gpus.INSTANCE_TYPE, "operator": "In", "values": types}]},
        ]
    }


def _container(stack: settings.Settings) -> Manifest:
    arguments = {
        "resource": devices.GPU,
        "count": str(stack.workers.gpus * stack.workers.per_node),
        "node-labels": labels.selector(WORKER_NODES),
        "instance-types": ",".join(stack.workers.nodes.instance_types),
        "remedy": REMEDY,
    }
    return {
        "name": "check",
        "image": stack.training.images.controller,
        "command": ["python3", f"{DIRECTORY}/{PROGRAM.name}", *(f"--{key}={text}" for key, text in arguments.items())],
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
        child = pulumi.ResourceOptions(parent=self)
        around = [objects.register(each, opts=child) for each in (*access_manifests(), program_manifest())]
        limit = f"{DEADLINE_SECONDS // 60 + 2}m"
        objects.register(
            job_manifest(args.stack),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=around,
                custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit),
            ),
        )
        self.register_outputs({})
