"""Volumes in Kubernetes, and the claims for them: the shared file system on EFS, one on Lustre, a dataset in S3.

And which of them a job's checkpoints go to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import POSIX_ID, checkpoints_folder
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import DATA_DIRECTORY, Manifest, Text, metadata

CLAIM, LUSTRE_CLAIM = "data", "lustre"
CAPACITY = "1Ti"
"""Kubernetes requires a number. EFS ignores it and grows as needed; the drivers of S3 and Lustre ignore it too."""


def checkpoint_places(wanted: settings.Training, bucket: str) -> str:
    """Return the trainer's --checkpoints: a directory, an `s3://` address, or both with a comma between them."""
    kept = wanted.checkpoints
    efs = [f"{DATA_DIRECTORY}/checkpoints/{wanted.job}"] if kept.efs else []
    lustre = [f"{kept.folder}/{wanted.job}"] if kept.folder else []
    s3 = [f"s3://{bucket}/{checkpoints_folder(wanted.job)}"] if kept.s3 else []
    return ",".join(efs + lustre + s3)


def volume_manifest(name: str, namespace: str, volume_handle: Text, *, iam: bool = False) -> Manifest:
    """Return the volume, which is reserved for the one claim.

    With `iam` the driver mounts it with the role of its node; it always uses TLS.
    https://github.com/kubernetes-sigs/aws-efs-csi-driver/blob/master/docs/README.md (encryption in transit)
    """
    csi = {"driver": "efs.csi.aws.com", "volumeHandle": volume_handle}
    return _volume_manifest(name, (namespace, CLAIM), csi, ["iam"] if iam else [])


def lustre_volume_manifest(name: str, namespace: str, lustre: settings.Lustre, region: str) -> Manifest:
    """Return the volume of a whole file system of FSx for Lustre, which is reserved for the claim `LUSTRE_CLAIM`.

    https://github.com/kubernetes-sigs/aws-fsx-csi-driver/blob/master/examples/kubernetes/static_provisioning/README.md
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html (flock, the DNS name)
    """
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    at = {"dnsname": f"{lustre.id}.fsx.{region}.{domain}", "mountname": lustre.mount_name}
    csi = {"driver": "fsx.csi.aws.com", "volumeHandle": lustre.id, "volumeAttributes": at}
    return _volume_manifest(name, (namespace, LUSTRE_CLAIM), csi, ["flock"])


def dataset_volume_manifest(name: str, namespace: str, dataset: settings.Dataset, region: str) -> Manifest:
    """Return the volume of a folder in S3, which is reserved for the claim that is named after the dataset.

    The driver looks for the region in the instance's metadata, which pods don't reach on these nodes, unless the
    volume names it. Other users than the one who mounts, such as the workers', may read only with `allow-other`.
    https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md (static provisioning)
    """
    bucket, prefix = dataset.folder
    owner = [f"uid={POSIX_ID}", f"gid={POSIX_ID}"]
    options = ["read-only", "allow-other", *owner, f"region {region}", f"prefix {prefix}"]
    csi = {"driver": "s3.csi.aws.com", "volumeHandle": name, "volumeAttributes": {"bucketName": bucket}}
    return _volume_manifest(name, (namespace, dataset.name), csi, options, "ReadOnlyMany")


def _volume_manifest(
    name: str, claim: tuple[str, str], csi: Manifest, options: Sequence[str], mode: str = "ReadWriteMany"
) -> Manifest:
    """Return a volume that stays when its claim, given by namespace and name, is gone."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}),
        "spec": {
            "capacity": {"storage": CAPACITY},
            "volumeMode": "Filesystem",
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": claim[0], "name": claim[1]},
            **({"mountOptions": list(options)} if options else {}),
            "csi": csi,
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
    volume: pulumi.CustomResource, namespace: str, name: str, opts: pulumi.ResourceOptions, claim: str = CLAIM
) -> pulumi.CustomResource:
    """Make the claim for the volume of this name."""
    own = pulumi.ResourceOptions(depends_on=[volume], replace_on_changes=["spec"])
    manifest = claim_manifest(namespace, volume.id.apply(lambda _: name), claim)
    return objects.register(manifest, opts=pulumi.ResourceOptions.merge(opts, own))


def mounts_of(volume: pulumi.CustomResource, claim: pulumi.CustomResource) -> pulumi.ResourceOptions:
    """Return the options of what makes pods that mount it, see `Storage`."""
    return pulumi.ResourceOptions(depends_on=[claim], replace_with=[volume])


@dataclass(frozen=True)
class StorageArgs:
    """The manifest of the volume, which names the claim and its namespace."""

    volume: Manifest


class Storage(pulumi.ComponentResource):
    """Volume and claim.

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
        self._manifest = args.volume
        self.volume = objects.register(args.volume, opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

    def claim(self, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
        """Make the claim in the namespace; return the options of what makes pods that mount it."""
        own = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=self))
        name, for_ = self._manifest["metadata"]["name"], self._manifest["spec"]["claimRef"]
        return mounts_of(self.volume, claim_of(self.volume, for_["namespace"], name, own, for_["name"]))
