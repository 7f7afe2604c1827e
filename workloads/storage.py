"""Volumes in Kubernetes, and the claims for them: the shared file system on EFS, and a dataset that stays in S3."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import POSIX_ID
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import Manifest, Text, metadata

CLAIM = "data"
CAPACITY = "1Ti"
"""Kubernetes requires a number. EFS ignores it and grows as needed; S3's driver ignores it too."""


def volume_manifest(name: str, namespace: str, volume_handle: Text, *, iam: bool = False) -> Manifest:
    """Return the volume, which is reserved for the one claim.

    With `iam` the driver mounts it with the role of its node; it always uses TLS.
    https://github.com/kubernetes-sigs/aws-efs-csi-driver/blob/master/docs/README.md (encryption in transit)
    """
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
            **({"mountOptions": ["iam"]} if iam else {}),
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": volume_handle},
        },
    }


def dataset_volume_manifest(name: str, namespace: str, dataset: settings.Dataset, region: str) -> Manifest:
    """Return the volume of a folder in S3, which is reserved for the claim that is named after the dataset.

    The driver looks for the region in the instance's metadata, which pods don't reach on these nodes, unless the
    volume names it. Other users than the one who mounts, such as the workers', may read only with `allow-other`.
    https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md (static provisioning)
    """
    bucket, prefix = dataset.folder
    owner = [f"uid={POSIX_ID}", f"gid={POSIX_ID}"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}),
        "spec": {
            "capacity": {"storage": CAPACITY},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace, "name": dataset.name},
            "mountOptions": ["read-only", "allow-other", *owner, f"region {region}", f"prefix {prefix}"],
            "csi": {"driver": "s3.csi.aws.com", "volumeHandle": name, "volumeAttributes": {"bucketName": bucket}},
        },
    }


def claim_manifest(namespace: str, volume: Text, name: str = CLAIM, mode: str = "ReadWriteMany") -> Manifest:
    """Return the claim for a volume. Kubernetes deletes a claim when no pod mounts it any more."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}, namespace=namespace),
        "spec": {
            "accessModes": [mode],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": CAPACITY}},
        },
    }


def claim_of(
    volume: pulumi.CustomResource, namespace: str, name: str, opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Make the claim for the volume of this name."""
    own = pulumi.ResourceOptions(depends_on=[volume], replace_on_changes=["spec"])
    manifest = claim_manifest(namespace, volume.id.apply(lambda _: name))
    return objects.register(manifest, opts=pulumi.ResourceOptions.merge(opts, own))


def mounts_of(volume: pulumi.CustomResource, claim: pulumi.CustomResource) -> pulumi.ResourceOptions:
    """Return the options of what makes pods that mount it, see `Storage`."""
    return pulumi.ResourceOptions(depends_on=[claim], replace_with=[volume])


@dataclass(frozen=True)
class StorageArgs:
    """Name of the volume, the file system as the CSI driver names it, and whether it is mounted with a role."""

    volume: str
    volume_handle: Text
    iam: bool = False


class Storage(pulumi.ComponentResource):
    """Volume and claim, for the namespace that the component is named after.

    A volume can't get another file system or access point. Kubernetes deletes a volume when its claim is gone, and a
    claim when no pod mounts it. So with the volume its claim is replaced, and what makes pods that mount it. The engine
    deletes what has `replace_with` first, in any order; then what a property is to be replaced for, here the claim.
    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection
    https://www.pulumi.com/docs/iac/concepts/resources/options/replacewith/

    People's pods mount the claim too, and go with the namespace. So it is the volume, then the namespace, which depends
    on it, then the claim: in the other order a destroy deletes the namespace, with the claim in it, before the volume.
    """

    volume: pulumi.CustomResource

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Storage", name, None, opts)
        self._namespace, self._volume_name = name, args.volume
        self.volume = objects.register(
            volume_manifest(args.volume, name, args.volume_handle, iam=args.iam),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    def claim(self, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        """Make the claim in the namespace; return the options of what makes pods that mount it."""
        own = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=self))
        return mounts_of(self.volume, claim_of(self.volume, self._namespace, self._volume_name, own))
