"""Every resource type that the stand-in covers, by token."""

from __future__ import annotations

from localcloud.standins.aws.entry import Entry
from localcloud.standins.aws.resources import (
    ec2_gateways,
    ec2_network,
    ec2_security,
    ec2_templates,
    ecr,
    efs,
    eks,
    eks_access,
    iam,
    kms_logs,
    s3,
    s3_objects,
    sqs_events,
)

_MODULES = (
    ec2_gateways,
    ec2_network,
    ec2_security,
    ec2_templates,
    ecr,
    efs,
    eks,
    eks_access,
    iam,
    kms_logs,
    s3,
    s3_objects,
    sqs_events,
)

ENTRIES: dict[str, Entry] = {entry.token: entry for module in _MODULES for entry in module.ENTRIES}
