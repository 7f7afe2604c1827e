"""The stack's bucket: training code under `code/`, checkpoints under `checkpoints/`."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra import policies
from infra.account import Account
from infra.encryption import Encryption

ABORT_UPLOADS_AFTER_DAYS = 7
KEEP_OLD_VERSIONS_DAYS = 30


def checkpoints_folder(job: str) -> str:
    """Where in the bucket a job's checkpoints lie."""
    return f"checkpoints/{job}"


class Bucket(pulumi.ComponentResource):
    """A private, encrypted, versioned bucket that only takes TLS."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(self, stack: settings.Settings, account: Account, encryption: Encryption) -> None:
        name, protect = stack.name, stack.protect
        super().__init__("tidewater:infra:Bucket", name, None, account.options)
        child = pulumi.ResourceOptions(parent=self)
        bucket = aws.s3.Bucket(
            name,
            force_destroy=not protect,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=protect),
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
        owned = aws.s3.BucketOwnershipControls(
            name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=child
        )
        versioned = aws.s3.BucketVersioning(
            name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=child
        )
        encrypted = aws.s3.BucketServerSideEncryptionConfiguration(
            name,
            bucket=bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": encryption.key_arn,
                    },
                    "bucket_key_enabled": True,  # one call to KMS per bucket and hour instead of one per object
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
                }
            ],
            # S3 wants versioning on before it takes rules about old versions.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[versioned]),
        )
        policy = aws.s3.BucketPolicy(
            name,
            bucket=bucket.id,
            policy=bucket.arn.apply(lambda arn: policies.to_json(policies.bucket_tls_only(arn))),
            # S3 refuses changes of the two at the same time (OperationAborted).
            opts=pulumi.ResourceOptions(parent=self, depends_on=[blocked]),
        )
        self.ready = [encrypted, versioned, owned, policy]
        self.register_outputs({"name": bucket.id})
