"""Whether the KMS key of the nodes' disks can be used. Pure.

All disks are encrypted: with the key that `nodeDiskKeyArn` names, else with the account's default EBS key. AWS lets its
services use a key of AWS's by itself, and a customer's key only if they have been given it: instances with such a disk
end as soon as they start. The stack gives them the key that is named.
https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html
https://karpenter.sh/v1.14/troubleshooting/#node-terminates-before-ready-on-failed-encrypted-ebs-volume
"""

from __future__ import annotations

import settings
from infra.identity import AUTO_SCALING_ROLE
from infra.preflight.region import Region

ALIAS = "alias/aws/ebs"
"""AWS's own key for EBS."""


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return why no node would start. A stack that exists has nodes with the default key, so that is a warning."""
    if not stack.node_disk_key:
        return [] if region.exists else _of_a_customer(region)
    found, key = [], region.disk_key
    if key is not None and not key.usable:
        found.append(
            f"nodeDiskKeyArn = {key.arn}: is disabled, or no symmetric key for encryption; enable it, or name another"
        )
    if not region.auto_scaling_role:
        found.append(
            f"nodeDiskKeyArn = {stack.node_disk_key}: is granted to the role {AUTO_SCALING_ROLE}, which this account "
            "doesn't have yet; make it: aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com"
        )
    return found


def warnings(stack: settings.Settings, region: Region) -> list[str]:
    """Return what may keep nodes from starting."""
    key = region.disk_key
    if stack.node_disk_key or key is None:
        return []
    if key.customer is None:
        return [
            f"the account's default EBS key in {region.name}, {key.arn}, could not be read. If it is a customer's, set "
            "nodeDiskKeyArn to it: without that no node may start. To have it checked, allow kms:DescribeKey"
        ]
    return _of_a_customer(region) if region.exists else []


def _of_a_customer(region: Region) -> list[str]:
    key = region.disk_key
    if key is None or not key.customer:
        return []
    return [
        f"the account's default EBS key in {region.name}, {key.arn}, is a customer's, and EC2 Auto Scaling and "
        "Karpenter may not use it by themselves, so that no node would start; have the stack give it to them: pulumi "
        f"config set tidewater:nodeDiskKeyArn {key.arn}"
    ]
