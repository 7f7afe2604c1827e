"""Whether KMS keys can be used: that of the nodes' disks, and a customer's for the stack's data. Pure.

All disks are encrypted: with the key that `nodeDiskKeyArn` names, else with the account's default EBS key. AWS lets its
services use a key of AWS's by itself, and a customer's key only if they have been given it: instances with such a disk
end as soon as they start. The stack gives them the key that is named.
https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html
https://karpenter.sh/v1.14/troubleshooting/#node-terminates-before-ready-on-failed-encrypted-ebs-volume

All data is encrypted with the key that `dataKeyArn` names, else with one that the stack makes. EFS and EKS use it by
grants that they make with the rights of the identity that deploys:
https://docs.aws.amazon.com/efs/latest/ug/EFSKMS.html
https://docs.aws.amazon.com/eks/latest/userguide/enable-kms.html
"""

from __future__ import annotations

import settings
from infra.identity import AUTO_SCALING_ROLE
from infra.preflight.region import ENABLED, Key, Region

ALIAS = "alias/aws/ebs"
"""AWS's own key for EBS."""

DELETED_SOON = ("PendingDeletion", "PendingReplicaDeletion")
"""https://docs.aws.amazon.com/kms/latest/developerguide/key-state.html"""


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return why no node would start, or no data could be stored.

    A stack that exists has nodes with the default key, and data with its own key, so what is not certain is a warning.
    """
    found = [] if region.exists else _unread(stack, region)
    found += _unusable("dataKeyArn", region.data_key, region)
    if not stack.node_disk_key:
        return found + ([] if region.exists else _of_a_customer(region))
    found += _unusable("nodeDiskKeyArn", region.disk_key, region)
    if not region.auto_scaling_role:
        found.append(
            f"nodeDiskKeyArn = {stack.node_disk_key}: is granted to the role {AUTO_SCALING_ROLE}, which this account "
            "doesn't have yet; make it: aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com"
        )
    return found


def warnings(stack: settings.Settings, region: Region) -> list[str]:
    """Return what may keep nodes from starting, or data from being stored."""
    found, key = _unread(stack, region) if region.exists else [], region.disk_key
    if stack.node_disk_key or key is None:
        return found
    if key.customer is None:
        return [
            *found,
            f"the account's default EBS key in {region.name}, {key.arn}, could not be read. If it is a customer's, set "
            "nodeDiskKeyArn to it: without that no node may start. To have it checked, allow kms:DescribeKey",
        ]
    return found + (_of_a_customer(region) if region.exists else [])


def _unusable(name: str, key: Key | None, region: Region) -> list[str]:
    """Return why no service can encrypt with the key that a setting names."""
    if key is None:
        return []
    begin, of_it = f"{name} = {key.arn}:", f"--key-id {key.arn} --region {region.name}"
    if not key.state:
        return [f"{begin} there is no such key; correct it, or name another"]
    if key.customer is False:
        return [f"{begin} is a key of AWS's, which can't be given to other services; name one of your own"]
    if not key.symmetric:
        return [f"{begin} is no symmetric key for encryption; name one with the spec SYMMETRIC_DEFAULT"]
    if key.state in DELETED_SOON:
        keep = f"aws kms cancel-key-deletion {of_it} && aws kms enable-key {of_it}"
        return [
            f"{begin} is scheduled for deletion, and with it all that it encrypts; name another, or keep it: {keep}"
        ]
    if key.state != ENABLED:
        return [f"{begin} its state is {key.state}; enable it (aws kms enable-key {of_it}), or name another"]
    return []


def _unread(stack: settings.Settings, region: Region) -> list[str]:
    """Return that the one who deploys may not see the key of the data, which EFS and EKS ask for with these rights."""
    key = region.data_key
    if key is None or not key.state or key.customer is not None:
        return []
    return [
        f"dataKeyArn = {stack.data_key}: could not be read by the identity that deploys, and EFS and EKS use it with "
        "the rights of that identity; allow kms:DescribeKey and kms:CreateGrant by the key's policy, or by one of the "
        "identity's, as `python -m scripts.policy` prints it"
    ]


def _of_a_customer(region: Region) -> list[str]:
    key = region.disk_key
    if key is None or not key.customer:
        return []
    return [
        f"the account's default EBS key in {region.name}, {key.arn}, is a customer's, and EC2 Auto Scaling and "
        "Karpenter may not use it by themselves, so that no node would start; have the stack give it to them: pulumi "
        f"config set tidewater:nodeDiskKeyArn {key.arn}"
    ]
