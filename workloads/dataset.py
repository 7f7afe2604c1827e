"""The dataset job: puts the data on the shared file system, and verifies it. A dataset in S3 has a volume instead.

It is idempotent: data that exists already is only checked against its manifest.

Pulumi waits for it. The official plug-in takes a Job for failed by the reasons `BackoffLimitExceeded` and
`DeadlineExceeded` only (pulumi-kubernetes, provider/pkg/await/checker/job/check.go), and waits for a Job that failed by
its `podFailurePolicy` until the time-out. So bad input fails the Job by its back-off limit, and what doesn't end by its
deadline.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import TRAINER_SERVICE_ACCOUNT
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import (
    BUNDLE,
    CODE_MOUNT,
    CONFINED,
    DATA_DIRECTORY,
    DATA_MOUNT,
    DATASET_DIRECTORY,
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
from workloads.storage import CLAIM, claim_manifest, dataset_volume_manifest

RETRIES = 2
"""Kubernetes waits 10 s before the first retry and 20 s before the second, so bad input is reported within a minute:
https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy
That is enough for a new association to give its pods credentials, which takes several seconds:
https://docs.aws.amazon.com/eks/latest/APIReference/API_CreatePodIdentityAssociation.html"""

PULUMI_MARGIN_MINUTES = 5
"""Pulumi's own time-out comes later than the Job's deadline: its error would not say why."""


def directory(dataset: settings.Dataset) -> str:
    """Return the directory of the dataset in the pods."""
    if dataset.mounted:
        return DATASET_DIRECTORY
    return f"{DATA_DIRECTORY}/{dataset.name}"


def command(dataset: settings.Dataset) -> list[str]:
    """Return the trainer's command line that makes the dataset."""
    source = ["--name", dataset.name] if dataset.uri is None else ["--uri", dataset.uri]
    return ["python3", BUNDLE, "dataset", *source, "--out", directory(dataset)]


def job_manifest(wanted: settings.Training, code_uri: Text) -> Manifest:
    """Return the job."""
    own = labels.component(labels.COMPONENT_DATASET, instance=wanted.dataset.name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            f"dataset-{wanted.dataset.name}",
            own,
            namespace=wanted.namespace,
            # A Job that has failed stays as it is. The next `pulumi up` is to try again, for example when the archive
            # at the same address has been repaired: https://github.com/pulumi/pulumi-kubernetes/pull/1575
            annotations={"pulumi.com/replaceUnready": "true"},
        ),
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": wanted.dataset_minutes * 60,
            "podFailurePolicy": {
                # A pod that ends because its node is lost or drained doesn't count.
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "automountServiceAccountToken": False,
                    "serviceAccountName": TRAINER_SERVICE_ACCOUNT,
                    "restartPolicy": "Never",
                    "nodeSelector": SYSTEM_NODES,
                    "securityContext": NON_ROOT,
                    "initContainers": [fetch_code(wanted.images.fetch, code_uri)],
                    "containers": [_container(wanted)],
                    "volumes": [data_volume(CLAIM), empty_volume("code"), empty_volume("scratch")],
                },
            },
        },
    }


def _container(wanted: settings.Training) -> Manifest:
    return {
        "name": "dataset",
        "image": wanted.images.trainer,
        "command": command(wanted.dataset),
        "env": environment({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [DATA_MOUNT, CODE_MOUNT, SCRATCH_MOUNT],
        # Pulumi shows this message of a failed container, so its error says in the job's own words what is wrong.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


@dataclass(frozen=True)
class DatasetArgs:
    """The training settings, which name dataset and images, the code's address, the stack's name and its region."""

    training: settings.Training
    code_uri: Text
    stack_name: str
    region: str
    mounts: pulumi.ResourceOptions
    """Of what mounts the file system."""


class Dataset(pulumi.ComponentResource):
    """The job, for which Pulumi waits until it has succeeded; for a folder in S3, volume and claim."""

    def __init__(self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Dataset", name, None, opts)
        if args.training.dataset.mounted:
            self._mount(args)
        else:
            self._make(args)
        self.register_outputs({})

    def _mount(self, args: DatasetArgs) -> None:
        # Both are named after the folder. With another one the workers move to its claim before this one is deleted.
        namespace, dataset = args.training.namespace, args.training.dataset
        name = f"{args.stack_name}-{dataset.name}"
        volume = objects.register(
            dataset_volume_manifest(name, namespace, dataset, args.region), opts=pulumi.ResourceOptions(parent=self)
        )
        objects.register(
            claim_manifest(namespace, name, dataset.name, "ReadOnlyMany"),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[volume]),
        )

    def _make(self, args: DatasetArgs) -> None:
        minutes = f"{args.training.dataset_minutes + PULUMI_MARGIN_MINUTES}m"
        objects.register(
            job_manifest(args.training, args.code_uri),
            opts=pulumi.ResourceOptions.merge(
                args.mounts,
                pulumi.ResourceOptions(
                    parent=self, custom_timeouts=pulumi.CustomTimeouts(create=minutes, update=minutes)
                ),
            ),
        )
