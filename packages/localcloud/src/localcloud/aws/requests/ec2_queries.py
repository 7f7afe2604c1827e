"""The EC2 calls that launch, tag, end and delete, in IAM's terms: every resource of the call, with its tags.

    for query in queries(operation, resources, context, names): ...

EC2 asks for each resource of such a call on its own. For a resource that the call makes, `aws:RequestTag` has the tags
that it gets; for an existing one, `aws:ResourceTag` has those that it has. Tags at creation also need `ec2:CreateTags`,
and an instance profile needs `iam:PassRole` for its role.
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localcloud.aws.policy import UNKNOWN_RESOURCE, Query
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.operations import Operation
from localcloud.aws.requests.resources import Resources, Template

Context = dict[str, tuple[str, ...]]
Tags = Mapping[str, str]
Parameters = Mapping[str, Any]

LAUNCHES = ("RunInstances", "CreateFleet")
ON_INSTANCES = ("TerminateInstances", "StopInstances", "StartInstances", "RebootInstances")
TEMPLATES = ("CreateLaunchTemplate", "DeleteLaunchTemplate")
DELETIONS = {
    "DeleteFlowLogs": "FlowLogIds",
    "DeleteInternetGateway": "InternetGatewayId",
    "DeleteNatGateway": "NatGatewayId",
    "DeleteRouteTable": "RouteTableId",
    "DeleteSecurityGroup": "GroupId",
    "DeleteSubnet": "SubnetId",
    "DeleteVpc": "VpcId",
    "DeleteVpcEndpoints": "VpcEndpointIds",
    "ReleaseAddress": "AllocationId",
}
"""Each with the parameter that says what is deleted."""
KNOWN = (*LAUNCHES, *TEMPLATES, *ON_INSTANCES, *DELETIONS, "CreateTags", "DeleteTags")
# What a launch makes, in addition to a fleet and a Spot request.
MADE = ("instance", "volume", "network-interface")
SPOT_REQUEST = "spot-instances-request"
# The resource types of ids, by their prefix.
KINDS = {
    "acl": "network-acl",
    "ami": "image",
    "dopt": "dhcp-options",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "fl": "vpc-flow-log",
    "fleet": "fleet",
    "i": "instance",
    "igw": "internet-gateway",
    "key": "key-pair",
    "lt": "launch-template",
    "nat": "natgateway",
    "pg": "placement-group",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "sir": SPOT_REQUEST,
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
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


def queries(asked: Asked) -> list[Query]:
    """Return the queries of a call; none if it names no resource that this module knows."""
    operation, action = asked.operation, f"ec2:{asked.operation.name}"
    if operation.name not in KNOWN:
        return []
    params = parsed(operation)
    match operation.name:
        case "RunInstances" | "CreateFleet":
            return list(_launch(asked, params))
        case "CreateLaunchTemplate":
            tags = _specified(params).get("launch-template", {})
            made = asked.query(action, asked.arn("launch-template"), request_tags(tags))
            return [made, *_tagging(asked, {"launch-template": tags})]
        case "DeleteLaunchTemplate":
            template = _template(asked, params)
            return [asked.existing(action, "launch-template", template.id)] if template else []
        case "CreateTags" | "DeleteTags":
            given = request_tags(pairs(params.get("Tags")))
            return [asked.by_id(action, str(identity), given) for identity in params.get("Resources") or []]
    if operation.name in DELETIONS:
        named = params.get(DELETIONS[operation.name]) or []
        return [asked.by_id(action, identity) for identity in (named if isinstance(named, list) else [str(named)])]
    return [asked.existing(action, "instance", str(identity)) for identity in params.get("InstanceIds") or []]


def request_tags(tags: Tags) -> Context:
    """Return the condition keys of tags that a call sets."""
    if not tags:
        return {}
    return {"aws:tagkeys": tuple(tags), **{f"aws:requesttag/{key.lower()}": (value,) for key, value in tags.items()}}


def resource_tags(tags: Tags, *aliases: str) -> Context:
    """Return the condition keys of an existing resource's tags, also under a service's own names of the key."""
    names = ("aws:resourcetag", *aliases)
    return {f"{name}/{key.lower()}": (value,) for name in names for key, value in tags.items()}


def parsed(operation: Operation) -> Parameters:
    """Return the parameters of a form as moto reads them, by their names in the model.

    moto's own parser is used, so that what the policies allow is what moto does.

    Raises:
        Refused: A parameter has no valid value.
    """
    from moto.core.parse import PROTOCOL_PARSERS
    from moto.core.utils import get_service_model

    model = get_service_model(operation.service)
    parser: Any = PROTOCOL_PARSERS["ec2" if operation.service == "ec2" else "query"](
        model.operation_model(operation.name)
    )
    try:
        found: Parameters = parser.parse({"values": operation.params})
    except (ValueError, OverflowError) as error:
        raise Refused(
            "ambiguous", f"A parameter of {operation.name} is not valid: {error}", operation.service
        ) from error
    return found


def _launch(asked: Asked, params: Parameters) -> Iterator[Query]:
    operation = asked.operation
    configs = params.get("LaunchTemplateConfigs") or []
    named = [params.get("LaunchTemplate"), *(each.get("LaunchTemplateSpecification") for each in configs)]
    templates = [found for each in named if each and (found := _template(asked, each)) is not None]
    parts = [params, *(part for each in configs for part in each.get("Overrides") or [])]
    data = [template.data for template in templates]
    tags = _merged(*(_specified(each) for each in (*data, params)))
    kinds = [*MADE, *([SPOT_REQUEST] if _is_spot(params, data) else [])]
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
    yield from _passing(asked, params, data)


def _used(parts: Sequence[Parameters], data: Sequence[Parameters]) -> Iterator[str]:
    """Yield the ids of the images, the subnets and the security groups of a launch."""
    own_image = any(part.get("ImageId") for part in parts)
    for part in (*parts, *data):
        if part.get("ImageId") and not (own_image and part in data):
            yield str(part["ImageId"])
        for place in (part, *(part.get("NetworkInterfaces") or [])):
            yield from [str(place["SubnetId"])] if place.get("SubnetId") else []
            yield from [str(each) for name in ("SecurityGroupIds", "Groups") for each in place.get(name) or []]


def _tagging(asked: Asked, tags: Mapping[str, Tags]) -> list[Query]:
    """Return the queries for the tags that a call sets on what it makes."""
    created: Context = {"ec2:createaction": (asked.operation.name,)}
    return [
        asked.query("ec2:CreateTags", asked.arn(kind), request_tags(given), created)
        for kind, given in tags.items()
        if given
    ]


def _passing(asked: Asked, params: Parameters, data: Sequence[Parameters]) -> Iterator[Query]:
    for profile in [part.get("IamInstanceProfile") for part in (params, *data)]:
        name = (profile or {}).get("Name") or (profile or {}).get("Arn")
        found = asked.resources.profile(str(name)) if name else None
        if found is not None and found.role_arn is not None:
            yield pass_role(asked, found.role_arn)


def pass_role(asked: Asked, role_arn: str, service: str = "ec2.amazonaws.com") -> Query:
    """Return the query for giving a role to a service; without a name, to EC2's instances."""
    return asked.query("iam:PassRole", role_arn, {"iam:passedtoservice": (service,)})


