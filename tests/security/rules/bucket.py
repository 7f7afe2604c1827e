"""Rules for S3."""

from __future__ import annotations

from tests.security.changes import Statement, documents, drop, edit, put, statements, unset
from tests.security.rules.rule import Check, Rule, each_in, must
from tests.security.stack import Resource, Stack

BUCKET = "aws:s3/bucket:Bucket"
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
POLICY = "aws:s3/bucketPolicy:BucketPolicy"

BY_DEFAULT = "rules.0.applyServerSideEncryptionByDefault"


def _blocks(switch: str) -> Check:
    def wrong(stack: Stack, bucket: Resource) -> str | None:
        blocks = stack.attached(BLOCK, "bucket", bucket)
        return must([each for each in blocks if each.get(switch) is True], f"{switch} is not on")

    return each_in(BUCKET, wrong)


def _has_block(stack: Stack, bucket: Resource) -> str | None:
    return must(stack.attached(BLOCK, "bucket", bucket), "no public access block")


def _versioned(stack: Stack, bucket: Resource) -> str | None:
    found = stack.attached(VERSIONING, "bucket", bucket)
    return must([each for each in found if each.get("versioningConfiguration.status") == "Enabled"], "no versions")


def _encrypted(stack: Stack, bucket: Resource) -> str | None:
    found = [each.get(BY_DEFAULT) or {} for each in stack.attached(ENCRYPTION, "bucket", bucket)]
    with_key = [
        each for each in found if each.get("sseAlgorithm") == "aws:kms" and stack.has_key(each.get("kmsMasterKeyId"))
    ]
    return must(with_key, "objects are not encrypted with the stack's key by default")


def _lifecycle(stack: Stack, bucket: Resource) -> list[dict[str, object]]:
    rules = [rule for each in stack.attached(LIFECYCLE, "bucket", bucket) for rule in each.get("rules") or ()]
    return [rule for rule in rules if rule.get("status") == "Enabled"]


def _tidied(stack: Stack, bucket: Resource) -> str | None:
    return must(_lifecycle(stack, bucket), "no lifecycle")


def _uploads_end(stack: Stack, bucket: Resource) -> str | None:
    rules = _lifecycle(stack, bucket)
    return must([rule for rule in rules if rule.get("abortIncompleteMultipartUpload")], "parts of uploads are kept")


def _statements(stack: Stack, bucket: Resource, effect: str) -> list[Statement]:
    found = [document for each in stack.attached(POLICY, "bucket", bucket) for _, document in documents(each)]
    return [statement for document in found for statement in statements(document) if statement["Effect"] == effect]


def _tls(stack: Stack, bucket: Resource) -> str | None:
    tls_only = {"Bool": {"aws:SecureTransport": "false"}}
    denied = [each for each in _statements(stack, bucket, "Deny") if each.get("Condition") == tls_only]
    both = {bucket.arn, f"{bucket.arn}/*"}
    return must([each for each in denied if both <= set(each["Resource"])], "requests without TLS are accepted")


def _no_stranger(stack: Stack, bucket: Resource) -> str | None:
    anybody = [each for each in _statements(stack, bucket, "Allow") if each["Principal"] in ("*", {"AWS": "*"})]
    return must(not anybody, "its policy allows something to everybody")


def _allow(statement: Statement) -> None:
    statement.update(Effect="Allow")


SWITCHES = {
    "CKV_AWS_53": "blockPublicAcls",
    "CKV_AWS_54": "blockPublicPolicy",
    "CKV_AWS_55": "ignorePublicAcls",
    "CKV_AWS_56": "restrictPublicBuckets",
}

RULES = (
    *(
        Rule(
            id_,
            f"the bucket's block `{switch}` is on",
            _blocks(switch),
            (put(BLOCK, switch, False), unset(BLOCK, switch), drop(BLOCK)),
        )
        for id_, switch in SWITCHES.items()
    ),
    Rule("CKV2_AWS_6", "the bucket has a public access block", each_in(BUCKET, _has_block), (drop(BLOCK),)),
    Rule(
        "CKV_AWS_21",
        "the bucket keeps versions",
        each_in(BUCKET, _versioned),
        (put(VERSIONING, "versioningConfiguration.status", "Suspended"), drop(VERSIONING)),
    ),
    Rule(
        "CKV_AWS_145",
        "objects are encrypted with a customer's key by default",
        each_in(BUCKET, _encrypted),
        (
            put(ENCRYPTION, f"{BY_DEFAULT}.sseAlgorithm", "AES256"),
            unset(ENCRYPTION, f"{BY_DEFAULT}.kmsMasterKeyId"),
            drop(ENCRYPTION),
        ),
    ),
    Rule(
        "s3_bucket_secure_transport_policy",
        "the bucket accepts requests over TLS only",
        each_in(BUCKET, _tls),
        (drop(POLICY), edit([POLICY], "policy", lambda statement: statement.pop("Condition"), effect="Deny")),
    ),
    Rule(
        "CKV_AWS_70",
        "the bucket's policy allows nothing to everybody",
        each_in(BUCKET, _no_stranger),
        (edit([POLICY], "policy", _allow, effect="Deny"),),
    ),
    Rule(
        "CKV_AWS_300",
        "parts of failed uploads are deleted",
        each_in(BUCKET, _uploads_end),
        (unset(LIFECYCLE, "rules.0.abortIncompleteMultipartUpload"), drop(LIFECYCLE)),
    ),
    Rule(
        "CKV2_AWS_61",
        "the bucket has a lifecycle",
        each_in(BUCKET, _tidied),
        (put(LIFECYCLE, "rules", [{"status": "Disabled"}]), drop(LIFECYCLE)),
    ),
)
