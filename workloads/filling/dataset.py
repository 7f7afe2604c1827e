"""The dataset job: puts the data on the shared file system, and verifies it. A dataset in S3 has a volume instead.

It is idempotent: data that exists already is only checked against its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from tidewater.contract import labels
from workloads import objects
from workloads.filling import job
from workloads.manifests import BUNDLE, DATA_DIRECTORY, DATASET_DIRECTORY, Text
from workloads.storage import claim_manifest, dataset_volume_manifest


def directory(dataset: settings.Dataset) -> str:
    """Return the directory of the dataset in the pods."""
    if dataset.mounted:
        return DATASET_DIRECTORY
    return dataset.path or f"{DATA_DIRECTORY}/{dataset.name}"


def command(dataset: settings.Dataset) -> list[str]:
    """Return the trainer's command line that makes the dataset."""
    source = ["--name", dataset.name] if dataset.uri is None else ["--uri", dataset.uri]
    return ["python3", BUNDLE, "dataset", *source, "--out", directory(dataset)]


def filling(wanted: settings.Training, code_uri: Text) -> job.Filling:
    """Return what makes the dataset."""
    name = wanted.dataset.name
    own = labels.component(labels.COMPONENT_DATASET, instance=name)
    return job.Filling(f"dataset-{name}", own, command(wanted.dataset), code_uri, wanted.dataset_minutes)


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
    """The job, for which Pulumi waits until it has succeeded; of a folder in S3 volume and claim, on Lustre nothing."""

    def __init__(self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Dataset", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        if args.training.dataset.mounted:
            self._mount(args, child)
        elif not args.training.dataset.path:
            merged = pulumi.ResourceOptions.merge(args.mounts, child)
            job.register(args.training, filling(args.training, args.code_uri), opts=merged)
        self.register_outputs({})

    def _mount(self, args: DatasetArgs, child: pulumi.ResourceOptions) -> None:
        # Both are named after the folder. With another one the workers move to its claim before this one is deleted.
        namespace, dataset = args.training.namespace, args.training.dataset
        name = f"{args.stack_name}-{dataset.name}"
        volume = objects.register(dataset_volume_manifest(name, namespace, dataset, args.region), opts=child)
        objects.register(
            claim_manifest(namespace, name, dataset.name, "ReadOnlyMany"),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[volume]),
        )
