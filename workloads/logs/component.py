"""What keeps the logs of a namespace's jobs on the shared file system, with the setting `jobLogDays`.

    kept_logs(KeptLogsArgs(training, mounts), platform.options(namespace, storage))

It reads logs through the API server, by a right on its own namespace. So logs of all launchers and images are kept, no
worker waits for the volume, and no pod of a job changes when the setting does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pulumi

import settings
from tidewater.contract import labels
from tidewater.contract.stack import LOGS, LOGS_DIRECTORY, LOGS_READER
from tidewater.elasticjob import names
from workloads import objects
from workloads.logs.in_pod import keep, read
from workloads.manifests import (
    CONFINED,
    DATA_MOUNT,
    JOB_PODS,
    NON_ROOT,
    SYSTEM_NODES,
    Manifest,
    data_volume,
    metadata,
)
from workloads.namespace import PULL_SECRETS
from workloads.storage import CLAIM

PROGRAMS = {path.name: path.read_text() for path in (Path(keep.__file__), Path(read.__file__))}
PROGRAM_MOUNT: Manifest = {"name": "program", "mountPath": str(Path(LOGS_READER[1]).parent), "readOnly": True}
OWN = labels.component(LOGS, instance=LOGS)
GROUP = "rbac.authorization.k8s.io"


def manifests(training: settings.Training) -> list[Manifest]:
    """Return what the Deployment needs, then the Deployment."""
    about = metadata(LOGS, OWN, namespace=training.namespace)
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    account = {"kind": "ServiceAccount", "name": LOGS, "namespace": training.namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, "automountServiceAccountToken": False},
        {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": LOGS},
            "subjects": [account],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": PROGRAMS},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": about,
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},  # two would write each line twice
                "selector": {"matchLabels": OWN},
                # Another program is another pod.
                "template": {
                    "metadata": {"labels": OWN, "annotations": {labels.CODE_DIGEST: _digest()}},
                    "spec": _pod(training),
                },
            },
        },
    ]


def _digest() -> str:
    return hashlib.sha256("".join(PROGRAMS.values()).encode()).hexdigest()[:16]


def _pod(training: settings.Training) -> Manifest:
    options = {
        "directory": LOGS_DIRECTORY,
        "days": str(training.log_days),
        "selector": labels.selector(JOB_PODS),
        "job-label": names.LABEL_JOB_NAME,
        "uid-label": names.LABEL_JOB_UID,
        "container": names.WORKER_CONTAINER,
    }
    program = f"{PROGRAM_MOUNT['mountPath']}/{Path(keep.__file__).name}"
    container = {
        "name": LOGS,
        "image": training.images.controller,
        "command": ["python3", program, *(f"--{key}={text}" for key, text in options.items())],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [DATA_MOUNT, PROGRAM_MOUNT],
    }
    return {
        "serviceAccountName": LOGS,
        "automountServiceAccountToken": True,
        "nodeSelector": SYSTEM_NODES,
        "securityContext": NON_ROOT,
        **({"imagePullSecrets": PULL_SECRETS} if training.pull_secret else {}),  # also of the pods that print them
        "containers": [container],
        "volumes": [data_volume(CLAIM), {"name": "program", "configMap": {"name": LOGS}}],
    }


@dataclass(frozen=True)
class KeptLogsArgs:
    """The training settings, with the namespace, and options of what mounts its claim."""

    training: settings.Training
    mounts: pulumi.ResourceOptions


class KeptLogs(pulumi.ComponentResource):
    """The Deployment, its program and its right to read the logs of the namespace's pods."""

    def __init__(self, name: str, args: KeptLogsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:KeptLogs", name, None, opts)
        *around, deployment = manifests(args.training)
        child = pulumi.ResourceOptions(parent=self)
        needed = [objects.register(each, opts=child) for each in around]
        after = pulumi.ResourceOptions(parent=self, depends_on=needed)
        objects.register(deployment, opts=pulumi.ResourceOptions.merge(args.mounts, after))
        self.register_outputs({})


def kept_logs(args: KeptLogsArgs, opts: pulumi.ResourceOptions) -> None:
    """Make it all, if logs are to be kept."""
    if args.training.log_days:
        KeptLogs(LOGS, args, opts)
