"""The dataset job: puts the data on the shared file system, and verifies it.

It is idempotent: data that exists already is only checked against its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from contract import exit_codes, labels
from infra.outputs import TRAINER_SERVICE_ACCOUNT
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
    """Return the directory of the dataset in the pods."""
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


@dataclass(frozen=True)
class DatasetArgs:
    """The training settings, which name dataset and images, and the code's address."""

    training: settings.Training
    code_uri: Text


class Dataset(pulumi.ComponentResource):
    """The job. Pulumi waits until it has succeeded."""

    def __init__(self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Dataset", name, None, opts)
        objects.register(
            job_manifest(args.training, args.code_uri),
            # To download and unpack an archive, or to pull the image, may take longer than Pulumi's ten minutes.
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m"),
                delete_before_replace=True,
            ),
        )
        self.register_outputs({})
