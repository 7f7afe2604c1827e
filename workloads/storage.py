"""The shared file system as Kubernetes sees it: a volume on EFS through the CSI driver, and the claim for it."""

from __future__ import annotations

import pulumi

import settings
from contract import labels
from infra.outputs import ClusterOutputs
from workloads import objects
from workloads.manifests import Manifest, Text, metadata
from workloads.namespace import Namespace

CLAIM = "data"
CAPACITY = "1Ti"
"""Kubernetes wants a number; EFS grows as needed and takes no notice of it."""


def volume_manifest(name: str, namespace: str, volume_handle: Text) -> Manifest:
    """The volume, kept for the one claim."""
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
    """The claim that all pods mount."""
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


class Storage(pulumi.ComponentResource):
    """Volume and claim."""

    def __init__(self, stack: settings.Settings, cluster: ClusterOutputs, namespace: Namespace) -> None:
        place = stack.training.namespace
        super().__init__("tidewater:workloads:Storage", place, None, cluster.options(namespace))
        volume_name = f"{cluster.name}-{place}"
        handle = pulumi.Output.concat(cluster.file_system_id, "::", cluster.access_point_id)
        volume = objects.register(
            volume_manifest(volume_name, place, handle),
            # On destroy the mount targets must outlive the last mount.
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(cluster.storage_ready)),
        )
        objects.register(
            claim_manifest(place, volume_name), opts=pulumi.ResourceOptions(parent=self, depends_on=[volume])
        )
        self.register_outputs({})
