"""Placement groups, which moto lacks: EC2's operations, and which instances are in a group.

    install()    # once, before the first request; called by `launch_rules`

A group is a wish about hardware, and this cloud has one machine; what matters here is that a launch names a group that
exists, and that a group with instances isn't deleted.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from localcloud.aws.compute.listings import matches

PREFIX: Final = "pg"
STRATEGY: Final = "cluster"
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribePlacementGroups.html
FILTERS: Final = {
    "group-name": "GroupName",
    "group-arn": "GroupArn",
    "state": "State",
    "strategy": "Strategy",
}
RUNNING: Final = ("pending", "running", "stopping", "stopped")


_requested: ContextVar[Mapping[str, Any]] = ContextVar("requested", default={})  # noqa: B039 (never changed)
"""The placement that a RunInstances call names itself; moto passes its zone and host on, but not its group."""


@dataclass
class PlacementGroup:
    """A group and its instances, including terminated ones."""

    name: str
    id: str = field(default_factory=lambda: f"{PREFIX}-0{secrets.token_hex(8)}")
    instances: list[Any] = field(default_factory=list)


def install() -> None:
    """Add the operations to moto's."""
    from moto.ec2 import utils
    from moto.ec2.responses.instances import InstanceResponse

    # Else CreateTags and DeleteTags refuse the ids.
    utils.EC2_RESOURCE_TO_PREFIX["placement-group"] = PREFIX
    utils.EC2_PREFIX_TO_RESOURCE[PREFIX] = "placement-group"
    for method in (create_placement_group, delete_placement_group, describe_placement_groups):
        setattr(InstanceResponse, method.__name__, method)
    original = InstanceResponse.run_instances

    def run_instances(self: Any) -> Any:
        token = _requested.set(self._get_param("Placement", {}))
        try:
            return original(self)
        finally:
            _requested.reset(token)

    InstanceResponse.run_instances = run_instances  # type: ignore[method-assign]


def wanted(backend: Any, template: Mapping[str, Any]) -> PlacementGroup | None:
    """Return the group that the call or its launch template names, or None; raise EC2's error for an unknown one."""
    for asked in (_requested.get(), template.get("Placement") or {}):
        name = asked.get("GroupName") or asked.get("GroupId")
        if name:
            return _find(backend, str(name))
    return None


def place(group: PlacementGroup | None, instances: Iterable[Any]) -> None:
    """Put new instances into a group, if there is one."""
    if group is None:
        return
    for instance in instances:
        group.instances.append(instance)
        instance.placement.group_name = group.name


def create_placement_group(self: Any) -> Any:
    """CreatePlacementGroup."""
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.utils import convert_tag_spec

    self.error_on_dryrun()
    name, strategy = self._get_param("GroupName"), self._get_param("Strategy") or STRATEGY
    if not name:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter groupName")
    if strategy != STRATEGY or self._get_param("PartitionCount") or self._get_param("SpreadLevel"):
        message = (
            f"Placement groups of strategy '{strategy}', PartitionCount and SpreadLevel are not covered by the "
            f"one-machine cloud: use the strategy '{STRATEGY}' alone"
        )
        raise EC2ClientError("UnsupportedOperation", message)
    if any(group.name == name for group in _all(self.ec2_backend)):
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    group = PlacementGroup(name)
    _all(self.ec2_backend).append(group)
    tags = convert_tag_spec(self._get_param("TagSpecifications", [])).get("placement-group", {})
    self.ec2_backend.create_tags([group.id], tags)
    return ActionResult({"PlacementGroup": _shown(self.ec2_backend, group)})


def delete_placement_group(self: Any) -> Any:
    """DeletePlacementGroup."""
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError

    self.error_on_dryrun()
    group = _find(self.ec2_backend, self._get_param("GroupName"))
    if any(instance.state in RUNNING for instance in group.instances):
        message = f"The placement group '{group.name}' is in use and may not be deleted."
        raise EC2ClientError("InvalidPlacementGroup.InUse", message)
    _all(self.ec2_backend).remove(group)
    return ActionResult({})


def describe_placement_groups(self: Any) -> Any:
    """DescribePlacementGroups."""
    from moto.core.responses import ActionResult

    self.error_on_dryrun()
    asked = (*self._get_param("GroupNames", []), *self._get_param("GroupIds", []))
    found: Iterable[PlacementGroup] = [_find(self.ec2_backend, name) for name in asked] or list(_all(self.ec2_backend))
    filters = self._filters_from_querystring()
    shown = [_shown(self.ec2_backend, group) for group in found]
    return ActionResult({"PlacementGroups": [group for group in shown if _matches(group, filters)]})


def _matches(group: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """Return whether a group matches all filters; those of tags have the key in their names."""
    tags = {f"tag:{tag['Key']}": tag["Value"] for tag in group["Tags"]}
    item = {
        **group,
        **dict.fromkeys(filters, ""),
        **tags,
        "tag-key": [tag["Key"] for tag in group["Tags"]],
    }
    of_tags = {name: name for name in filters if name == "tag-key" or name.startswith("tag:")}
    return matches(item, filters, FILTERS | of_tags, "DescribePlacementGroups")


def _all(backend: Any) -> list[PlacementGroup]:
    groups: list[PlacementGroup] = vars(backend).setdefault("placement_groups", [])
    return groups


def _find(backend: Any, asked: str) -> PlacementGroup:
    from moto.ec2.exceptions import EC2ClientError

    for group in _all(backend):
        if asked in (group.name, group.id):
            return group
    raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{asked}' is unknown.")


def _shown(backend: Any, group: PlacementGroup) -> dict[str, Any]:
    arn = f"arn:{backend.partition}:ec2:{backend.region_name}:{backend.account_id}:placement-group/{group.name}"
    tags = [{"Key": key, "Value": value} for key, value in backend.tags[group.id].items()]
    about = {"GroupName": group.name, "GroupId": group.id, "GroupArn": arn, "Strategy": STRATEGY}
    return {**about, "State": "available", "Tags": tags}
