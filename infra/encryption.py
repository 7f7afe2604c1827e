"""One customer-managed key for everything the stack keeps: Kubernetes secrets, the file system, the bucket, logs.

Node volumes use the account's EBS key: a key of ours would need a grant for the Auto Scaling service's own role,
which new accounts don't have yet.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.logs import control_plane_log_group_name


class Encryption(pulumi.ComponentResource):
    """The key and an alias by which people find it."""

    key_arn: pulumi.Output[str]

    def __init__(self, stack: settings.Settings, account: Account) -> None:
        name, log_group = stack.name, control_plane_log_group_name(stack.name)
        super().__init__("tidewater:infra:Encryption", name, None, account.options)
        child = pulumi.ResourceOptions(parent=self)
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Data and logs of the stack {name}",
            enable_key_rotation=True,
            deletion_window_in_days=7,
            policy=pulumi.Output.all(account.id, account.partition).apply(
                lambda found: policies.to_json(policies.encryption_key(found[0], stack.region, found[1], log_group))
            ),
            opts=child,
        )
        aws.kms.Alias(f"{name}-key", name=f"alias/{name}", target_key_id=key.key_id, opts=child)
        self.key_arn = key.arn
        self.register_outputs({"keyArn": key.arn})
