"""Rules for EFS."""

from __future__ import annotations

import json

from tests.security.changes import documents, drop, edit, into_public_subnet, put, statements, unset
from tests.security.rules.rule import Rule, each, each_in, must
from tests.security.stack import Resource, Stack

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
BACKUP = "aws:efs/backupPolicy:BackupPolicy"
ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"
TARGET = "aws:efs/mountTarget:MountTarget"

MOUNTED = "elasticfilesystem:AccessedViaMountTarget"
TLS_ONLY = {"Bool": {"aws:SecureTransport": "false"}}


def _with_key(stack: Stack, found: Resource) -> str | None:
    return must(stack.has_key(found.get("kmsKeyId")), "not with the stack's key")


def _backed_up(stack: Stack, found: Resource) -> str | None:
    policies = stack.attached(BACKUP, "fileSystemId", found)
    return must([each for each in policies if each.get("backupPolicy.status") == "ENABLED"], "no backups")


def _from_inside(stack: Stack, found: Resource) -> str | None:
    policies = stack.attached(POLICY, "fileSystemId", found)
    if not policies:
        return "no policy: whoever reaches a mount target may mount it"
    allowed = [
        statement
        for policy in policies
        for _, document in documents(policy)
        for statement in statements(document)
        if statement["Effect"] == "Allow"
    ]
    open_ = [each for each in allowed if MOUNTED not in json.dumps(each.get("Condition", {}))]
    return must(not open_, "others than clients in the VPC may mount it")


def _tls(stack: Stack, found: Resource) -> str | None:
    documents_ = [doc for policy in stack.attached(POLICY, "fileSystemId", found) for _, doc in documents(policy)]
    denied = [each for doc in documents_ for each in statements(doc) if each["Effect"] == "Deny"]
    return must([each for each in denied if each.get("Condition") == TLS_ONLY], "mounts without TLS are accepted")


def _is_private(stack: Stack, target: Resource) -> str | None:
    return must(target.get("subnetId") not in stack.public_subnets(), "in a public subnet")


def _firewalled(target: Resource) -> str | None:
    return must(target.get("securityGroups"), "in the VPC's default security group")


def _root(point: Resource) -> str | None:
    return must(point.get("rootDirectory.path") not in (None, "", "/"), "its root is that of the file system")


RULES = (
    Rule(
        "CKV_AWS_42",
        "the file system is encrypted",
        each(FILE_SYSTEM, lambda found: must(found.get("encrypted") is True, "not encrypted")),
        (put(FILE_SYSTEM, "encrypted", False), unset(FILE_SYSTEM, "encrypted")),
    ),
    Rule(
        "CKV_AWS_184",
        "the file system is encrypted with a customer's key",
        each_in(
            FILE_SYSTEM, lambda stack, found: must(stack.has_key(found.get("kmsKeyId")), "not with the stack's key")
        ),
        (unset(FILE_SYSTEM, "kmsKeyId"), put(FILE_SYSTEM, "kmsKeyId", "arn:aws:kms:us-west-2:1:alias/aws/efs")),
    ),
    Rule(
        "CKV_AWS_329",
        "an access point has a root of its own",
        each(ACCESS_POINT, _root),
        (put(ACCESS_POINT, "rootDirectory.path", "/"), unset(ACCESS_POINT, "rootDirectory")),
    ),
    Rule(
        "CKV_AWS_330",
        "an access point has a user of its own, who is not root",
        each(
            ACCESS_POINT,
            lambda point: must(point.get("posixUser.uid"), "files are made as the client wants, or as root"),
        ),
        (unset(ACCESS_POINT, "posixUser"), put(ACCESS_POINT, "posixUser.uid", 0)),
    ),
    Rule(
        "efs_have_backup_enabled",
        "the file system is backed up",
        each_in(FILE_SYSTEM, _backed_up),
        (put(BACKUP, "backupPolicy.status", "DISABLED"), drop(BACKUP)),
    ),
    Rule(
        "efs_mount_target_not_publicly_accessible",
        "mount targets are private",
        each_in(TARGET, _is_private),
        (into_public_subnet(TARGET, "subnetId", str),),
    ),
    Rule(
        "efs_not_publicly_accessible",
        "only clients in the VPC mount the file system",
        each_in(FILE_SYSTEM, _from_inside),
        (drop(POLICY), edit([POLICY], "policy", lambda statement: statement.pop("Condition"))),
    ),
    Rule(
        "TW_EFS_TLS",
        "mounts use TLS",
        each_in(FILE_SYSTEM, _tls),
        (drop(POLICY), edit([POLICY], "policy", lambda statement: statement.pop("Condition"), effect="Deny")),
        own_source="https://docs.aws.amazon.com/efs/latest/ug/encryption-in-transit.html",
    ),
    Rule(
        "TW_EFS_GROUP",
        "mount targets have a security group of their own",
        each(TARGET, _firewalled),
        (unset(TARGET, "securityGroups"),),
        own_source="https://docs.aws.amazon.com/efs/latest/ug/network-access.html",
    ),
)
