"""What the workloads get to know of the infrastructure: the one type that passes between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

POSIX_ID = 1000
"""User and group that own everything on the shared file system, and that the pods run as."""


@dataclass(frozen=True)
class ClusterOutputs:
    """A cluster that pods can run on.

    Attributes:
        provider: every object goes through it; it stands on nodes and access entries, so that on destroy the
            cluster can be reached until the last object is gone.
        storage_ready: what must stand before a pod can mount the file system.
    """

    name: str
    provider: kubernetes.Provider
    file_system_id: pulumi.Input[str]
    access_point_id: pulumi.Input[str]
    storage_ready: Sequence[pulumi.Resource]
    bucket: pulumi.Input[str]
    trainer_role_arn: pulumi.Input[str]


def kubernetes_provider(
    name: str, kubeconfig: pulumi.Input[str], depends_on: Sequence[pulumi.Resource]
) -> kubernetes.Provider:
    """The one provider of all Kubernetes objects."""
    return kubernetes.Provider(
        name,
        kubeconfig=kubeconfig,
        # A kubeconfig that changes (a new certificate, another profile) must not replace every object.
        cluster_identifier=name,
        enable_server_side_apply=True,
        opts=pulumi.ResourceOptions(depends_on=list(depends_on)),
    )
