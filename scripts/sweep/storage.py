"""What is left of storage: log groups, EFS's daily backups, images that ECR has cached, and empty buckets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from scripts.sweep.model import Clients, Kind, Stack, pages

VAULT = "aws/efs/automatic-backup-vault"
"""Where EFS's automatic backups are, for 35 days: https://docs.aws.amazon.com/efs/latest/ug/automatic-backups.html"""

CACHED = ("ecr", "quay", "k8s", "hub")
"""The folders that the stack's rules have in ECR, as in `infra.image_cache`. Next to them a person may have
repositories of their own under the stack's name, such as one of the trainer's image."""

_DELETE_POINT = "backup:DeleteRecoveryPoint"


def _log_groups(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """EKS makes the control plane's group again when it writes a last line; such a group has no tags.

    terraform-aws-modules/terraform-aws-eks#2763. The next `pulumi up` would fail with ResourceAlreadyExists.
    """
    name = f"/aws/eks/{stack.name}/cluster"
    for group in pages(clients("logs"), "describe_log_groups", "logGroups", logGroupNamePrefix=name):
        if group["logGroupName"] == name:
            yield name, f"{group.get('storedBytes', 0)} bytes"


def _recovery_points(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """AWS Backup gives a recovery point the tags of the file system.

    https://docs.aws.amazon.com/aws-backup/latest/devguide/tags-on-backups.html
    """
    backup = clients("backup")
    if VAULT not in {each["BackupVaultName"] for each in pages(backup, "list_backup_vaults", "BackupVaultList")}:
        return  # EFS makes the vault with the account's first backup
    for point in pages(backup, "list_recovery_points_by_backup_vault", "RecoveryPoints", BackupVaultName=VAULT):
        arn = point["RecoveryPointArn"]
        if stack.owns(backup.list_tags(ResourceArn=arn)["Tags"]):
            yield arn, f"of {point['ResourceArn'].rpartition('/')[2]}, {point['CreationDate']:%Y-%m-%d}"


def without_denial(policy: Mapping[str, Any], action: str) -> dict[str, Any]:
    """Return the policy without its denials of `action`; other denials stay."""
    kept = []
    for statement in policy["Statement"]:
        actions = statement.get("Action", [])
        actions = [actions] if isinstance(actions, str) else actions
        if statement["Effect"] == "Deny" and action in actions:
            statement = {**statement, "Action": [each for each in actions if each != action]}
            if not statement["Action"]:
                continue
        kept.append(statement)
    return {**policy, "Statement": kept}


@contextmanager
def _vault_open(clients: Clients, ids: Sequence[str]) -> Iterator[None]:
    """Let recovery points be deleted meanwhile: the vault's own policy denies it to everyone.

    rebuy-de/aws-nuke#1110 has its text. A policy without statements isn't one, so the vault has none meanwhile then.
    """
    backup = clients("backup")
    try:
        before = backup.get_backup_vault_access_policy(BackupVaultName=VAULT)["Policy"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        yield
        return
    opened = without_denial(json.loads(before), _DELETE_POINT)
    if opened["Statement"]:
        backup.put_backup_vault_access_policy(BackupVaultName=VAULT, Policy=json.dumps(opened))
    else:
        backup.delete_backup_vault_access_policy(BackupVaultName=VAULT)
    try:
        yield
    finally:
        backup.put_backup_vault_access_policy(BackupVaultName=VAULT, Policy=before)


def _is_cached_for(stack: Stack, name: str) -> bool:
    """Return whether ECR caches under this name for the stack: rules have no tags, so the name tells it."""
    return name.split("/")[:2] in ([stack.name, folder] for folder in CACHED)


def _pull_through_rules(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    for rule in pages(clients("ecr"), "describe_pull_through_cache_rules", "pullThroughCacheRules"):
        if _is_cached_for(stack, rule["ecrRepositoryPrefix"]):
            yield rule["ecrRepositoryPrefix"], rule["upstreamRegistryUrl"]


def _repositories(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """ECR makes a repository for each image that is pulled through a rule, and keeps it when the rule goes."""
    for repository in pages(clients("ecr"), "describe_repositories", "repositories"):
        if _is_cached_for(stack, repository["repositoryName"]):
            yield repository["repositoryName"], "with its images"


def _buckets(clients: Clients, stack: Stack) -> Iterator[tuple[str, str]]:
    """One is left if AWS made it and the answer was lost. Tags would have come next, so its name shows the stack.

    The name is Pulumi's automatic one. A bucket with tags or objects is a person's, or of a stack that exists.
    """
    s3 = clients("s3")
    named = re.compile(rf"{re.escape(stack.name)}-[0-9a-f]{{7}}")
    for bucket in pages(s3, "list_buckets", "Buckets", Prefix=f"{stack.name}-"):
        name = bucket["Name"]
        if named.fullmatch(name) and _is_here(s3, name) and not _has_tags(s3, name) and _is_empty(s3, name):
            yield name, "empty, without tags"


def _is_here(s3: Any, bucket: str) -> bool:
    """Return whether a bucket is in the client's region; S3 lists those of all regions."""
    region = s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] or "us-east-1"
    return bool(region == s3.meta.region_name)


def _is_empty(s3: Any, bucket: str) -> bool:
    return {"Versions", "DeleteMarkers"}.isdisjoint(s3.list_object_versions(Bucket=bucket, MaxKeys=1))


def _has_tags(s3: Any, bucket: str) -> bool:
    try:
        return bool(s3.get_bucket_tagging(Bucket=bucket)["TagSet"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchTagSet":
            return False
        raise


LOG_GROUPS = Kind("log group", _log_groups, lambda clients, id_: clients("logs").delete_log_group(logGroupName=id_))
RECOVERY_POINTS = Kind(
    "recovery point",
    _recovery_points,
    lambda clients, id_: clients("backup").delete_recovery_point(BackupVaultName=VAULT, RecoveryPointArn=id_),
    _vault_open,
)
PULL_THROUGH_RULES = Kind(
    "pull-through rule",
    _pull_through_rules,
    lambda clients, id_: clients("ecr").delete_pull_through_cache_rule(ecrRepositoryPrefix=id_),
)
REPOSITORIES = Kind(
    "repository",
    _repositories,
    lambda clients, id_: clients("ecr").delete_repository(repositoryName=id_, force=True),
)
BUCKETS = Kind("bucket", _buckets, lambda clients, id_: clients("s3").delete_bucket(Bucket=id_))
