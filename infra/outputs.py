"""What the workloads get to know of the infrastructure: the one type that passes between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

import settings
from infra.account import Account
from infra.bucket import Bucket, checkpoints_folder
from infra.identity import TRAINER_SERVICE_ACCOUNT
from infra.node_groups import Base
from infra.shared_storage import POSIX_ID, SharedStorage

__all__ = ["POSIX_ID", "TRAINER_SERVICE_ACCOUNT", "ClusterOutputs", "checkpoints_folder", "cluster_outputs"]


@dataclass(frozen=True)
class ClusterOutputs:
    """A cluster that pods can run on.

    Attributes:
        provider: every object goes through it; it stands on nodes and access entries, so that on destroy the
            cluster can be reached until the last object is gone.
        storage_ready: what must stand before a pod can mount the file system.
        bucket_ready: what must stand before something may be put into the bucket.
    """

    name: str
    account: Account
    provider: kubernetes.Provider
    kubeconfig: pulumi.Input[str]
    file_system_id: pulumi.Input[str]
    access_point_id: pulumi.Input[str]
    storage_ready: Sequence[pulumi.Resource]
    bucket: pulumi.Input[str]
    bucket_ready: Sequence[pulumi.Resource]
    trainer_role_arn: pulumi.Input[str]

    def options(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options for components on the cluster, which are made after `after`."""
        return pulumi.ResourceOptions(providers=[self.provider, self.account.provider], depends_on=list(after))


def cluster_outputs(
    stack: settings.Settings,
    base: Base,
    files: SharedStorage,
    bucket: Bucket,
    *,
    nodes: Sequence[pulumi.Resource],
) -> ClusterOutputs:
    """The cluster with `nodes` in it, behind the one provider of all Kubernetes objects."""
    provider = kubernetes.Provider(
        stack.name,
        kubeconfig=base.cluster.kubeconfig,
        # A kubeconfig that changes (a new certificate, another profile) must not replace every object.
        cluster_identifier=stack.name,
        enable_server_side_apply=True,
        # Whatever somebody changed with kubectl is ours again with the next `up`, instead of a conflict.
        enable_patch_force=True,
        # An `up` that was killed may have made objects that it had no time to record; the next one takes them over.
        upsert_existing_objects=True,
        opts=pulumi.ResourceOptions(depends_on=[*base.cluster.ready, *nodes]),
    )
    return ClusterOutputs(
        name=stack.name,
        account=base.account,
        provider=provider,
        kubeconfig=base.cluster.kubeconfig,
        file_system_id=files.file_system_id,
        access_point_id=files.access_point_id,
        storage_ready=files.ready,
        bucket=bucket.name,
        bucket_ready=bucket.ready,
        trainer_role_arn=base.identity.trainer_role_arn,
    )
