"""What the rules find and we accept: one line each, with the reason. A waiver that no finding needs is an error."""

from __future__ import annotations

from dataclasses import dataclass

from tests.security.rules import Finding


@dataclass(frozen=True)
class Waiver:
    """A rule, the end of a resource's URN, the stacks, and why."""

    rule: str
    resource: str
    stacks: tuple[str, ...]
    reason: str

    def covers(self, rule: str, finding: Finding) -> bool:
        """Return whether a finding of a rule is waived."""
        return self.rule == rule and self.resource in finding.urn


EVERY = ("local", "aws-dev", "aws")

WAIVERS = (
    Waiver(
        "CKV_AWS_39",
        "aws:eks/cluster:Cluster",
        EVERY,
        "publicAccessCidrs lets named addresses reach the API; without the key it is private",
    ),
    Waiver(
        "CKV_AWS_356",
        "aws:kms/key:Key",
        EVERY,
        "in a key's policy `*` means the key itself, https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-overview.html",
    ),
    Waiver(
        "eks_cluster_deletion_protection_enabled",
        "aws:eks/cluster:Cluster",
        ("local", "aws-dev"),
        "stacks to try things are deleted by `pulumi destroy` alone; `protect: true` is for production",
    ),
    Waiver(
        "CKV2_AWS_11",
        "aws:ec2/vpc:Vpc",
        EVERY,
        "AWS bills flow logs by the GB, and NetworkPolicies limit what pods reach; `vpcFlowLogs: 365` makes them",
    ),
    Waiver(
        "TW_RESTRICTED",
        "namespace-tidewater-devices",
        ("aws-dev", "aws"),
        "the GPUs' device plug-in needs privileges for CDI, DCGM exporter to see all GPUs; no pod of a user runs there",
    ),
)


def unwaived(stack: str, rule: str, findings: list[Finding]) -> list[Finding]:
    """Return the findings that no waiver covers."""
    own = [waiver for waiver in WAIVERS if stack in waiver.stacks]
    return [finding for finding in findings if not any(waiver.covers(rule, finding) for waiver in own)]
