"""A job that fills a folder of the shared file system, and does nothing if that was done before.

    register(Filling("dataset-digits", labels, command, code_uri, minutes=60), training, opts=opts)

Pulumi waits for it. The official plug-in takes a Job for failed by the reasons `BackoffLimitExceeded` and
`DeadlineExceeded` only (pulumi-kubernetes, provider/pkg/await/checker/job/check.go), and waits for a Job that failed by
its `podFailurePolicy` until the time-out. So bad input fails the Job by its back-off limit, and what doesn't end by its
deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import TRAINER_SERVICE_ACCOUNT
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import (
    CODE_MOUNT,
    CONFINED,
    DATA_MOUNT,
    NON_ROOT,
    SCRATCH_MOUNT,
    SYSTEM_NODES,
    Manifest,
    Text,
    data_volume,
    empty_volume,
    environment,
    fetch_code,
    metadata,
)
from workloads.storage import CLAIM

RETRIES = 2
"""Kubernetes waits 10 s before the first retry and 20 s before the second, so bad input is reported within a minute:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy
That is enough for a new association to give its pods credentials, which takes several seconds:
https://docs.aws.amazon.com/eks/latest/APIReference/API_CreatePodIdentityAssociation.html"""

PULUMI_MARGIN_MINUTES = 5
"""Pulumi's own time-out comes later than the Job's deadline: its error would not say why."""


@dataclass(frozen=True)
class Filling:
    """What fills a folder.

    Attributes:
        name: of the job, which stands for the folder's content.
        labels: of the job and its pod.
        command: the trainer's.
        code_uri: address of the bundle that has the command.
        minutes: how long it may take.
    """

    name: str
    labels: Mapping[str, str]
    command: list[str]
    code_uri: Text
    minutes: int


def manifest(wanted: settings.Training, filling: Filling) -> Manifest:
    """Return the job, which runs in the workers' image on a system node."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            filling.name,
            filling.labels,
            namespace=wanted.namespace,
            # A Job that has failed stays as it is. The next `pulumi up` is to try again, for example when the archive
            # at the same address has been repaired: https://github.com/pulumi/pulumi-kubernetes/pull/1575
            annotations={"pulumi.com/replaceUnready": "true"},
        ),
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": filling.minutes * 60,
            "podFailurePolicy": {
                # A pod that ends because its node is lost or drained doesn't count.
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {"labels": dict(filling.labels)},
                "spec": {
                    "automountServiceAccountToken": False,
                    "serviceAccountName": TRAINER_SERVICE_ACCOUNT,
                    "restartPolicy": "Never",
                    "nodeSelector": SYSTEM_NODES,
                    "securityContext": NON_ROOT,
                    "initContainers": [fetch_code(wanted.images.fetch, filling.code_uri, wanted.proxy_variables)],
                    "containers": [_container(wanted, filling)],
                    "volumes": [data_volume(CLAIM), empty_volume("code"), empty_volume("scratch")],
                },
            },
        },
    }


def _container(wanted: settings.Training, filling: Filling) -> Manifest:
    return {
        "name": filling.labels[labels.COMPONENT],
        "image": wanted.images.trainer,
        "command": filling.command,
        "env": environment({"HOME": "/tmp", "PYTHONUNBUFFERED": "1", **wanted.proxy_variables}),
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [DATA_MOUNT, CODE_MOUNT, SCRATCH_MOUNT],
        # Pulumi shows this message of a failed container, so its error says in the job's own words what is wrong.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def register(wanted: settings.Training, filling: Filling, *, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register the job, for which Pulumi waits until it has succeeded. `opts` says what mounts the file system."""
    minutes = f"{filling.minutes + PULUMI_MARGIN_MINUTES}m"
    timeouts = pulumi.CustomTimeouts(create=minutes, update=minutes)
    merged = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(custom_timeouts=timeouts))
    return objects.register(manifest(wanted, filling), opts=merged)
