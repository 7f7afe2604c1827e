"""The EC2 calls that launch, tag and end instances, in IAM's terms: every resource of the call, with its tags.

    for query in queries(operation, resources, context, names): ...

EC2 asks for each resource of such a call on its own. For a resource that the call makes, `aws:RequestTag` has the tags
that it gets; for an existing one, `aws:ResourceTag` has those that it has. Tags at creation also need `ec2:CreateTags`,
and an instance profile needs `iam:PassRole` for its role.
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.aws.policy import UNKNOWN_RESOURCE, Query
from localcloud.aws.requests.operations import Operation
from localcloud.aws.requests.resources import Resources, Template

Context = dict[str, tuple[str, ...]]
Tags = Mapping[str, str]
Tree = dict[str, Any]

LAUNCHES = ("RunInstances", "CreateFleet")
ON_INSTANCES = ("TerminateInstances", "StopInstances", "StartInstances", "RebootInstances")
# What a launch makes, in addition to a fleet and a Spot request.
MADE = ("instance", "volume", "network-interface")
SPOT_REQUEST = "spot-instances-request"
# The resource types of ids, by their prefix.
KINDS = {
    "ami": "image",
    "eni": "network-interface",
    "fleet": "fleet",
    "i": "instance",
    "lt": "launch-template",
    "sg": "security-group",
    "sir": SPOT_REQUEST,
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
}
# Resources that can belong to another account; their ARNs have none.
WITHOUT_ACCOUNT = ("image", "snapshot")


@dataclass(frozen=True)
class Asked:
    """What a call is checked with: the operation, the account's resources, the common context, the caller's names."""

    operation: Operation
    resources: Resources
    context: Mapping[str, tuple[str, ...]]
    principals: tuple[str, ...]

    def query(self, action: str, resource: str, *more: Context) -> Query:
        """Return a query; `more` adds condition keys."""
        context = dict(self.context)
        for keys in more:
            context |= keys
        return Query(action, resource, context, self.principals)

    def arn(self, kind: str, identity: str = "*") -> str:
        """Return the ARN of a resource of EC2; without an id, of one that is to be made."""
        account = "" if kind in WITHOUT_ACCOUNT else self.operation.account
        return f"arn:aws:ec2:{self.operation.region}:{account}:{kind}/{identity}"

    def existing(self, action: str, kind: str, identity: str, *more: Context) -> Query:
        """Return the query for a resource that exists."""
        arn = self.arn(kind, identity)
        return self.query(action, arn, resource_tags(self.resources.tags(arn), "ec2:resourcetag"), *more)

    def by_id(self, action: str, identity: str, *more: Context) -> Query:
        """Return the query for a resource with this id, of whatever type; of an unknown type it has no ARN."""
        kind = KINDS.get(identity.partition("-")[0])
        return (
            self.query(action, UNKNOWN_RESOURCE, *more)
            if kind is None
            else self.existing(action, kind, identity, *more)
        )


def queries(asked: Asked) -> list[Query] | None:
    """Return the queries of a call, or None if it is not one of those that this module knows."""
    operation, form = asked.operation, tree(asked.operation.params)
    match operation.name:
        case "RunInstances" | "CreateFleet":
            return list(_launch(asked, form))
        case "CreateLaunchTemplate":
            tags = _specified(_listed(form, "TagSpecification")).get("launch-template", {})
            made = [asked.query(f"ec2:{operation.name}", asked.arn("launch-template"), request_tags(tags))]
            return made + _tagging(asked, {"launch-template": tags})
        case "DeleteLaunchTemplate":
            template = _template(asked, form)
            return [asked.existing(f"ec2:{operation.name}", "launch-template", template.id)] if template else None
        case "CreateTags" | "DeleteTags":
            given = _pairs(_listed(form, "Tag"))
            action = f"ec2:{operation.name}"
            return [asked.by_id(action, identity, request_tags(given)) for identity in _values(form, "ResourceId")]
        case name if name in ON_INSTANCES:
            return [asked.existing(f"ec2:{name}", "instance", identity) for identity in _values(form, "InstanceId")]
    return None


def request_tags(tags: Tags) -> Context:
    """Return the condition keys of tags that a call sets."""
    if not tags:
        return {}
    return {"aws:tagkeys": tuple(tags), **{f"aws:requesttag/{key.lower()}": (value,) for key, value in tags.items()}}


def resource_tags(tags: Tags, *aliases: str) -> Context:
    """Return the condition keys of an existing resource's tags, also under a service's own names of the key."""
    names = ("aws:resourcetag", *aliases)
    return {f"{name}/{key.lower()}": (value,) for name in names for key, value in tags.items()}


def tree(form: Mapping[str, Any]) -> Tree:
    """Return a form's parameters, whose names have dots, as nested mappings."""
    root: Tree = {}
    for name, value in form.items():
        *path, last = name.split(".")
        node = root
        for part in path:
            below = node.setdefault(part, {})
            node = below if isinstance(below, dict) else {}
        node[last] = value
    return root


