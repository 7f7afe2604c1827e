"""Rules for KMS, CloudWatch Logs, SQS and ECR."""

from __future__ import annotations

from tests.security.changes import add, drop, put, unset
from tests.security.rules.control_plane import CLUSTER
from tests.security.rules.rule import Rule, each, each_in, must
from tests.security.stack import Resource, Stack

KEY = "aws:kms/key:Key"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
QUEUE = "aws:sqs/queue:Queue"
REPOSITORY = "aws:ecr/repository:Repository"

YEAR_DAYS = 365


def _kept(group: Resource) -> str | None:
    return must(group.get("retentionInDays"), "no retention is set")


def _kept_for_a_year(group: Resource) -> str | None:
    return must((group.get("retentionInDays") or 0) >= YEAR_DAYS, "kept for less than a year")


def _with_key(stack: Stack, group: Resource) -> str | None:
    return must(stack.has_key(group.get("kmsKeyId")), "not encrypted with the stack's key")


def _has_log_group(stack: Stack, cluster: Resource) -> str | None:
    names = {group.get("name") for group in stack.of(LOG_GROUP)}
    return must(f"/aws/eks/{cluster.get('name')}/cluster" in names, "EKS makes a log group that is kept for ever")


def _sealed(queue: Resource) -> str | None:
    return must(queue.get("sqsManagedSseEnabled") or queue.get("kmsMasterKeyId"), "messages are not encrypted")


def _encrypted_images(stack: Stack, repository: Resource) -> str | None:
    (found, *_) = repository.get("encryptionConfigurations") or [{}]
    return must(stack.has_key(found.get("kmsKey")), "images are not encrypted with the stack's key")


RULES = (
    Rule(
        "CKV_AWS_7",
        "keys rotate",
        each(KEY, lambda key: must(key.get("enableKeyRotation") is True, "does not rotate")),
        (put(KEY, "enableKeyRotation", False), unset(KEY, "enableKeyRotation")),
    ),
    Rule(
        "CKV_AWS_66",
        "log groups say how long they keep logs",
        each(LOG_GROUP, _kept),
        (unset(LOG_GROUP, "retentionInDays"),),
    ),
    Rule(
        "CKV_AWS_338",
        "logs are kept for a year",
        each(LOG_GROUP, _kept_for_a_year),
        (put(LOG_GROUP, "retentionInDays", 30), unset(LOG_GROUP, "retentionInDays")),
    ),
    Rule(
        "CKV_AWS_158",
        "logs are encrypted with a customer's key",
        each_in(LOG_GROUP, _with_key),
        (unset(LOG_GROUP, "kmsKeyId"),),
    ),
    Rule(
        "TW_LOG_GROUP",
        "the control plane writes to a log group of the stack",
        each_in(CLUSTER, _has_log_group),
        (drop(LOG_GROUP), put(LOG_GROUP, "name", "/aws/eks/other/cluster")),
        own_source="https://docs.aws.amazon.com/eks/latest/userguide/control-plane-logs.html",
    ),
    Rule(
        "CKV_AWS_27",
        "queues are encrypted",
        each(QUEUE, _sealed),
        (put(QUEUE, "sqsManagedSseEnabled", False),),
    ),
    Rule(
        "CKV_AWS_51",
        "tags of images don't change",
        each(REPOSITORY, lambda found: must(found.get("imageTagMutability") == "IMMUTABLE", "tags can be moved")),
        (add(REPOSITORY, imageTagMutability="MUTABLE"),),
    ),
    Rule(
        "CKV_AWS_163",
        "images are scanned",
        each(REPOSITORY, lambda found: must(found.get("imageScanningConfiguration.scanOnPush"), "not scanned")),
        (add(REPOSITORY, imageScanningConfiguration={"scanOnPush": False}),),
    ),
    Rule(
        "CKV_AWS_136",
        "images are encrypted with a customer's key",
        each_in(REPOSITORY, _encrypted_images),
        (add(REPOSITORY, encryptionConfigurations=[{"encryptionType": "AES256"}]),),
    ),
)
