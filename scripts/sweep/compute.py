"""What is left of nodes in EC2, such as instances, volumes and launch templates, and in IAM: profiles and roles.

IAM has no regions. A stack of the same name in another region has profiles and roles with the same tags, and is alive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scripts.sweep.model import Clients, Kind, Stack, pages, tags_of

ALIVE = ("pending", "running", "stopping", "stopped")


def _instances(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    alive = [{"Name": "instance-state-name", "Values": list(ALIVE)}]
    for reservation in pages(clients("ec2"), "describe_instances", "Reservations", Filters=alive):
        for instance in reservation["Instances"]:
            if stack.owns(tags_of(instance.get("Tags"))):
                yield instance["InstanceId"], f"{instance['InstanceType']}, {instance['State']['Name']}"


def _terminate(clients: Clients, id_: str) -> None:
    clients("ec2").terminate_instances(InstanceIds=[id_])


@contextmanager
def _until_terminated(clients: Clients, ids: Sequence[str]) -> Iterator[None]:
    """Wait at the end: an instance holds its interfaces, security groups and placement group until it is terminated."""
    yield
    clients("ec2").get_waiter("instance_terminated").wait(InstanceIds=list(ids))


def _volumes(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    free = [{"Name": "status", "Values": ["available", "error"]}]
    for volume in pages(clients("ec2"), "describe_volumes", "Volumes", Filters=free):
        if stack.owns(tags_of(volume.get("Tags"))):
            yield volume["VolumeId"], f"{volume['Size']} GiB"


def _launch_templates(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    for template in pages(clients("ec2"), "describe_launch_templates", "LaunchTemplates"):
        if stack.owns(tags_of(template.get("Tags"))):
            yield template["LaunchTemplateId"], template["LaunchTemplateName"]


def _placement_groups(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    for group in clients("ec2").describe_placement_groups()["PlacementGroups"]:
        if stack.owns(tags_of(group.get("Tags"))):
            yield group["GroupName"], group["Strategy"]


def _instance_profiles(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """Karpenter makes one for each EC2NodeClass. The path names its region and cluster; it has the class's tags.

    On a cluster that was there before, another stack's may follow.

    https://karpenter.sh/v1.14/reference/cloudformation/#allowscopedinstanceprofilecreationactions
    """
    iam, here = clients("iam"), f"/karpenter/{region_of(clients)}/"
    for profile in pages(iam, "list_instance_profiles", "InstanceProfiles", PathPrefix="/karpenter/"):
        name, path = profile["InstanceProfileName"], profile["Path"]
        if path.startswith(f"{here}{stack.name}/") or (
            path.startswith(here) and stack.owns(_tags_of_profile(iam, name))
        ):
            yield name, "made by Karpenter"


def _tags_of_profile(iam: Any, name: str) -> dict[str, str]:
    return tags_of(iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"].get("Tags"))


def _delete_profile(clients: Clients, id_: str) -> None:
    iam = clients("iam")
    for role in iam.get_instance_profile(InstanceProfileName=id_)["InstanceProfile"]["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=id_, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=id_)


def _roles(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """One is left if AWS made it and the answer was lost: Pulumi doesn't know of it. The tagging API finds no roles.

    https://docs.aws.amazon.com/resourcegroupstagging/latest/APIReference/supported-services.html
    """
    iam = clients("iam")
    for role in pages(iam, "list_roles", "Roles"):
        name = role["RoleName"]
        if not name.startswith(stack.name) or not stack.owns(tags_of(iam.list_role_tags(RoleName=name)["Tags"])):
            continue
        if region_of(clients) in places(iam.get_role(RoleName=name)["Role"], region_of(clients)):
            yield name, f"made {role['CreateDate']:%Y-%m-%d}"


def region_of(clients: Clients) -> str:
    """Return the region in which the sweep looks."""
    return str(clients("ec2").meta.region_name)


def places(role: Mapping[str, Any], default: str) -> set[str]:
    """Return the regions in which a role may be in use.

    The trust of pods' roles names the cluster. Those of nodes and control plane are used where these are. IAM knows the
    region in which a role was used last: https://docs.aws.amazon.com/IAM/latest/APIReference/API_RoleLastUsed.html
    """
    trust = json.dumps(role["AssumeRolePolicyDocument"])
    named = set(re.findall(r":eks:([a-z0-9-]+):[0-9]*:cluster/", trust))
    return named or {role.get("RoleLastUsed", {}).get("Region") or default}


def _delete_role(clients: Clients, id_: str) -> None:
    iam = clients("iam")
    for policy in pages(iam, "list_attached_role_policies", "AttachedPolicies", RoleName=id_):
        iam.detach_role_policy(RoleName=id_, PolicyArn=policy["PolicyArn"])
    for name in pages(iam, "list_role_policies", "PolicyNames", RoleName=id_):
        iam.delete_role_policy(RoleName=id_, PolicyName=name)
    iam.delete_role(RoleName=id_)


INSTANCES = Kind("instance", _instances, _terminate, _until_terminated)
VOLUMES = Kind("volume", _volumes, lambda clients, id_: clients("ec2").delete_volume(VolumeId=id_))
LAUNCH_TEMPLATES = Kind(
    "launch template",
    _launch_templates,
    lambda clients, id_: clients("ec2").delete_launch_template(LaunchTemplateId=id_),
)
PLACEMENT_GROUPS = Kind(
    "placement group",
    _placement_groups,
    lambda clients, id_: clients("ec2").delete_placement_group(GroupName=id_),
)
INSTANCE_PROFILES = Kind("instance profile", _instance_profiles, _delete_profile)
ROLES = Kind("role", _roles, _delete_role)
