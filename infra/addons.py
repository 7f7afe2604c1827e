"""Addons whose pods need a node: CoreDNS, the EFS CSI driver, the node monitoring agent.

They are created after the system nodes. Without a node their pods cannot run; EKS would report them as DEGRADED and
`pulumi up` would wait for 20 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.cluster import addon
from infra.identity import EFS_CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT


@dataclass(frozen=True)
class AddonsArgs:
    """The cluster, the addons' versions, and the role of the EFS CSI driver's controller."""

    cluster_name: str
    versions: Mapping[str, str]
    efs_csi_role_arn: pulumi.Input[str]


class Addons(pulumi.ComponentResource):
    """CoreDNS, the node monitoring agent, and the EFS CSI driver with its pod identity."""

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
        # The agent finds faults of GPUs, network and kernel. Without it node repair sees only what kubelet sees.
        # https://docs.aws.amazon.com/eks/latest/userguide/node-health.html
        for addon_name in ("coredns", "eks-node-monitoring-agent"):
            addon(args.cluster_name, addon_name, args.versions[addon_name], child)
        # EKS gives credentials only to pods that are created after the association.
        after = pulumi.ResourceOptions(parent=self, depends_on=[association])
        addon(args.cluster_name, "aws-efs-csi-driver", args.versions["aws-efs-csi-driver"], after)
        self.register_outputs({})
