"""Whether the roles in `roleArns` can be used: they exist, in this account, and the right service may assume them.

Pure, but for `look_up`. What the roles may do is up to who made them: `python -m scripts.roles` prints what they need.
Only what is certain is a mistake here. A trust policy may have conditions that are not known here.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi_aws as aws

import settings
from infra.account import partition_of
from infra.policies import Document, roles
from infra.preflight.asking import Ask
from infra.preflight.cluster import Inside
from infra.preflight.roles.boundary import names, several

ROLE = "aws:iam/getRole:getRole"

_ABSENT = re.compile("couldn't find resource|NoSuchEntity")
"""The words of the plug-in and of IAM for what doesn't exist."""


@dataclass(frozen=True)
class Given:
    """What AWS says of a role, which is asked for by its name: its ARN, which is empty if there is none, its trust
    policy, and why it could not be read."""

    arn: str
    trust: Mapping[str, Any] = field(default_factory=dict)
    unread: str = ""


async def look_up(arns: Mapping[str, str], ask: Ask) -> dict[str, Given]:
    """Return what AWS says of these roles, by the same names."""
    found = await asyncio.gather(*(_look_up(arn, ask) for arn in arns.values()))
    return dict(zip(arns, found, strict=True))


async def _look_up(arn: str, ask: Ask) -> Given:
    try:
        found = await ask(ROLE, {"name": arn.rpartition("/")[2]}, aws.iam.GetRoleResult)
    except Exception as error:  # the SDK has no other type for it
        return Given("") if _ABSENT.search(str(error)) else Given(arn, unread=str(error))
    return Given(found.arn, json.loads(found.assume_role_policy))


def mistakes(stack: settings.Settings, given: Mapping[str, Given], caller_arn: str, inside: Inside | None) -> list[str]:
    """Return a sentence for each role that can't be used by the one who deploys with this ARN on this cluster."""
    if not given:
        return []
    account, arns = caller_arn.split(":")[4], stack.roles.arns
    wanted = roles.of(stack, roles.Names.before(stack, account, partition_of(caller_arn)))
    why = {name: _why_not(arns[name], account, wanted[name].trust, each) for name, each in given.items()}
    foreign = inside.foreign if inside else ()
    # On a cluster of the stack's own, EKS itself makes the entry for the role of node groups.
    by_stack = given.keys() - (() if stack.cluster.existing else {"node"})
    why |= {
        name: f"has an access entry on the cluster {stack.cluster_name} that this stack has not made, and EKS has one "
        "for each role; name another role, or ask the cluster's owner to remove the entry"
        for name in given
        if name in by_stack and arns[name] in foreign and not why[name]
    }
    return [f"roleArns.{name} = {arns[name]}: {reason}" for name, reason in why.items() if reason]


def _why_not(arn: str, account: str, trust: Document, given: Given) -> str:
    (wanted,) = trust["Statement"]
    if arn.split(":")[4] != account:
        return f"is of another account than the stack, which is in {account}; name a role there"
    if not given.arn:
        return "there is no such role; correct it, or make it first, as `python -m scripts.roles` prints it"
    if given.arn != arn:
        return f"the account's role of this name is {given.arn}; correct it"
    statements = several(given.trust.get("Statement"))
    if given.unread or all(any(_lets(each, wanted, action) for each in statements) for action in wanted["Action"]):
        return ""
    return (
        f"its trust policy doesn't let {wanted['Principal']['Service']} assume it for this stack; add this statement, "
        f"or exchange the roles: {json.dumps(wanted)}"
    )


def _lets(statement: Mapping[str, Any], wanted: Document, action: str) -> bool:
    """Return whether a statement may allow one of the actions of the wanted one."""
    principal, service = statement.get("Principal"), wanted["Principal"]["Service"]
    given = principal if isinstance(principal, Mapping) else {"AWS": principal}
    services = {*several(given.get("Service")), *({"*"} & {*several(given.get("AWS"))})}
    # In China services such as EC2 have the other name too.
    if statement["Effect"] != "Allow" or not {service, f"{service}.cn", "*"} & services or not names(statement, action):
        return False
    known = wanted.get("Condition", {}).get("StringEquals", {})
    return all(
        any(fnmatch.fnmatchcase(known[key], each) for each in several(values))
        for operator, compared in statement.get("Condition", {}).items()
        if operator in ("StringEquals", "StringLike", "ArnEquals", "ArnLike")
        for key, values in compared.items()
        if key in known
    )


def warnings(given: Mapping[str, Given]) -> list[str]:
    """Return why roles could not be checked."""
    unread = {name: each.unread for name, each in given.items() if each.unread}
    if not unread:
        return []
    return [
        f"roleArns: {', '.join(unread)} could not be read. To have them checked, allow iam:GetRole. The error: "
        f"{next(iter(unread.values()))}"
    ]
