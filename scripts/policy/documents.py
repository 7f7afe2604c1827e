"""The statements of a config, and how they are divided into managed policies. Pure.

policies(stack, Place.of(stack, "123456789012"))      # a list of documents
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import settings
from infra.policies import Document
from infra.policies.documents import document
from scripts.policy.actions import IAM, NETWORK, OF_OWN_FILES, TYPES
from scripts.policy.needs import (
    ADDRESS,
    BOUNDARY,
    DATA_KEY,
    DATASET,
    DISK_KEY,
    EXISTING_CLUSTER,
    EXISTING_FILES,
    EXISTING_VPC,
    GIVEN_ROLES,
    LOOK_UPS,
    LUSTRE,
    OWN_VPC,
    SCRIPTS,
)
from scripts.policy.scopes import SERVICES, Place, Scope, where

MOST_CHARACTERS = 6144
"""Of a managed policy, without white space.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"""


def types_of(stack: settings.Settings) -> set[str]:
    """Return the types of the AWS resources that a stack has, pulumi-eks's among them."""
    optional = {
        **dict.fromkeys(NETWORK, stack.network.existing is None),
        **dict.fromkeys(("aws:eks/cluster:Cluster", "aws:eks/addon:Addon"), stack.cluster.existing is None),
        **dict.fromkeys(OF_OWN_FILES, not stack.file_system),
        **dict.fromkeys(IAM, not stack.roles.arns),
        "aws:cloudwatch/logGroup:LogGroup": stack.cluster.existing is None or stack.network.flow_log_days > 0,
        "aws:ec2/flowLog:FlowLog": stack.network.flow_log_days > 0,
        "aws:ec2/placementGroup:PlacementGroup": stack.machines.placement_group,
        "aws:kms/grant:Grant": bool(stack.node_disk_key),
        **dict.fromkeys(("aws:kms/key:Key", "aws:kms/alias:Alias"), not stack.data_key),
        "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": stack.image_cache is not None,
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": bool(stack.cluster.admin_arns),
        "aws:eks/accessEntry:AccessEntry": bool(stack.cluster.admin_arns or stack.cluster.existing or stack.surge)
        or any(team.user_arns for team in stack.teams),
        **dict.fromkeys((each for each in TYPES if each.startswith("aws:amp/")), _managed(stack)),
        **dict.fromkeys(
            (each for each in TYPES if each.startswith(("aws:sqs/", "aws:cloudwatch/event"))), stack.surge is not None
        ),
    }
    return {each for each in TYPES if optional.get(each, True)}


def _managed(stack: settings.Settings) -> bool:
    return stack.monitoring is not None and stack.monitoring.managed


def actions(stack: settings.Settings) -> dict[Scope, set[str]]:
    """Return all actions that a stack needs, by their scope."""
    found: dict[Scope, set[str]] = {}
    more = [DISK_KEY] * bool(stack.node_disk_key) + [DATA_KEY] * bool(stack.data_key)
    more += [DATASET] * (stack.training.dataset.uri or "").startswith("s3://")
    more.append(EXISTING_VPC if stack.network.existing else OWN_VPC)
    more += [EXISTING_FILES] * bool(stack.file_system) + [BOUNDARY] * bool(stack.roles.boundary)
    more += [LUSTRE] * bool(stack.lustre) + [GIVEN_ROLES] * bool(stack.roles.arns)
    more.append(EXISTING_CLUSTER if stack.cluster.existing else ADDRESS)
    for needs in (*(TYPES[each] for each in types_of(stack)), LOOK_UPS, SCRIPTS, *more):
        for scope, names in needs.items():
            found.setdefault(scope, set()).update(_full(scope, name) for name in names.split())
    if not (stack.roles.boundary or stack.roles.arns):  # it may have left the config; out of the roles it goes by this
        found.setdefault(Scope.ROLES, set()).add("iam:DeleteRolePermissionsBoundary")
    found.setdefault(Scope.EC2_TAGS, set()).add("ec2:CreateTags")
    found.setdefault(Scope.EC2_OWN, set()).update(("ec2:CreateTags", "ec2:DeleteTags"))
    return found


def _full(scope: Scope, name: str) -> str:
    return name if ":" in name else f"{SERVICES[scope]}:{name}"


def statements(stack: settings.Settings, place: Place) -> list[Document]:
    """Return one statement for each scope that the stack needs, in a stable order."""
    return list(_statements(stack, place))


def _statements(stack: settings.Settings, place: Place) -> Iterator[Document]:
    for scope, names in sorted(actions(stack).items(), key=lambda each: each[0].value):
        resources, condition = where(scope, place)
        sid = "".join(part.capitalize() for part in scope.name.split("_"))
        statement = {"Sid": sid, "Effect": "Allow", "Action": sorted(names), "Resource": resources}
        yield {**statement, "Condition": condition} if condition else statement


def policies(stack: settings.Settings, place: Place) -> list[Document]:
    """Return the documents, each short enough for a managed policy."""
    return divided(statements(stack, place), MOST_CHARACTERS)


def divided(given: Sequence[Document], most: int) -> list[Document]:
    """Return documents of at most `most` characters that allow what the statements do."""
    parts: list[list[Document]] = [[]]
    for statement in given:
        if size([*parts[-1], statement]) > most and parts[-1]:
            parts.append([])
        parts[-1].append(statement)
    return [document(*part) for part in parts if part]


def size(given: Sequence[Document]) -> int:
    """Return how many characters a document of these statements has for IAM, which doesn't count white space."""
    return len("".join(json.dumps(document(*given)).split()))
