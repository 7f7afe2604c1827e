"""One customer-managed KMS key for all the stack's data: Kubernetes secrets, file system, bucket, logs.

It is the stack's, or an existing one. The name of the control plane's log group is here too, since the policy of the
stack's key has it.

Node volumes use the account's EBS key. A customer-managed key would need a grant for the role of the Auto Scaling
service, which does not exist in a new account.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

# See `infra.preflight.lookup`: the program waits for the answer, since all that the key encrypts is registered next.
from pulumi.runtime.sync_await import _sync_await

import settings
from infra import policies
from infra.account import Account
from infra.policies.roles import flow_log_group_name
from infra.preflight.place import first_value


@dataclass(frozen=True)
class EncryptionArgs:
    """The account that owns the key; whether it encrypts the logs of a control plane, and flow logs of the VPC.

    `existing` is the ARN of a key that was there before, with its owner's policy; empty if the stack makes one.
    """

    account: Account
    control_plane_logs: bool
    flow_logs: bool
    existing: str = ""


class Encryption(pulumi.ComponentResource):
    """The key, and an alias for people. Of an existing key nothing is made or changed."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Encryption", name, None, opts)
        self.arn = pulumi.Output.from_input(args.existing) if args.existing else self._make(name, args)
        self.register_outputs({"keyArn": self.arn})

    def _make(self, name: str, args: EncryptionArgs) -> pulumi.Output[str]:
        child = pulumi.ResourceOptions(parent=self)
        region = args.account.region
        log_groups = [control_plane_log_group_name(name)] if args.control_plane_logs else []
        log_groups += [flow_log_group_name(name)] if args.flow_logs else []
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Data and logs of the stack {name}",
            enable_key_rotation=True,
            deletion_window_in_days=7,
            policy=pulumi.Output.all(args.account.id, args.account.partition).apply(
                lambda found: policies.to_json(policies.encryption_key(found[0], region, found[1], log_groups))
            ),
            opts=child,
        )
        aws.kms.Alias(f"{name}-key", name=f"alias/{name}", target_key_id=key.key_id, opts=child)
        recorded = first_value(f"{name}-key", key.arn, self)
        _sync_await(refuse_another(name, region, key.arn, recorded))
        return key.arn


async def refuse_another(name: str, region: str, arn: pulumi.Output[str], recorded: pulumi.Output[str]) -> None:
    """Refuse to make a second key: everything that the first one encrypts would be replaced.

    Raises:
        settings.ConfigurationError: the state lacks the key that an earlier update has recorded.
    """
    before, now = await recorded.future(), await arn.future()
    if before is None or before == now:
        return
    if now is not None:
        raise settings.ConfigurationError(
            [
                f"the stack's data is encrypted with the KMS key {before}, and its state has another one, {now}, which "
                "an update without a preview has made; import the state from before it: `pulumi stack import --file`"
            ]
        )
    key, where = before.rpartition("/")[2], f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::"
    commands = [
        f"aws kms cancel-key-deletion --key-id {key} --region {region}",
        f"aws kms enable-key --key-id {key} --region {region}",
        f"pulumi import aws:kms/key:Key {name}-key {key} --protect=false --generate-code=false "
        f"--parent encryption={where}tidewater:infra:Encryption::{name} "
        f"--provider aws={where}pulumi:providers:aws::{name}",
    ]
    raise settings.ConfigurationError(
        [
            f"the state lacks the stack's KMS key {before}, so another one would be made, and the cluster and the file "
            "system replaced. A key that is scheduled for deletion leaves the state by a refresh. To keep it and all "
            "data:" + "".join(f"\n    {command}" for command in commands)
        ]
    )


def control_plane_log_group_name(cluster_name: str) -> str:
    """Return the name that EKS gives the log group of a cluster."""
    return f"/aws/eks/{cluster_name}/cluster"


def log_group(
    resource: str, name: str, *, key_arn: pulumi.Input[str], retention_days: int, opts: pulumi.ResourceOptions
) -> aws.cloudwatch.LogGroup:
    """Make a log group before the service that writes to it: it would create one without retention and key."""
    return aws.cloudwatch.LogGroup(
        resource,
        name=name,
        retention_in_days=retention_days,
        kms_key_id=key_arn,
        opts=opts,
    )
