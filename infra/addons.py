"""Addons whose pods need a node: CoreDNS and the EFS CSI driver, after the system nodes.

Without a node to run on they would stay DEGRADED, and EKS would wait for them for 20 minutes.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.cluster import addon

EFS_CSI_NAMESPACE = "kube-system"
EFS_CSI_SERVICE_ACCOUNT = "efs-csi-controller-sa"


class Addons(pulumi.ComponentResource):
    """CoreDNS, and the EFS CSI driver with its pod identity."""

    def __init__(
        self, name: str, *, efs_csi_role_arn: pulumi.Input[str], nodes: pulumi.Resource, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("tidewater:infra:Addons", name, None, opts)
        identity = aws.eks.PodIdentityAssociation(
            f"{name}-efs-csi",
            cluster_name=name,
            namespace=EFS_CSI_NAMESPACE,
            service_account=EFS_CSI_SERVICE_ACCOUNT,
            role_arn=efs_csi_role_arn,
            tags={"Name": f"{name}-efs-csi"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[nodes]),
        )
        addon(name, "coredns", parent=self, depends_on=[nodes])
        addon(name, "aws-efs-csi-driver", parent=self, depends_on=[nodes, identity])
        self.register_outputs({})