def pairs(tags: Any) -> dict[str, str]:
    """Return a list of tags, each with `Key` and `Value`, as a mapping."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in tags or [] if "Key" in tag}


def _template(asked: Asked, given: Parameters) -> Template | None:
    identity, name, version = (given.get(key) for key in ("LaunchTemplateId", "LaunchTemplateName", "Version"))
    return asked.resources.launch_template(asked.operation.region, identity, name, version)


def _is_spot(params: Parameters, data: Sequence[Parameters]) -> bool:
    target = params.get("TargetCapacitySpecification") or {}
    markets = [part.get("InstanceMarketOptions") or {} for part in (params, *data)]
    return (
        target.get("DefaultTargetCapacityType") == "spot"
        or int(target.get("SpotTargetCapacity") or 0) > 0
        or any(market.get("MarketType") == "spot" for market in markets)
    )


def _specified(params: Parameters) -> dict[str, dict[str, str]]:
    """Return the tags of tag specifications, by resource type."""
    return _merged(
        *(
            {str(each.get("ResourceType", "")): pairs(each.get("Tags"))}
            for each in params.get("TagSpecifications") or []
        )
    )


def _merged(*given: Mapping[str, Tags]) -> dict[str, dict[str, str]]:
    """Return tags by resource type; the later ones win."""
    found: dict[str, dict[str, str]] = {}
    for each in given:
        for kind, tags in each.items():
            found.setdefault(kind, {}).update(tags)
    return found
