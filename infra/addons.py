"""Addons with pods that need a node: CoreDNS, the CSI drivers of EFS, S3 and Lustre, the node monitoring agent.

They are created after the system nodes. Without a node their pods cannot run; EKS would report them as DEGRADED and
`pulumi up` would wait for 20 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.cluster import addon
from infra.policies.roles import CSI_NAMESPACE, EFS_CSI_SERVICE_ACCOUNT, S3_CSI_SERVICE_ACCOUNT
from settings import versions
from tidewater.contract import labels


def agent_configuration(*, gpus: bool, pools: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the node monitoring agent's values that differ from its own.

    The agent tolerates every taint, and its DaemonSet `dcgm-server`, through which it sees GPUs, tolerates none. That
    also runs on a list of instance types only, which lacks those that came out after it. Without it the agent says that
    GPUs are not ready, and EKS repairs the node, again and again.
    https://github.com/aws/containers-roadmap/issues/2567
    https://github.com/aws/eks-node-monitoring-agent (charts/eks-node-monitoring-agent/values.yaml)
    """
    values: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
    if gpus or pools:
        values |= {"affinity": labels.either(workers=gpus, pools=pools)}
    return {"dcgmAgent": values}


@dataclass(frozen=True)
class AddonsArgs:
    """The cluster, the addons' versions, the roles of the CSI drivers (S3's only if a dataset is mounted), whether the
    stack's own worker nodes have GPUs, which pools have some, and whether there is a file system of Lustre."""

    cluster_name: str
    versions: Mapping[str, str]
    efs_csi_role_arn: pulumi.Input[str]
    s3_csi_role_arn: pulumi.Input[str] | None
    gpus: bool
    gpu_pools: Sequence[str] = ()
    lustre: bool = False


class Addons(pulumi.ComponentResource):
    """CoreDNS, the node monitoring agent, and the CSI drivers with their pod identities."""

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Addons", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self._cluster = args.cluster_name
        # The agent finds faults of GPUs, network and kernel. Without it node repair sees only what kubelet sees.
        # https://docs.aws.amazon.com/eks/latest/userguide/node-health.html
        agent = "eks-node-monitoring-agent"
        addon(args.cluster_name, "coredns", args.versions["coredns"], child)
        configuration = agent_configuration(gpus=args.gpus, pools=args.gpu_pools)
        addon(args.cluster_name, agent, args.versions[agent], child, configuration)
        efs = self._identity(f"{name}-efs-csi", EFS_CSI_SERVICE_ACCOUNT, args.efs_csi_role_arn)
        addon(args.cluster_name, "aws-efs-csi-driver", args.versions["aws-efs-csi-driver"], efs)
        if args.s3_csi_role_arn is not None:
            s3 = self._identity(f"{name}-s3-csi", S3_CSI_SERVICE_ACCOUNT, args.s3_csi_role_arn)
            addon(args.cluster_name, "aws-mountpoint-s3-csi-driver", versions.MOUNTPOINT, s3)
        if args.lustre:
            # Only its controller calls AWS, to make and delete file systems. The stack's is there, so it has no role.
            # https://github.com/kubernetes-sigs/aws-fsx-csi-driver (pkg/driver/node.go, pkg/driver/controller.go)
            addon(args.cluster_name, "aws-fsx-csi-driver", None, child)
        self.register_outputs({})

    def _identity(self, name: str, service_account: str, role_arn: pulumi.Input[str]) -> pulumi.ResourceOptions:
        """Give a driver its role; return the options of its addon.

        EKS gives credentials only to pods that are created after the association.
        """
        association = aws.eks.PodIdentityAssociation(
            name,
            cluster_name=self._cluster,
            namespace=CSI_NAMESPACE,
            service_account=service_account,
            role_arn=role_arn,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self),
        )
        return pulumi.ResourceOptions(parent=self, depends_on=[association])
