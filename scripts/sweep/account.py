"""One account and region: look for everything that a stack has left, delete what was found.

    found = look(clients, stack)
    failed = delete(clients, found.things)

What can't be looked for or deleted is reported; the rest is done all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from scripts.sweep import compute, network, storage
from scripts.sweep.model import Clients, Kind, Leftover, Stack, pages

KINDS: tuple[Kind, ...] = (
    # In the order of deletion: what uses something is before what is used.
    compute.INSTANCES,
    network.LOAD_BALANCERS,
    network.CLASSIC_LOAD_BALANCERS,
    network.TARGET_GROUPS,
    network.INTERFACES,
    network.SECURITY_GROUPS,
    network.ADDRESSES,
    compute.VOLUMES,
    compute.LAUNCH_TEMPLATES,
    compute.PLACEMENT_GROUPS,
    compute.INSTANCE_PROFILES,
    compute.ROLES,
    storage.LOG_GROUPS,
    storage.RECOVERY_POINTS,
    storage.PULL_THROUGH_RULES,
    storage.REPOSITORIES,
    storage.BUCKETS,
)

_ERRORS = (ClientError, BotoCoreError)


@dataclass(frozen=True)
class Found:
    """What is left, what else AWS lists under the stack's tags, what keeps a VPC, and what could not be looked for."""

    things: tuple[Leftover, ...]
    others: tuple[str, ...]
    """ARNs of resources with the stack's tags that the sweep leaves alone, such as a VPC without strangers."""
    strangers: tuple[network.Stranger, ...]
    problems: tuple[str, ...]


def living(clients: Clients, stack: Stack) -> str:
    """Return what shows that the stack is there: its own cluster, in whatever state, or nodes on another; else nothing.

    All clusters of the region are asked: the one on which a stack is need not be its own, and its config may be gone.
    """
    eks = clients("eks")
    clusters = list(pages(eks, "list_clusters", "clusters"))
    if stack.name in clusters:
        return f"the cluster {stack.name} exists"
    for cluster in clusters:
        for group in pages(eks, "list_nodegroups", "nodegroups", clusterName=cluster):
            if group.startswith(f"{stack.name}-") and stack.owns(_tags_of_group(eks, cluster, group)):
                return f"the cluster {cluster} has the node group {group}"
    return ""


def _tags_of_group(eks: Any, cluster: str, group: str) -> dict[str, str]:
    found: dict[str, str] = eks.describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"].get(
        "tags", {}
    )
    return found


def look(clients: Clients, stack: Stack) -> Found:
    """Return everything that the stack has left."""
    things: list[Leftover] = []
    others: list[str] = []
    strangers: list[network.Stranger] = []
    problems: list[str] = []
    for kind in KINDS:
        try:
            things += [Leftover(kind.label, id_, about) for id_, about in kind.find(clients, stack)]
        except _ERRORS as error:
            problems.append(f"{kind.label}s can't be looked for: {error}")
    try:
        others = _tagged(clients, stack)
    except _ERRORS as error:
        problems.append(f"what else has the stack's tags can't be looked for: {error}")
    try:
        strangers += network.strangers(clients, stack)
    except _ERRORS as error:
        problems.append(f"what others have in the stack's VPC can't be looked for: {error}")
    named = {thing.id for thing in things}.union(*(each.keeps for each in strangers))
    left_alone = [arn for arn in others if not named & names(arn)]
    return Found(tuple(things), tuple(left_alone), tuple(strangers), tuple(problems))


def delete(clients: Clients, things: Sequence[Leftover]) -> list[str]:
    """Delete the things, kind after kind; return a sentence for each one that is still there."""
    problems: list[str] = []
    for kind in KINDS:
        ids = [thing.id for thing in things if thing.kind == kind.label]
        if not ids:
            continue
        try:
            with kind.around(clients, ids):
                problems += [said for id_ in ids if (said := _delete_one(clients, kind, id_))]
        except _ERRORS as error:
            problems.append(f"{kind.label}s: {error}")
    return problems


def _delete_one(clients: Clients, kind: Kind, id_: str) -> str:
    try:
        kind.delete(clients, id_)
    except ClientError as error:
        if not is_gone(error.response["Error"]["Code"]):
            return f"{kind.label} {id_}: {error}"
    except BotoCoreError as error:
        return f"{kind.label} {id_}: {error}"
    return ""


def is_gone(code: str) -> bool:
    """Return whether an error code says that the thing doesn't exist; each service has its own word for it."""
    return "NotFound" in code or code in ("NoSuchBucket", "NoSuchEntity", "InvalidPlacementGroup.Unknown")


def _tagged(clients: Clients, stack: Stack) -> list[str]:
    filters = [{"Key": key, "Values": [value]} for key, value in stack.tags.items()]
    tagging = clients("resourcegroupstaggingapi")
    all_ = pages(tagging, "get_resources", "ResourceTagMappingList", TagFilters=filters)
    return sorted(each["ResourceARN"] for each in all_)


def names(arn: str) -> set[str]:
    """Return what an ARN's thing may be called: `…:instance/i-0abc`, `…:log-group:/aws/eks/name/cluster`."""
    return {arn, arn.partition("/")[2], arn.split(":", 6)[-1]}
