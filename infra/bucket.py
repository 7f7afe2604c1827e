"""The stack's bucket: training code under `code/`, checkpoints under `checkpoints/`."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import policies
from infra.policies.roles import CHECKPOINTS

ABORT_UPLOADS_AFTER_DAYS = 7
KEEP_OLD_VERSIONS_DAYS = 30
KEEP_OLD_CHECKPOINTS_DAYS = 1
"""A checkpoint that another one has replaced is large, and of no use after a day. Of two rules S3 takes the shorter:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/lifecycle-conflicts.html"""


@dataclass(frozen=True)
class BucketArgs:
    """The KMS key of the objects; `protect` refuses to delete the bucket while it is set."""

    key_arn: pulumi.Input[str]
    protect: bool


class Bucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket that accepts requests over TLS only."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:Bucket", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        bucket = aws.s3.Bucket(
            name,
            force_destroy=not args.protect,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        self.name = bucket.id
        self.arn = bucket.arn
        blocked = aws.s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        aws.s3.BucketOwnershipControls(
            name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=child
        )
        versioned = aws.s3.BucketVersioning(
            name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=child
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            name,
            bucket=bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": args.key_arn,
                    },
                    "bucket_key_enabled": True,  # S3 then calls KMS once per bucket and hour, not once per object
                }
            ],
            opts=child,
        )
        aws.s3.BucketLifecycleConfiguration(
            name,
            bucket=bucket.id,
            rules=[
                {
                    "id": "tidy",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": ABORT_UPLOADS_AFTER_DAYS},
                    "noncurrent_version_expiration": {"noncurrent_days": KEEP_OLD_VERSIONS_DAYS},
                },
                {
                    "id": "checkpoints",
                    "status": "Enabled",
                    "filter": {"prefix": f"{CHECKPOINTS}/"},
                    "noncurrent_version_expiration": {"noncurrent_days": KEEP_OLD_CHECKPOINTS_DAYS},
                },
            ],
            # S3 accepts rules about old versions only once versioning is on.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[versioned]),
        )
        aws.s3.BucketPolicy(
            name,
            bucket=bucket.id,
            policy=bucket.arn.apply(lambda arn: policies.to_json(policies.bucket_tls_only(arn))),
            # S3 refuses to change both at the same time (OperationAborted).
            opts=pulumi.ResourceOptions(parent=self, depends_on=[blocked]),
        )
        self.register_outputs({"name": bucket.id})
