"""The shared file system in Kubernetes: a volume on EFS through the CSI driver, and the claim for it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from contract import labels
from workloads import objects
from workloads.manifests import Manifest, Text, metadata

CLAIM = "data"
CAPACITY = "1Ti"
"""Kubernetes requires a number. EFS ignores it and grows as needed."""


def volume_manifest(name: str, namespace: str, volume_handle: Text) -> Manifest:
    """Return the volume, which is reserved for the one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}),
        "spec": {
            "capacity": {"storage": CAPACITY},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": volume_handle},
        },
    }


def claim_manifest(namespace: str, volume: str) -> Manifest:
    """Return the claim that all pods mount."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(CLAIM, {labels.NAME: labels.APPLICATION}, namespace=namespace),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": CAPACITY}},
        },
    }


@dataclass(frozen=True)
class StorageArgs:
    """Name of the volume, and the file system as the CSI driver names it."""

    volume: str
    volume_handle: Text


class Storage(pulumi.ComponentResource):
    """Volume and claim, for the namespace that the component is named after."""

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Storage", name, None, opts)
        volume = objects.register(
            volume_manifest(args.volume, name, args.volume_handle), opts=pulumi.ResourceOptions(parent=self)
        )
        objects.register(
            claim_manifest(name, args.volume), opts=pulumi.ResourceOptions(parent=self, depends_on=[volume])
        )
        self.register_outputs({})
