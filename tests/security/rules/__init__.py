"""The security rules, each by the id that checkov or Prowler gives it; those of our own begin with TW.

    RULES["CKV_AWS_37"].check(stack)      # [(urn, what is wrong), …]

A rule comes with changes that turn its setting off: the rule must report each of them.

rule              what a rule is
control_plane     the EKS control plane and its addons
nodes             launch templates, Karpenter's nodes, node groups, subnets
file_system       EFS
bucket            S3
identity          IAM and the policies of resources
network           security groups
encryption        KMS, logs, queues, image repositories
inside            what is in the cluster: namespaces and their policies
"""

from __future__ import annotations

from tests.security.rules import (
    bucket,
    control_plane,
    encryption,
    file_system,
    identity,
    inside,
    network,
    nodes,
)
from tests.security.rules.rule import Finding, Rule

__all__ = ["RULES", "Finding", "Rule"]

_ALL = [
    *control_plane.RULES,
    *nodes.RULES,
    *file_system.RULES,
    *bucket.RULES,
    *identity.RULES,
    *network.RULES,
    *encryption.RULES,
    *inside.RULES,
]
RULES: dict[str, Rule] = {each.id: each for each in _ALL}
assert len(RULES) == len(_ALL), "two rules have the same id"
