"""IAM, KMS, S3 and EFS policy documents of everything but Karpenter, and the form of all documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]


def to_json(document: Document) -> str:
    """Return the document as JSON, with its keys in a stable order."""
    return json.dumps(document, sort_keys=True)


def document(*statements: Document) -> Document:
    """Return a policy document of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def service_trust(service: str, *actions: str) -> Document:
    """Return a trust policy that lets one AWS service, and no other principal, assume the role."""
    return document({"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)})


def pod_identity_trust(cluster_arn: str, namespace: str, service_account: str) -> Document:
    """Return a trust policy that lets EKS Pod Identity assume the role for one service account of one cluster.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
    """
    return document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": {
                "StringEquals": {
                    "aws:RequestTag/eks-cluster-arn": cluster_arn,
                    "aws:RequestTag/kubernetes-namespace": namespace,
                    "aws:RequestTag/kubernetes-service-account": service_account,
                }
            },
        }
    )


def encryption_key(account: str, region: str, partition: str, log_groups: Sequence[str]) -> Document:
    """Return a key policy: IAM policies control the key, and CloudWatch Logs may use it for these log groups, if any.

    https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    arns = [f"arn:{partition}:logs:{region}:{account}:log-group:{name}" for name in log_groups]
    administered = {
        "Sid": "AdministeredThroughIam",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:{partition}:iam::{account}:root"},
        "Action": "kms:*",
        "Resource": "*",  # in a key's policy this means the key itself
    }
    if not log_groups:
        return document(administered)
    logs = {
        "Sid": "Logs",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{region}.amazonaws.com"},
        "Action": ["kms:Encrypt*", "kms:Decrypt*", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"],
        "Resource": "*",
        "Condition": {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": arns}},
    }
    return document(administered, logs)


def flow_logs(log_group_arn: str) -> Document:
    """Return what VPC flow logs may do: write to one log group, which exists.

    Without logs:CreateLogGroup: a last delivery would make the group again that a destroy has deleted.
    https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html
    """
    return document(
        {
            "Sid": "Write",
            "Effect": "Allow",
            "Action": [
                "logs:CreateLogStream",
                "logs:PutLogEvents",
                "logs:DescribeLogGroups",
                "logs:DescribeLogStreams",
            ],
            "Resource": [log_group_arn, f"{log_group_arn}:*"],
        }
    )


def bucket_tls_only(bucket_arn: str) -> Document:
    """Return a bucket policy that denies every request without TLS."""
    return document(
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket_arn, f"{bucket_arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    )


def file_system(file_system_arn: str, access_point_arn: str) -> Document:
    """Return a file system policy: clients mount over TLS, from the VPC, through one access point, and not as root."""
    return document(
        {
            "Sid": "ThroughTheAccessPoint",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            "Resource": file_system_arn,
            "Condition": {
                "Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"},
                "StringEquals": {"elasticfilesystem:AccessPointArn": access_point_arn},
            },
        },
        _mounts_over_tls(file_system_arn),
    )


def file_system_by_iam(file_system_arn: str, access_point_arns: Sequence[str]) -> Document:
    """Return a file system policy that allows nothing: only a role with `mount` can mount the file system.

    Any policy takes the place of EFS's default, which lets in clients without credentials. Where it says nothing, the
    policies of the client's role decide. It denies what goes around the access points, also to administrators.
    https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
    """
    return document(
        {
            "Sid": "ThroughTheAccessPoints",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": [f"elasticfilesystem:Client{each}" for each in ("Mount", "Write", "RootAccess")],
            "Resource": file_system_arn,
            "Condition": {"StringNotEquals": {"elasticfilesystem:AccessPointArn": list(access_point_arns)}},
        },
        _mounts_over_tls(file_system_arn),
    )


def mount(file_system_arn: str, access_point_arns: Sequence[str]) -> Document:
    """Return what a node's role needs to mount volumes of these access points for its pods, and not as root.

    A pattern in place of their ARNs compares as one.
    """
    compare = "StringLike" if any("*" in each for each in access_point_arns) else "StringEquals"
    return document(
        {
            "Sid": "MountVolumes",
            "Effect": "Allow",
            "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            "Resource": file_system_arn,
            "Condition": {
                "Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"},
                compare: {"elasticfilesystem:AccessPointArn": list(access_point_arns)},
            },
        }
    )


def _mounts_over_tls(file_system_arn: str) -> Document:
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "*",
        "Resource": file_system_arn,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def trainer(
    bucket_arn: str,
    key_arn: str,
    *,
    key_alias: str = "",
    checkpoints: str | None = None,
    dataset: str | None = None,
    dataset_key: str = "",
) -> Document:
    """Return what the training pods may do: read the code, keep checkpoints, read their dataset.

    They may list their own prefixes, since S3 answers 403 instead of 404 for a missing key that one may not list.

    Args:
        bucket_arn: the stack's bucket.
        key_arn: the key that the bucket's objects are encrypted with.
        key_alias: an alias that the key must have, if `key_arn` is a pattern.
        checkpoints: the bucket's folder for the job's checkpoints, if they go to S3.
        dataset: ARN of the dataset's object, if it comes from S3.
        dataset_key: ARN of the customer's key that it is encrypted with, if any.
    """
    folders = ["code/*", *([f"{checkpoints}/*"] if checkpoints else [])]
    statements: list[Document] = [
        {
            "Sid": "ReadCode",
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": f"{bucket_arn}/code/*",
        },
        _list_their_own(bucket_arn, folders),
        _use_the_buckets_key(key_arn, key_alias, ["kms:Decrypt", *(["kms:GenerateDataKey"] if checkpoints else [])]),
    ]
    if checkpoints is not None:
        statements += _keep("KeepCheckpoints", bucket_arn, checkpoints)
    if dataset is not None:
        statements.append({"Sid": "ReadDataset", "Effect": "Allow", "Action": "s3:GetObject", "Resource": dataset})
        statements += _decrypt_dataset(dataset_key)
    return document(*statements)


def _decrypt_dataset(key_arn: str) -> list[Document]:
    """Return the statement for objects in S3 that are encrypted with a customer's key, if there is one.

    https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-via-service
    """
    through_s3 = {"StringLike": {"kms:ViaService": "s3.*"}}
    decrypt = {"Sid": "DecryptDataset", "Effect": "Allow", "Action": "kms:Decrypt", "Resource": key_arn}
    return [{**decrypt, "Condition": through_s3}] if key_arn else []


def team(bucket_arn: str, key_arn: str, folder: str, key_alias: str = "") -> Document:
    """Return what a team's pods may do: read and write their folder of the stack's bucket; `key_alias` as above."""
    return document(
        _list_their_own(bucket_arn, [f"{folder}/*"]),
        _use_the_buckets_key(key_arn, key_alias, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *_keep("KeepTheirOwn", bucket_arn, folder),
    )


def _use_the_buckets_key(key_arn: str, alias: str, actions: Sequence[str]) -> Document:
    """Return the statement for the key of the bucket's objects, by an alias if the key has no ARN yet.

    https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html#conditions-kms-resource-aliases
    """
    use = {"Sid": "UseTheBucketsKey", "Effect": "Allow", "Action": list(actions), "Resource": key_arn}
    return {**use, "Condition": {"ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}}} if alias else use


def _list_their_own(bucket_arn: str, prefixes: Sequence[str]) -> Document:
    return {
        "Sid": "ListTheirOwn",
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": bucket_arn,
        "Condition": {"StringLike": {"s3:prefix": list(prefixes)}},
    }


def _keep(sid: str, bucket_arn: str, folder: str) -> list[Document]:
    """Return the statements for a folder's objects. The bucket keeps versions, so deleted ones can be restored."""
    uploads = ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    return [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", *uploads],
            "Resource": f"{bucket_arn}/{folder}/*",
        },
        {
            "Sid": "FindAbandonedUploads",
            "Effect": "Allow",
            "Action": "s3:ListBucketMultipartUploads",  # this action has no condition for prefixes
            "Resource": bucket_arn,
        },
    ]


