"""Addons whose pods need a node: CoreDNS and the EFS CSI driver, after the system nodes.

Without a node to run on they would stay DEGRADED, and EKS would wait for them for 20 minutes.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account
from infra.cluster import addon
from infra.identity import EFS_CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT, Identity
from infra.node_groups import NodeGroup


class Addons(pulumi.ComponentResource):
    """CoreDNS, and the EFS CSI driver with its pod identity."""

    ready: list[pulumi.Resource]

    def __init__(self, stack: settings.Settings, account: Account, identity: Identity, nodes: NodeGroup) -> None:
        name = stack.name
        super().__init__("tidewater:infra:Addons", name, None, account.options)
        association = aws.eks.PodIdentityAssociation(
            f"{name}-efs-csi",
            cluster_name=name,
            namespace=EFS_CSI_NAMESPACE,
            service_account=EFS_CSI_SERVICE_ACCOUNT,
            role_arn=identity.efs_csi_role_arn,
            tags={"Name": f"{name}-efs-csi"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[nodes]),
        )
        self.ready = [
            addon(name, "coredns", parent=self, depends_on=[nodes]),
            addon(name, "aws-efs-csi-driver", parent=self, depends_on=[nodes, association]),
        ]
        self.register_outputs({})
