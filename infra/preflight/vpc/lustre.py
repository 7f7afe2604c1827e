"""Whether the FSx for Lustre file system is as the stack needs it: it mounts it, and makes nothing of it.

The plug-in has no function that reads one, so `look` asks with the `aws` that the kubeconfig starts. The rest is pure.
https://docs.aws.amazon.com/fsx/latest/APIReference/API_DescribeFileSystems.html
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import settings
from infra.preflight import login

KIND = "LUSTRE"
USABLE = ("AVAILABLE", "UPDATING")
"""https://docs.aws.amazon.com/fsx/latest/APIReference/API_FileSystem.html (Lifecycle)"""

PORT = 988
"""And 1018 to 1023: https://docs.aws.amazon.com/fsx/latest/LustreGuide/cannot-create-fs.html"""

CLUSTERS_GROUP = "eks-cluster-sg-"
"""With it begin the names of groups that EKS makes, in which nodes are.
https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html"""

_ABSENT = "FileSystemNotFound"
Described = Mapping[str, Any]


@dataclass(frozen=True)
class Lustre:
    """What AWS says of the file system.

    Attributes:
        described: by FSx; empty if the region has none.
        groups: the security groups of its network interfaces, described by EC2; empty if that can't be asked.
        error: why FSx said nothing.
    """

    described: Described = field(default_factory=dict)
    groups: tuple[Described, ...] = ()
    error: str = ""


class _Refused(Exception):
    """A command has failed, with what it wrote."""


_NO_ANSWER = (OSError, ValueError, KeyError, TypeError, _Refused)
"""What is raised if `aws` isn't there, fails, or prints something else than AWS's answer."""


def look(stack: settings.Settings, aws: login.Run) -> Lustre | None:
    """Return what AWS says; None if the stack names no file system."""
    if stack.lustre is None:
        return None

    def ask(*words: str) -> Any:
        ended = aws(login.command(stack, *words))
        if ended.status != 0:
            raise _Refused(ended.error.strip() or "it gave no answer")
        return json.loads(ended.out)

    try:
        (about,) = ask("fsx", "describe-file-systems", "--file-system-ids", stack.lustre.id)["FileSystems"]
    except _NO_ANSWER as error:
        return Lustre() if _ABSENT in str(error) else Lustre(error=str(error))
    try:
        return Lustre(about, _groups(about, ask))
    except _NO_ANSWER:
        return Lustre(about)


def _groups(about: Described, ask: Callable[..., Any]) -> tuple[Described, ...]:
    """Return the security groups of the network interfaces, which all have the same."""
    interfaces = about.get("NetworkInterfaceIds", [])[:1]
    if not interfaces:
        return ()
    (found,) = ask("ec2", "describe-network-interfaces", "--network-interface-ids", *interfaces)["NetworkInterfaces"]
    ids = [each["GroupId"] for each in found["Groups"]]
    return tuple(ask("ec2", "describe-security-groups", "--group-ids", *ids)["SecurityGroups"])


def mistakes(stack: settings.Settings, found: Lustre | None) -> list[str]:
    """Return why nodes of the stack could not mount the file system."""
    if stack.lustre is None or found is None or found.error:
        return []
    id_, name, about = stack.lustre.id, stack.lustre.mount_name, found.described
    named, there = f"lustre.fileSystemId = {id_}: ", about.get("LustreConfiguration", {}).get("MountName")
    if not about:
        return [f"{named}{stack.region} has no such file system; correct it, or the region"]
    if (kind := about.get("FileSystemType")) != KIND:
        return [f"{named}is of the type {kind}; name one of the type {KIND}"]
    wrong = []
    if (state := about.get("Lifecycle")) not in USABLE:
        wrong.append(f"{named}is {state}, so nodes can't mount it; wait until it is AVAILABLE, or name another")
    if stack.network.existing and (vpc := about.get("VpcId")) != stack.network.existing.id:
        wrong.append(f"{named}is in {vpc}, and the stack is in {stack.network.existing.id}; name one that is there")
    if there != name:
        wrong.append(f"lustre.mountName = {name}: the mount name of {id_} is {there}; set it to that")
    return wrong


def warnings(stack: settings.Settings, found: Lustre | None) -> list[str]:
    """Return what keeps nodes from it as far as can be seen, and what could not be checked."""
    if stack.lustre is None or found is None:
        return []
    if found.error:
        return [
            "the FSx for Lustre file system could not be checked. To have it checked, allow fsx:DescribeFileSystems to "
            f"`aws`, with which the cluster's kubeconfig logs in. The error: {found.error}"
        ]
    if not found.groups or _lets_in(stack, found.groups):
        return []
    first, ids = found.groups[0]["GroupId"], ", ".join(each["GroupId"] for each in found.groups)
    return [
        f"lustre.fileSystemId = {stack.lustre.id}: its security groups ({ids}) let in TCP port {PORT} from no address "
        "of the VPC and from no other group, so nodes can't mount it; let in that port and 1018 to 1023 from the "
        f"cluster's security group: aws ec2 authorize-security-group-ingress --group-id {first} --protocol tcp --port "
        f"{PORT} --source-group GROUP"
    ]


def _lets_in(stack: settings.Settings, groups: Sequence[Described]) -> bool:
    """Return whether clients that have none of the groups may get in: nodes have the cluster's."""
    own = {each["GroupId"] for each in groups if not each["GroupName"].startswith(CLUSTERS_GROUP)}
    vpc = [ipaddress.IPv4Network(each) for each in stack.network.cidrs]

    def lets_in(rule: Described) -> bool:
        if rule["IpProtocol"] not in ("-1", "tcp") or not rule.get("FromPort", 0) <= PORT <= rule.get("ToPort", PORT):
            return False
        ranges = [ipaddress.IPv4Network(each["CidrIp"]) for each in rule.get("IpRanges", ())]
        others = [each for each in rule.get("UserIdGroupPairs", ()) if each["GroupId"] not in own]
        near = [each for each in ranges if any(each.overlaps(range_) for range_ in vpc)]
        return bool(others or near or rule.get("PrefixListIds"))

    return any(lets_in(rule) for each in groups for rule in each["IpPermissions"])