def _launch(asked: Asked, form: Tree) -> Iterator[Query]:
    operation = asked.operation
    configs = _listed(form, "LaunchTemplateConfigs")
    named = [form["LaunchTemplate"]] if isinstance(form.get("LaunchTemplate"), dict) else []
    named += [each["LaunchTemplateSpecification"] for each in configs if "LaunchTemplateSpecification" in each]
    templates = [found for each in named if (found := _template(asked, each)) is not None]
    parts = [form, *(part for each in configs for part in _listed(each, "Overrides"))]
    data = [template.data for template in templates]
    tags = _merged(_specified(_listed(form, "TagSpecification")), data)
    kinds = [*MADE, *([SPOT_REQUEST] if _is_spot(form, data) else [])]
    actions = [f"ec2:{operation.name}"]
    if operation.name == "CreateFleet":
        yield asked.query("ec2:CreateFleet", asked.arn("fleet"), request_tags(tags.get("fleet", {})))
        # EC2 launches a fleet's instances with the caller's permissions.
        actions.append("ec2:RunInstances")
    for action in actions:
        for kind in kinds:
            yield asked.query(action, asked.arn(kind), request_tags(tags.get(kind, {})))
        for identity in dict.fromkeys(_used(parts, data)):
            yield asked.by_id(action, identity)
        for template in templates:
            yield asked.existing(action, "launch-template", template.id)
    made = {*kinds, *(["fleet"] if operation.name == "CreateFleet" else [])}
    yield from _tagging(asked, {kind: found for kind, found in tags.items() if kind in made})
    yield from _passing(asked, form, data)


def _used(parts: list[Tree], data: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the ids of the image, the subnets and the security groups of a launch."""
    for part in parts:
        interfaces = _listed(part, "NetworkInterface")
        yield from [str(part[name]) for name in ("ImageId", "SubnetId") if name in part]
        yield from _values(part, "SecurityGroupId")
        for interface in interfaces:
            yield from [str(interface["SubnetId"])] if "SubnetId" in interface else []
            yield from _values(interface, "SecurityGroupId")
    for template in data:
        if template.get("ImageId") and not any("ImageId" in part for part in parts):
            yield str(template["ImageId"])
        yield from [str(each) for each in template.get("SecurityGroupIds") or []]
        for interface in template.get("NetworkInterfaces") or []:
            yield from [str(interface["SubnetId"])] if interface.get("SubnetId") else []
            yield from [str(each) for each in interface.get("Groups") or []]


def _tagging(asked: Asked, tags: Mapping[str, Tags]) -> list[Query]:
    """Return the queries for the tags that a call sets on what it makes."""
    created: Context = {"ec2:createaction": (asked.operation.name,)}
    return [
        asked.query("ec2:CreateTags", asked.arn(kind), request_tags(given), created)
        for kind, given in tags.items()
        if given
    ]


def _passing(asked: Asked, form: Tree, data: list[Mapping[str, Any]]) -> Iterator[Query]:
    for profile in [form.get("IamInstanceProfile"), *(template.get("IamInstanceProfile") for template in data)]:
        name = (profile or {}).get("Name") or (profile or {}).get("Arn")
        found = asked.resources.profile(str(name)) if name else None
        if found is not None and found.role_arn is not None:
            yield pass_role(asked, found.role_arn)


def pass_role(asked: Asked, role_arn: str) -> Query:
    """Return the query for giving a role to EC2's instances."""
    return asked.query("iam:PassRole", role_arn, {"iam:passedtoservice": ("ec2.amazonaws.com",)})


def _template(asked: Asked, given: Mapping[str, Any]) -> Template | None:
    identity, name, version = (given.get(key) for key in ("LaunchTemplateId", "LaunchTemplateName", "Version"))
    return asked.resources.launch_template(asked.operation.region, identity, name, version)


def _is_spot(form: Tree, data: list[Mapping[str, Any]]) -> bool:
    target = form.get("TargetCapacitySpecification") or {}
    markets = [form.get("InstanceMarketOptions") or {}, *(each.get("InstanceMarketOptions") or {} for each in data)]
    return (
        target.get("DefaultTargetCapacityType") == "spot"
        or int(target.get("SpotTargetCapacity") or 0) > 0
        or any(market.get("MarketType") == "spot" for market in markets)
    )


def _specified(specifications: list[Tree]) -> dict[str, dict[str, str]]:
    """Return the tags of a form's tag specifications, by resource type."""
    found: dict[str, dict[str, str]] = {}
    for each in specifications:
        found.setdefault(str(each.get("ResourceType", "")), {}).update(_pairs(_listed(each, "Tag")))
    return found


def _merged(asked: Mapping[str, Tags], data: list[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the request's tags with those of the launch templates; the request's win."""
    found: dict[str, dict[str, str]] = {}
    for template in data:
        for each in template.get("TagSpecifications") or []:
            tags = {str(tag["Key"]): str(tag["Value"]) for tag in each.get("Tags") or []}
            found.setdefault(str(each["ResourceType"]), {}).update(tags)
    for kind, given in asked.items():
        found.setdefault(kind, {}).update(given)
    return found


def _pairs(tags: list[Tree]) -> dict[str, str]:
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in tags if "Key" in tag}


def _listed(node: Mapping[str, Any], name: str) -> list[Tree]:
    """Return the structures of a list, in its order."""
    return [each for each in _members(node, name) if isinstance(each, dict)]


def _values(node: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a list of texts, in its order."""
    return [str(each) for each in _members(node, name) if not isinstance(each, dict)]


def _members(node: Mapping[str, Any], name: str) -> list[Any]:
    below = node.get(name)
    if not isinstance(below, dict):
        return []
    return [below[number] for number in sorted((key for key in below if key.isdigit()), key=int)]
