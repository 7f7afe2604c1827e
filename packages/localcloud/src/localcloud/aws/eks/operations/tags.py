"""Tags of EKS resources, by ARN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks.model import Json, Tags
from localcloud.aws.eks.state import ClusterState, Eks, GroupState, checked_tags
from localcloud.aws.principals import Principal

Setter = Callable[[Tags], None]


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListTagsForResource."""
    return {"tags": dict(_find(eks, str(params["resourceArn"]))[0])}


def tag(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """TagResource."""
    current, change = _find(eks, str(params["resourceArn"]))
    change({**current, **checked_tags(params.get("tags"))})
    return {}


def untag(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UntagResource."""
    current, change = _find(eks, str(params["resourceArn"]))
    keys = params.get("tagKeys") or []
    gone = {keys} if isinstance(keys, str) else set(keys)
    change({key: value for key, value in current.items() if key not in gone})
    return {}


def _find(eks: Eks, arn: str) -> tuple[Tags, Setter]:
    """Return the tags of the resource with this ARN, and a function that replaces them."""
    for state in list(eks.clusters.values()):
        if state.cluster.arn == arn:
            return state.cluster.tags, partial(_set_cluster, state)
        for found in list(state.groups.values()):
            if found.group.arn == arn:
                return found.group.tags, partial(_set_group, found)
        holders: tuple[dict[str, Any], ...] = (state.addons, state.entries, state.associations)
        for holder in holders:
            for key, item in list(holder.items()):
                if item.arn == arn:
                    return item.tags, partial(_set_item, holder, key)
    raise EksError("NotFoundException", f"No resource found for ARN: {arn}")


def _set_cluster(state: ClusterState, tags: Tags) -> None:
    state.change(tags=tags)


def _set_group(found: GroupState, tags: Tags) -> None:
    found.group = replace(found.group, tags=tags)


def _set_item(holder: dict[str, Any], key: str, tags: Tags) -> None:
    holder[key] = replace(holder[key], tags=tags)
