"""The control plane's log group. It is created before the cluster, or EKS creates one without retention and key."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws


def control_plane_log_group_name(cluster_name: str) -> str:
    """Return the name that EKS gives the log group of a cluster."""
    return f"/aws/eks/{cluster_name}/cluster"


def control_plane_log_group(
    cluster_name: str, *, key_arn: pulumi.Input[str], retention_days: int, opts: pulumi.ResourceOptions
) -> aws.cloudwatch.LogGroup:
    """Make the log group of one cluster."""
    return aws.cloudwatch.LogGroup(
        f"{cluster_name}-control-plane",
        name=control_plane_log_group_name(cluster_name),
        retention_in_days=retention_days,
        kms_key_id=key_arn,
        opts=opts,
    )
