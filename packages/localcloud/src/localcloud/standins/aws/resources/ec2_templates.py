"""EC2: launch templates and placement groups."""

from __future__ import annotations

from typing import Any, Final

from localcloud.standins.aws.entry import Call, Entry, Naming, Tree, absent_as_none, ignore_absent, tag_map, words
from localcloud.standins.aws.resources.ec2_common import delete, first, tag_specification, update_tags

_DATA: Final = words(
    "blockDeviceMappings capacityReservationSpecification cpuOptions creditSpecification disableApiStop"
    " disableApiTermination ebsOptimized iamInstanceProfile imageId instanceInitiatedShutdownBehavior"
    " instanceMarketOptions instanceType keyName metadataOptions monitoring networkInterfaces placement"
    " securityGroupNames tagSpecifications userData vpcSecurityGroupIds"
)
_RENAMED: Final = {"vpcSecurityGroupIds": "SecurityGroupIds", "securityGroupNames": "SecurityGroups"}
_BACK: Final = {key: name for name, key in _RENAMED.items()}


def template_data(inputs: Tree) -> Tree:
    """The inputs as EC2's LaunchTemplateData."""
    data = {
        _RENAMED.get(name) or _pascal(name): _to_api(value, name) for name, value in inputs.items() if name in _DATA
    }
    return {key: value for key, value in data.items() if value not in (None, "", [], {})}


def _pascal(name: str) -> str:
    return name[0].upper() + name[1:]


def _to_api(value: Any, name: str) -> Any:
    if name == "tags":
        return [{"Key": key, "Value": text} for key, text in sorted(value.items())]
    if isinstance(value, dict):
        groups = {"securityGroups": "Groups"} if "associatePublicIpAddress" in value or "deviceIndex" in value else {}
        return {groups.get(key) or _pascal(key): _to_api(item, key) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_to_api(item, "") for item in value]
    # Terraform's three-valued switches are strings.
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def inputs_from_data(data: Tree) -> Tree:
    """EC2's LaunchTemplateData as inputs."""
    return {_BACK.get(key) or _camel(key): _from_api(value, key) for key, value in data.items()}


def _camel(key: str) -> str:
    return key[0].lower() + key[1:]


def _from_api(value: Any, key: str) -> Any:
    if key == "Tags":
        return tag_map(value)
    if isinstance(value, dict):
        return {
            ("securityGroups" if name == "Groups" else _camel(name)): _from_api(item, name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_from_api(item, "") for item in value]
    if key in ("Encrypted", "DeleteOnTermination", "EbsOptimized", "AssociatePublicIpAddress") and value is not None:
        return str(value).lower()
    return value


def _create(call: Call) -> str:
    inputs = call.inputs
    name = inputs.get("name") or f"{inputs['namePrefix']}{abs(hash(frozenset(inputs))):016x}"[:125]
    arguments: Tree = {"LaunchTemplateName": name, "LaunchTemplateData": template_data(inputs)}
    if inputs.get("description"):
        arguments["VersionDescription"] = inputs["description"]
    template = call.client("ec2").create_launch_template(
        TagSpecifications=tag_specification(call, "launch-template"), **arguments
    )
    return str(template["LaunchTemplate"]["LaunchTemplateId"])


def _read(call: Call) -> Tree | None:
    ec2 = call.client("ec2")
    codes = ("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.NotFoundException")
    found = absent_as_none(lambda: ec2.describe_launch_templates(LaunchTemplateIds=[call.id]), *codes)
    if not found or not found["LaunchTemplates"]:
        return None
    template = found["LaunchTemplates"][0]
    latest = ec2.describe_launch_template_versions(LaunchTemplateId=call.id, Versions=["$Latest"])
    version = latest["LaunchTemplateVersions"][0]
    data = inputs_from_data(version.get("LaunchTemplateData") or {})
    # moto keeps the template's own tags among those for what it launches; AWS doesn't.
    launched = [item for item in data.pop("tagSpecifications", []) if item.get("resourceType") != "launch-template"]
    if launched:
        data["tagSpecifications"] = launched
    return {
        **data,
        "arn": call.arn("ec2", f"launch-template/{call.id}"),
        "name": template["LaunchTemplateName"],
        "description": version.get("VersionDescription") or "",
        "defaultVersion": template["DefaultVersionNumber"],
        "latestVersion": template["LatestVersionNumber"],
        "tags": tag_map(template.get("Tags")),
    }


def _update(call: Call) -> None:
    ec2, inputs = call.client("ec2"), call.inputs
    version = inputs.get("defaultVersion")
    if call.changed & (_DATA | {"description"}):
        note = {"VersionDescription": inputs["description"]} if inputs.get("description") else {}
        made = ec2.create_launch_template_version(
            LaunchTemplateId=call.id, LaunchTemplateData=template_data(inputs), **note
        )
        if inputs.get("updateDefaultVersion"):
            version = made["LaunchTemplateVersion"]["VersionNumber"]
    if version is not None:
        ec2.modify_launch_template(LaunchTemplateId=call.id, DefaultVersion=str(int(version)))
    update_tags(call)


def _delete(call: Call) -> None:
    act = lambda: call.client("ec2").delete_launch_template(LaunchTemplateId=call.id)  # noqa: E731
    ignore_absent(act, "InvalidLaunchTemplateId.NotFound")


def _group_create(call: Call) -> str:
    inputs = call.inputs
    call.client("ec2").create_placement_group(
        GroupName=inputs["name"],
        Strategy=inputs["strategy"],
        TagSpecifications=tag_specification(call, "placement-group"),
    )
    return str(inputs["name"])


def _group(call: Call) -> Tree | None:
    code = "InvalidPlacementGroup.Unknown"
    found: Tree | None = first(call, "describe_placement_groups", "PlacementGroups", code, GroupNames=[call.id])
    return found


def _group_read(call: Call) -> Tree | None:
    group = _group(call)
    if group is None:
        return None
    return {
        "name": group["GroupName"],
        "strategy": group["Strategy"],
        "placementGroupId": group["GroupId"],
        "arn": group["GroupArn"],
        "partitionCount": 0,
        "spreadLevel": "",
        "tags": tag_map(group.get("Tags")),
    }


def _group_update(call: Call) -> None:
    update_tags(call, call.state["placementGroupId"])


def _group_delete(call: Call) -> None:
    act = lambda: ignore_absent(  # noqa: E731
        lambda: call.client("ec2").delete_placement_group(GroupName=call.id), "InvalidPlacementGroup.Unknown"
    )
    delete(call, act, f"placement group {call.id}")


ENTRIES: Final = [
    Entry(
        token="aws:ec2/placementGroup:PlacementGroup",
        covers=words("name strategy"),
        replace_on=words("name"),
        only={"strategy": "cluster"},
        naming=Naming(longest=255),
        create=_group_create,
        read=_group_read,
        update=_group_update,
        delete=_group_delete,
    ),
    Entry(
        token="aws:ec2/launchTemplate:LaunchTemplate",
        covers=_DATA | words("name namePrefix description defaultVersion updateDefaultVersion"),
        replace_on=words("name namePrefix"),
        computed=words("defaultVersion"),
        naming=Naming(longest=125),
        one_of=(words("name namePrefix"), words("defaultVersion updateDefaultVersion")),
        recomputed=words("latestVersion defaultVersion"),
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
