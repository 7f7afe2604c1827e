"""Addons whose pods need a node: CoreDNS and the EFS CSI driver. They are created after the system nodes.

Without a node their pods cannot run; EKS would report them as DEGRADED and `pulumi up` would wait for 20 minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.cluster import addon
from infra.identity import EFS_CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT


@dataclass(frozen=True)
class AddonsArgs:
    """The cluster, and the role of the EFS CSI driver's controller."""

    cluster_name: str
    efs_csi_role_arn: pulumi.Input[str]


class Addons(pulumi.ComponentResource):
    """CoreDNS, and the EFS CSI driver with its pod identity."""

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Addons", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        association = aws.eks.PodIdentityAssociation(
            f"{name}-efs-csi",
            cluster_name=args.cluster_name,
            namespace=EFS_CSI_NAMESPACE,
            service_account=EFS_CSI_SERVICE_ACCOUNT,
            role_arn=args.efs_csi_role_arn,
            tags={"Name": f"{name}-efs-csi"},
            opts=child,
        )
        addon(args.cluster_name, "coredns", child)
        # EKS gives credentials only to pods that are created after the association.
        addon(args.cluster_name, "aws-efs-csi-driver", pulumi.ResourceOptions(parent=self, depends_on=[association]))
        self.register_outputs({})
