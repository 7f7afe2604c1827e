"""The dataset job: puts the data on the shared file system once, and verifies it.

It is idempotent: where the data is there already, it checks it against its manifest and is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

import settings
from contract import exit_codes, labels
from infra.outputs import TRAINER_SERVICE_ACCOUNT, ClusterOutputs
from workloads import objects
from workloads.manifests import (
    BUNDLE,
    CODE_MOUNT,
    CONFINED,
    DATA_DIRECTORY,
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


def directory(dataset: settings.Dataset) -> str:
    """Where in the pods the dataset lies."""
    return f"{DATA_DIRECTORY}/{dataset.name}"


def command(dataset: settings.Dataset) -> list[str]:
    """The trainer's command line that makes the dataset."""
    source = ["--name", dataset.name] if dataset.uri is None else ["--uri", dataset.uri]
    return ["python3", BUNDLE, "dataset", *source, "--out", directory(dataset)]


def job_manifest(wanted: settings.Training, code_uri: Text) -> Manifest:
    """The job."""
    own = labels.component(labels.COMPONENT_DATASET, instance=wanted.dataset.name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(f"dataset-{wanted.dataset.name}", own, namespace=wanted.namespace),
        "spec": {
            "backoffLimit": 6,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [exit_codes.USAGE]}},
                ]
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
    }


class Dataset(pulumi.ComponentResource):
    """The job; Pulumi waits until it has succeeded."""

    def __init__(
        self, stack: settings.Settings, cluster: ClusterOutputs, code_uri: Text, *, after: Sequence[pulumi.Resource]
    ) -> None:
        super().__init__("tidewater:workloads:Dataset", stack.training.dataset.name, None, cluster.options(*after))
        objects.register(
            job_manifest(stack.training, code_uri),
            # Fetching and unpacking an archive, or pulling the image, may take longer than Pulumi's ten minutes.
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m"),
                delete_before_replace=True,
            ),
        )
        self.register_outputs({})
