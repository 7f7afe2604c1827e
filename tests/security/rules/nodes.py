"""Rules for nodes, those of node groups and those that Karpenter brings, and for their subnets."""

from __future__ import annotations

from tests.security.changes import into_public_subnet, put, unset
from tests.security.rules.rule import Rule, both, each, each_in, must
from tests.security.stack import Resource, Stack

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:eks/nodeGroup:NodeGroup"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
SUBNET = "aws:ec2/subnet:Subnet"

TOKENS = "metadataOptions.httpTokens"
HOPS = "metadataOptions.httpPutResponseHopLimit"


def _true(value: object) -> bool:
    return str(value).lower() == "true"


def _has_template(group: Resource) -> str | None:
    return must(group.get("launchTemplate.id"), "no launch template: EKS's own allows two hops")


def _encrypted(devices: object) -> str | None:
    found = devices if isinstance(devices, list) else []
    plain = [device for device in found if not _true(device["ebs"].get("encrypted"))]
    return must(found and not plain, "a disk is not encrypted, or none is named")


def _interfaces(template: Resource) -> str | None:
    found = [each.get("associatePublicIpAddress") for each in template.get("networkInterfaces") or ()]
    return must(not any(map(_true, found)), "public addresses")


def _group_is_private(stack: Stack, group: Resource) -> str | None:
    public = stack.public_subnets() & set(group.get("subnetIds") or ())
    return must(group.get("subnetIds") and not public, "nodes in public subnets")


def _class_is_private(stack: Stack, found: Resource) -> str | None:
    named = {term.get("id") for term in found.get("spec.subnetSelectorTerms") or ()}
    private = None not in named and not named & stack.public_subnets()
    return must(private and not found.get("spec.associatePublicIPAddress"), "nodes with public addresses")


def _remote_access(group: Resource) -> str | None:
    access = group.get("remoteAccess")
    return must(not access or access.get("sourceSecurityGroupIds"), "SSH is open to every address")


def _no_public_address(subnet: Resource) -> str | None:
    return must(not subnet.get("mapPublicIpOnLaunch"), "what starts here gets a public address")


IMDS_V1 = "the metadata service answers without a token"
TWO_HOPS = "pods reach the node's metadata service"

RULES = (
    Rule(
        "CKV_AWS_79",
        "the metadata service requires tokens (IMDSv2)",
        both(
            each(TEMPLATE, lambda found: must(found.get(TOKENS) == "required", IMDS_V1)),
            each(NODE_CLASS, lambda found: must(found.get(f"spec.{TOKENS}") == "required", IMDS_V1)),
            each(GROUP, _has_template),
        ),
        (
            put(TEMPLATE, TOKENS, "optional"),
            unset(TEMPLATE, "metadataOptions"),
            put(NODE_CLASS, f"spec.{TOKENS}", "optional"),
            unset(GROUP, "launchTemplate"),
        ),
    ),
    Rule(
        "CKV_AWS_341",
        "pods don't reach the node's metadata service",
        both(
            each(TEMPLATE, lambda found: must(found.get(HOPS) == 1, TWO_HOPS)),
            each(NODE_CLASS, lambda found: must(found.get(f"spec.{HOPS}") == 1, TWO_HOPS)),
        ),
        (put(TEMPLATE, HOPS, 2), unset(TEMPLATE, HOPS), put(NODE_CLASS, f"spec.{HOPS}", 2)),
    ),
    Rule(
        "CKV_AWS_88",
        "no node has a public address",
        both(each(TEMPLATE, _interfaces), each_in(GROUP, _group_is_private), each_in(NODE_CLASS, _class_is_private)),
        (
            put(TEMPLATE, "networkInterfaces", [{"associatePublicIpAddress": "true"}]),
            into_public_subnet(GROUP, "subnetIds", lambda subnet: [subnet]),
            into_public_subnet(NODE_CLASS, "spec.subnetSelectorTerms", lambda subnet: [{"id": subnet}]),
            put(NODE_CLASS, "spec.associatePublicIPAddress", True),
        ),
    ),
    Rule(
        "CKV_AWS_130",
        "no subnet gives public addresses",
        each(SUBNET, _no_public_address),
        (put(SUBNET, "mapPublicIpOnLaunch", True),),
    ),
    Rule(
        "CKV_AWS_100",
        "SSH to the nodes is not open to every address",
        each(GROUP, _remote_access),
        (put(GROUP, "remoteAccess", {"ec2SshKey": "key"}),),
    ),
    Rule(
        "CKV_AWS_8",
        "the nodes' disks are encrypted",
        both(
            each(TEMPLATE, lambda found: _encrypted(found.get("blockDeviceMappings"))),
            each(NODE_CLASS, lambda found: _encrypted(found.get("spec.blockDeviceMappings"))),
        ),
        (
            put(TEMPLATE, "blockDeviceMappings.0.ebs.encrypted", "false"),
            unset(TEMPLATE, "blockDeviceMappings"),
            put(NODE_CLASS, "spec.blockDeviceMappings.0.ebs.encrypted", False),
        ),
    ),
)
