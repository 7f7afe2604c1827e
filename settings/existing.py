"""What was there before the stack in addition to a VPC, as the configuration names it: a cluster, file systems, roles.

existing.cluster(read)          # None, or the cluster that `clusterName` names
existing.file_system(read)      # "", or what `fileSystemId` names
existing.lustre(read)           # None, or the FSx for Lustre file system that `lustre` names
existing.roles(read)            # {}, or the ARNs in `roleArns`
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settings.reader import Reader

_CLUSTER = r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}"
"""https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html"""

_FILE_SYSTEM = r"fs-[0-9a-f]{8,40}"
"""https://docs.aws.amazon.com/efs/latest/ug/API_FileSystemDescription.html"""

_LUSTRE_KEYS = {
    "fileSystemId": (r"fs-[0-9a-f]{8,18}", "the id of an FSx file system such as fs-0123456789abcdef0"),
    "mountName": (r"[A-Za-z0-9_-]{1,8}", "the mount name of the file system, 1 to 8 letters, digits, _ and -"),
}
"""Patterns of https://docs.aws.amazon.com/fsx/latest/APIReference/API_LustreFileSystemConfiguration.html"""

_ROLE_ARN = r"arn:aws[a-z-]*:iam::\d{12}:role/([!-~]+/)?[\w+=,.@-]{1,64}"
AWS_PATHS = ("/aws-reserved/", "/aws-service-role/")
"""Of AWS's own roles. https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html"""

_ROLES = ("cluster", "node", "efs-csi", "trainer", "s3-csi", "flow-logs", "team-NAME", "surge-node", "karpenter")
"""All that `Settings.role_names` may have."""

ROLE_KEYS: Mapping[str, str] = {"rolePath": "/", "permissionsBoundary": ""}
"""The keys that are for roles that the stack makes, with their defaults."""

FILE_KEYS: Mapping[str, Any] = {"fileThroughput": "elastic"}
CLUSTER_KEYS: Mapping[str, Any] = {
    "publicAccessCidrs": [],
    "publicAccessFromAnywhere": False,
    "adminArns": [],
    "logRetentionDays": 365,
}
"""The keys that set up a cluster of the stack's own, with the defaults that the engine fills in."""

_UNSET = "remove it, or remove clusterName"


@dataclass(frozen=True)
class ExistingCluster:
    """An EKS cluster that was there before the stack. All but the name is empty until AWS is asked."""

    name: str
    endpoint: str = ""
    """URL of its API server."""
    certificate: str = ""
    """Of its certificate authority, in base64."""
    security_group_id: str = ""
    """The group that EKS made for it."""
    service_range: str = ""
    """The network of its services."""


@dataclass(frozen=True)
class Lustre:
    """An FSx for Lustre file system that was there before the stack."""

    id: str
    mount_name: str
    """The name that clients mount it by; FSx chooses it."""


def cluster(read: Reader) -> ExistingCluster | None:
    """Return the cluster. Whether it is as the stack needs it is for `infra.preflight`."""
    name = read.text("clusterName", f"({_CLUSTER})?", "the name of an EKS cluster, or empty")
    if not name:
        return None
    if not read.config.get("vpcId") and read.are_right("vpcId"):
        read.wrong("clusterName", name, "needs vpcId and privateSubnetIds: its VPC, and the subnets for the nodes")
    for key, default in CLUSTER_KEYS.items():
        value = _plain(read.config.get(key, default))
        if value != default and read.are_right(key):
            shown = value if isinstance(value, str | int) and not isinstance(value, bool) else json.dumps(value)
            read.wrong(key, shown, f"is for a cluster that the stack makes, and clusterName names one; {_UNSET}")
    if read.config.get("datasetStorage") == "s3" and read.are_right("datasetStorage"):
        remedy = "needs the rights of the cluster's S3 driver, and clusterName names a cluster of others; set it to efs"
        read.wrong("datasetStorage", "s3", remedy)
    return ExistingCluster(name)


def file_system(read: Reader) -> str:
    """Return the id of the file system; empty if the stack makes one."""
    id_ = read.text(
        "fileSystemId", f"({_FILE_SYSTEM})?", "the id of a file system such as fs-0123456789abcdef0, or empty"
    )
    if not id_:
        return ""
    if not read.config.get("vpcId") and read.are_right("vpcId"):
        read.wrong("fileSystemId", id_, "needs vpcId and privateSubnetIds: the VPC in which it has mount targets")
    for key, default in FILE_KEYS.items():
        value = str(read.config.get(key, default))
        if value != default and read.are_right(key):
            read.wrong(key, value, "is for a file system that the stack makes; remove it, or remove fileSystemId")
    return id_


def lustre(read: Reader) -> Lustre | None:
    """Return the FSx for Lustre file system; None without one. Whether it is there is for `infra.preflight`."""
    given = read.text_map("lustre")
    if not given or not read.are_right("lustre", *(f"lustre.{key}" for key in given)):
        return None
    if given.keys() != _LUSTRE_KEYS.keys():
        read.wrong("lustre", ", ".join(given), f"must have the keys {' and '.join(_LUSTRE_KEYS)}, and no others")
        return None
    part = read.part("lustre", given)
    found = Lustre(*(part.text(key, *rule) for key, rule in _LUSTRE_KEYS.items()))
    if not read.config.get("vpcId") and read.are_right("vpcId"):
        read.wrong("lustre", found.id, "needs vpcId and privateSubnetIds: the VPC in which clients reach it")
    return found


def roles(read: Reader) -> Mapping[str, str]:
    """Return the ARNs of the roles, by their short names; empty if the stack makes its roles."""
    arns = read.text_map("roleArns")
    first: dict[str, str] = {}
    for name, arn in arns.items():
        if not read.are_right(f"roleArns.{name}"):
            continue
        if name not in _ROLES and not name.startswith("team-"):
            read.wrong("roleArns", name, f"no role has this name; they are {', '.join(_ROLES)}")
        elif not re.fullmatch(_ROLE_ARN, arn):
            read.wrong(f"roleArns.{name}", arn or '""', "must be the ARN of an IAM role")
        elif arn.partition(":role")[2].startswith(AWS_PATHS):
            read.wrong(f"roleArns.{name}", arn, "belongs to AWS, which uses it for other things; name another role")
        elif (other := first.setdefault(arn, name)) != name:
            read.wrong(f"roleArns.{name}", arn, f"is the role of {other} too; each needs one of its own")
    for key, default in ROLE_KEYS.items():
        value = read.config.get(key, default)
        if arns and value != default and read.are_right(key):
            read.wrong(key, value, "is for roles that the stack makes, and roleArns names all of them; remove it")
    return arns


def check_roles(read: Reader, arns: Mapping[str, str], needed: Sequence[str]) -> None:
    """Check that all roles of the config are given, or none. Which ones it has is certain once the rest is right."""
    if not arns or arns.keys() == {*needed} or read.mistakes:
        return
    parts = {"lacks": {*needed} - arns.keys(), "has no use for": arns.keys() - {*needed}}
    found = "; ".join(f"{verb} {', '.join(sorted(names))}" for verb, names in parts.items() if names)
    read.wrong("roleArns", ", ".join(arns), f"{found}; this config needs all of {', '.join(needed)}, and no others")


def _plain(value: object) -> object:
    """Return a value as YAML has it: Pulumi stores text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
