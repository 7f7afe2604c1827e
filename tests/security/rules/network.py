"""Rules for security groups."""

from __future__ import annotations

from tests.security.changes import add, drop, put, unset
from tests.security.rules.rule import Finding, Rule, both, each, each_in, must
from tests.security.stack import Resource, Stack

GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
VPC = "aws:ec2/vpc:Vpc"
FLOW_LOG = "aws:ec2/flowLog:FlowLog"

GENERATED = ("Managed by Pulumi", "Managed by Terraform")
ANYWHERE = "0.0.0.0/0"
ALL_PROTOCOLS = "-1"


def _described(found: Resource) -> str | None:
    return must(found.get("description") and found.get("description") not in GENERATED, "no description")


def _all_out(found: Resource) -> bool:
    """Return whether a rule, inside a group or of its own, opens every port to every address."""
    addresses = {*(found.get("cidrBlocks") or ()), found.get("cidrIpv4")}
    return ANYWHERE in addresses and ALL_PROTOCOLS in (found.get("protocol"), found.get("ipProtocol"))


def _egress(stack: Stack) -> list[Finding]:
    inside = [
        (group, Resource(RULE, "", "", inputs=rule)) for group in stack.of(GROUP) for rule in group.get("egress") or ()
    ]
    alone = [(rule, rule) for rule in stack.of(EGRESS)]
    older = [(rule, rule) for rule in stack.of(RULE) if rule.get("type") == "egress"]
    return [Finding(owner.urn, "all ports out") for owner, rule in inside + alone + older if _all_out(rule)]


def _closed_default(stack: Stack, vpc: Resource) -> str | None:
    groups = stack.attached(DEFAULT_GROUP, "vpcId", vpc)
    closed = [group for group in groups if not group.get("ingress") and not group.get("egress")]
    return must(closed, "the default security group lets everything through")


def _logged(stack: Stack, vpc: Resource) -> str | None:
    return must(stack.attached(FLOW_LOG, "vpcId", vpc), "no flow logs")


OPEN = {"fromPort": 0, "toPort": 0, "protocol": ALL_PROTOCOLS, "cidrBlocks": [ANYWHERE]}

RULES = (
    Rule(
        "CKV_AWS_23",
        "security groups and their rules say what they are for",
        both(*(each(type_, _described) for type_ in (GROUP, INGRESS, EGRESS, RULE))),
        (unset(GROUP, "description"), unset(INGRESS, "description"), add(EGRESS, ipProtocol="tcp"), add(RULE)),
    ),
    Rule(
        "CKV_AWS_382",
        "no security group opens all ports out",
        _egress,
        (
            put(GROUP, "egress", [OPEN]),
            add(EGRESS, ipProtocol=ALL_PROTOCOLS, cidrIpv4=ANYWHERE),
            add(RULE, type="egress", **OPEN),
        ),
    ),
    Rule(
        "CKV2_AWS_12",
        "the default security group lets nothing through",
        each_in(VPC, _closed_default),
        (drop(DEFAULT_GROUP), put(DEFAULT_GROUP, "egress", [OPEN]), put(DEFAULT_GROUP, "ingress", [OPEN])),
    ),
    Rule(
        "CKV2_AWS_11",
        "the VPC has flow logs",
        each_in(VPC, _logged),
        (add(VPC),),
    ),
)