def mounted_folder(partition: str, bucket: str, prefix: str, key: str = "") -> Document:
    """Return what Mountpoint for S3 needs to read one folder of a bucket, and no other; `key` as in `trainer`.

    https://github.com/awslabs/mountpoint-s3/blob/main/doc/CONFIGURATION.md#iam-permissions
    """
    arn = f"arn:{partition}:s3:::{bucket}"
    return document(
        {
            "Sid": "ListTheFolder",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": arn,
            "Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}},
        },
        {"Sid": "ReadTheFolder", "Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{arn}/{prefix}*"},
        *_decrypt_dataset(key),
    )


def image_cache(repositories: str) -> Document:
    """Return what nodes may do in addition to AmazonEC2ContainerRegistryPullOnly: the first pull makes a repository.

    That policy has ecr:BatchImportUpstreamImage, which every pull of a new image needs (karpenter-provider-aws#7956).
    https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-iam.html
    """
    return document(
        {"Sid": "CacheImages", "Effect": "Allow", "Action": "ecr:CreateRepository", "Resource": repositories}
    )


def dataset_object_arn(uri: str | None, partition: str) -> str | None:
    """Return the ARN of the object at an `s3://` address; None for any other dataset."""
    if uri is None or not uri.startswith("s3://"):
        return None
    return f"arn:{partition}:s3:::{uri.removeprefix('s3://')}"
