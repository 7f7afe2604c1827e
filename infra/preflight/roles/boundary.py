"""Whether the boundary of the stack's roles allows what they do. Pure, but for `look_up`.

A role may do what its policies and its boundary allow both. Only what is certain is a mistake here: an action that no
statement of the boundary allows on anything, or that one denies on everything and without a condition.
https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi_aws as aws

import settings
from infra.policies import roles
from infra.policies.roles import NODE_POLICIES
from infra.preflight.asking import Ask

POLICY = "aws:iam/getPolicy:getPolicy"

OF_NODES = (
    *("ec2:DescribeInstances", "ecr:GetAuthorizationToken", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
    "eks-auth:AssumeRoleForPodIdentity",
)
"""What no node can do without, of the policies that AWS has for it: to join, to pull images, and to give pods roles.
https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html"""

OF_THE_CNI = (
    *("ec2:AssignPrivateIpAddresses", "ec2:AttachNetworkInterface", "ec2:CreateNetworkInterface"),
    *("ec2:DescribeNetworkInterfaces", "ec2:ModifyNetworkInterfaceAttribute"),
)
"""What gives pods addresses. On a cluster of others the VPC CNI may have a role of its own."""

MOST_NAMES = 4
"""How many actions a message names."""

_ABSENT = re.compile(r"couldn't find resource|no IAM policy found|NoSuchEntity|NotFound")
"""The words of the plug-in and of IAM for what doesn't exist."""


@dataclass(frozen=True)
class Boundary:
    """What AWS says of the policy: whether there is one, its document, and why that could not be read."""

    found: bool
    document: Mapping[str, Any] = field(default_factory=dict)
    unread: str = ""


async def look_up(arn: str, ask: Ask) -> Boundary:
    """Return what AWS says of a policy."""
    try:
        found = await ask(POLICY, {"arn": arn}, aws.iam.GetPolicyResult)
    except Exception as error:  # the SDK has no other type for it
        return Boundary(found=False) if _ABSENT.search(str(error)) else Boundary(found=True, unread=str(error))
    return Boundary(found=True, document=json.loads(found.policy))


def mistakes(stack: settings.Settings, boundary: Boundary | None) -> list[str]:
    """Return a mistake for each role that could not do its work."""
    if boundary is None or boundary.unread:
        return []
    arn = stack.roles.boundary
    if not boundary.found:
        return [f"permissionsBoundary = {arn}: there is no such policy; correct it, or make it first"]
    denied = {
        who: [each for each in needed if not allows(boundary.document, each)] for who, needed in needs(stack).items()
    }
    return [
        f"permissionsBoundary = {arn}: doesn't allow {_listed(actions)}, which the role of {who} needs; allow it "
        "there, or name another policy"
        for who, actions in denied.items()
        if actions
    ]


def warnings(stack: settings.Settings, boundary: Boundary | None) -> list[str]:
    """Return why the boundary could not be checked."""
    if boundary is None or not boundary.unread:
        return []
    return [
        f"permissionsBoundary = {stack.roles.boundary}: could not be read. To have it checked, allow iam:GetPolicy and "
        f"iam:GetPolicyVersion. The error: {boundary.unread}"
    ]


def needs(stack: settings.Settings) -> dict[str, list[str]]:
    """Return the actions of each role, by those who have it: of its own policies, and of AWS's what it needs most."""
    found: dict[str, list[str]] = {}
    for role in roles.of(stack, roles.Names.before(stack, "", "aws")).values():
        of_nodes = [*OF_NODES, *(() if stack.cluster.existing else OF_THE_CNI)] if role.of_aws == NODE_POLICIES else []
        found[role.who] = of_nodes + [action for document in role.own.values() for action in _actions(document)]
    return found


def allows(document: Mapping[str, Any], action: str) -> bool:
    """Return whether a policy may allow an action: on something, under some condition."""
    named = [each for each in several(document.get("Statement")) if names(each, action)]
    denied = any(each["Effect"] == "Deny" and _always(each) for each in named)
    return not denied and any(each["Effect"] == "Allow" for each in named)


def names(statement: Mapping[str, Any], action: str) -> bool:
    """Return whether a statement is about an action."""
    if "NotAction" in statement:
        return not _is_like(action, statement["NotAction"])
    return _is_like(action, statement.get("Action"))


def _is_like(action: str, patterns: Any) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), str(each).lower()) for each in several(patterns))


def _always(statement: Mapping[str, Any]) -> bool:
    return "*" in several(statement.get("Resource")) and not statement.get("Condition")


def _actions(document: Mapping[str, Any]) -> list[str]:
    allowed = (each for each in document["Statement"] if each["Effect"] == "Allow")
    return sorted({action for each in allowed for action in several(each["Action"])})


def several(value: Any) -> Sequence[Any]:
    """Return what is a list, or may be its only element: IAM takes both."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _listed(actions: Sequence[str]) -> str:
    more = len(actions) - MOST_NAMES
    return ", ".join(actions) if more < 2 else f"{', '.join(actions[:MOST_NAMES])} and {more} more"
