"""One customer-managed KMS key for all the stack's data: Kubernetes secrets, file system, bucket, logs.

The control plane's log group is here too, since the key's policy names it.

Node volumes use the account's EBS key. A customer-managed key would need a grant for the role of the Auto Scaling
service, which does not exist in a new account.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.account import Account


@dataclass(frozen=True)
class EncryptionArgs:
    """The account that owns the key."""

    account: Account


class Encryption(pulumi.ComponentResource):
    """The key, and an alias for people."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Encryption", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        region, log_group = args.account.region, control_plane_log_group_name(name)
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Data and logs of the stack {name}",
            enable_key_rotation=True,
            deletion_window_in_days=7,
            policy=pulumi.Output.all(args.account.id, args.account.partition).apply(
                lambda found: policies.to_json(policies.encryption_key(found[0], region, found[1], log_group))
            ),
            opts=child,
        )
        aws.kms.Alias(f"{name}-key", name=f"alias/{name}", target_key_id=key.key_id, opts=child)
        self.arn = key.arn
        self.register_outputs({"keyArn": key.arn})


def control_plane_log_group_name(cluster_name: str) -> str:
    """Return the name that EKS gives the log group of a cluster."""
    return f"/aws/eks/{cluster_name}/cluster"


def control_plane_log_group(
    cluster_name: str, *, key_arn: pulumi.Input[str], retention_days: int, opts: pulumi.ResourceOptions
) -> aws.cloudwatch.LogGroup:
    """Make the log group of one cluster, before the cluster: EKS would create one without retention and key."""
    return aws.cloudwatch.LogGroup(
        f"{cluster_name}-control-plane",
        name=control_plane_log_group_name(cluster_name),
        retention_in_days=retention_days,
        kms_key_id=key_arn,
        opts=opts,
    )
