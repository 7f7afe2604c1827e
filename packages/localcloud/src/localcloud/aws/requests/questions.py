"""An operation in IAM's terms: the queries that the policies must allow before it is carried out.

The name of IAM's action is the operation's name, except in S3, which has a table of actions. Calls of EC2 that launch,
tag or end instances have a query for each of their resources (`ec2_queries`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from localcloud.aws.policy import UNKNOWN_RESOURCE, Query
from localcloud.aws.requests import ec2_queries
from localcloud.aws.requests.ec2_queries import Asked, Context, pairs, parsed, request_tags, resource_tags
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.operations import Operation
from localcloud.aws.requests.resources import NoResources, Resources

# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html
S3_ACTIONS = {
    "ListBuckets": "ListAllMyBuckets",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "HeadBucket": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListParts": "ListMultipartUploadParts",
    "HeadObject": "GetObject",
    "GetObjectAttributes": "GetObject",
    "SelectObjectContent": "GetObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "GetBucketCors": "GetBucketCORS",
    "PutBucketCors": "PutBucketCORS",
    "DeleteBucketCors": "PutBucketCORS",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketReplication": "GetReplicationConfiguration",
    "PutBucketReplication": "PutReplicationConfiguration",
    "DeleteBucketReplication": "PutReplicationConfiguration",
    "GetBucketAccelerateConfiguration": "GetAccelerateConfiguration",
    "PutBucketAccelerateConfiguration": "PutAccelerateConfiguration",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "PutBucketNotificationConfiguration": "PutBucketNotification",
    "GetBucketInventoryConfiguration": "GetInventoryConfiguration",
    "ListBucketInventoryConfigurations": "GetInventoryConfiguration",
    "PutBucketInventoryConfiguration": "PutInventoryConfiguration",
    "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
    "PutObjectLockConfiguration": "PutBucketObjectLockConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
}
# The actions of requests that name a version of an object.
S3_VERSION_ACTIONS = {
    action: action.replace("Object", "ObjectVersion")
    for action in (
        "GetObject",
        "DeleteObject",
        "GetObjectAcl",
        "PutObjectAcl",
        "GetObjectTagging",
        "PutObjectTagging",
        "DeleteObjectTagging",
    )
}
# S3's condition keys, by the operation's parameter.
S3_CONDITIONS = {
    "Prefix": "s3:prefix",
    "Delimiter": "s3:delimiter",
    "MaxKeys": "s3:max-keys",
    "ServerSideEncryption": "s3:x-amz-server-side-encryption",
    "SSEKMSKeyId": "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "ACL": "s3:x-amz-acl",
}
# The resource types of IAM operations, by parameter; the first parameter that the operation has is used.
IAM_RESOURCES = {
    "InstanceProfileName": "instance-profile",
    "GroupName": "group",
    "RoleName": "role",
    "UserName": "user",
}
# Calls that give a role to a service: the parameter with its ARN, and the service.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html
PASSED_ROLES = {
    ("eks", "CreateCluster"): ("roleArn", "eks.amazonaws.com"),
    ("eks", "CreateNodegroup"): ("nodeRole", "eks.amazonaws.com"),
    ("eks", "CreatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("eks", "UpdatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("ec2", "CreateFlowLogs"): ("DeliverLogsPermissionArn", "vpc-flow-logs.amazonaws.com"),
}
# IAM's condition keys, by the operation's parameter.
IAM_CONDITIONS = {"PolicyArn": "iam:policyarn", "PermissionsBoundary": "iam:permissionsboundary"}
# Calls that AWS allows for every caller with valid credentials.
ALWAYS_ALLOWED = {("sts", "GetCallerIdentity"), ("sts", "GetSessionToken")}


def questions(
    operation: Operation, principals: tuple[str, ...], address: str, resources: Resources | None = None
) -> list[Query]:
    """Return the queries that the policies must allow, all of them.

    Args:
        principals: Every name of the caller.
        address: The caller's IP address.
        resources: The account's resources; without them, none has a tag.

    Raises:
        Refused: The parameters don't say which objects the operation is on.
    """
    if (operation.service, operation.name) in ALWAYS_ALLOWED:
        return []
    context: dict[str, tuple[str, ...]] = {
        # The endpoint is on loopback and on the cloud's own link, so no other host can read the traffic.
        "aws:securetransport": ("true",),
        "aws:sourceip": (address,),
        "aws:requestedregion": (operation.region,),
        "aws:principalaccount": (operation.account,),
        "aws:principalarn": principals[1:2],
    }
    if operation.service != "s3":
        asked = Asked(operation, resources or NoResources(), context, principals)
        known = ec2_queries.queries(asked) if operation.service == "ec2" else []
        return known or _general(asked)
    if operation.name in ("ListObjects", "ListObjectsV2"):
        context["s3:prefix"] = ("",)
    for name, key in S3_CONDITIONS.items():
        if name in operation.params:
            context[key] = (str(operation.params[name]),)
    return [Query(f"s3:{action}", resource, context, principals) for action, resource in _s3(operation)]


def _general(asked: Asked) -> list[Query]:
    """Return the queries of a call on at most one resource, with the tags that it has or gets in IAM."""
    operation, resource = asked.operation, _resource(asked)
    tags: list[Context] = []
    if operation.service == "iam":
        given = (
            pairs(parsed(operation).get("Tags")) if any(name.startswith("Tags.") for name in operation.params) else {}
        )
        tags = [resource_tags(asked.resources.tags(resource), "iam:resourcetag"), request_tags(given)]
        tags += [
            {key: (str(operation.params[name]),)} for name, key in IAM_CONDITIONS.items() if name in operation.params
        ]
    found = [asked.query(f"{operation.service}:{operation.name}", resource, *tags)]
    if (operation.service, operation.name) == ("iam", "AddRoleToInstanceProfile"):
        name = str(operation.params.get("RoleName"))
        role = asked.resources.role(name) or f"arn:aws:iam::{operation.account}:role/{name}"
        found.append(ec2_queries.pass_role(asked, role))
    if operation.service == "kms" and "TargetKeyId" in operation.params:
        key = _key(f"{operation.region}:{operation.account}", str(operation.params["TargetKeyId"]))
        found.append(asked.query(f"kms:{operation.name}", key))
    parameter, service = PASSED_ROLES.get((operation.service, operation.name), ("", ""))
    if parameter in operation.params:
        found.append(ec2_queries.pass_role(asked, str(operation.params[parameter]), service))
    return found


def _resource(asked: Asked) -> str:
    operation = asked.operation
    params, prefix = operation.params, f"{operation.region}:{operation.account}"
    match operation.service:
        case "elasticfilesystem":
            for name, kind in (("FileSystemId", "file-system"), ("AccessPointId", "access-point")):
                if name in params:
                    return f"arn:aws:elasticfilesystem:{prefix}:{kind}/{params[name]}"
        case "eks":
            cluster = params.get("name") or params.get("clusterName")
            if cluster and "nodegroupName" not in params and "addonName" not in params:
                return f"arn:aws:eks:{prefix}:cluster/{cluster}"
        case "kms" if "AliasName" in params:
            return f"arn:aws:kms:{prefix}:{params['AliasName']}"
        case "kms" if "KeyId" in params:
            return _key(prefix, str(params["KeyId"]))
        case "sts" if "RoleArn" in params:
            return str(params["RoleArn"])
        case "sqs" if "QueueUrl" in params or "QueueName" in params:
            name = str(params.get("QueueName") or params["QueueUrl"]).rpartition("/")[2]
            return f"arn:aws:sqs:{prefix}:{name}"
        case "ssm" if "Name" in params:
            # AWS's own parameters belong to no account.
            owner = "" if str(params["Name"]).startswith("/aws/service/") else operation.account
            return f"arn:aws:ssm:{operation.region}:{owner}:parameter/{str(params['Name']).lstrip('/')}"
        case "iam":
            return _iam_resource(asked)
    return UNKNOWN_RESOURCE


def _key(prefix: str, given: str) -> str:
    """Return the ARN of a key, or of an alias, that a call names by its ARN, its id or its alias."""
    if given.startswith("arn:"):
        return given
    return f"arn:aws:kms:{prefix}:{given if given.startswith('alias/') else f'key/{given}'}"


def _iam_resource(asked: Asked) -> str:
    params, account = asked.operation.params, asked.operation.account
    if "InstanceProfileName" in params:
        known = asked.resources.profile(str(params["InstanceProfileName"]))
        if known is not None and asked.operation.name != "CreateInstanceProfile":
            return known.arn
    elif "RoleName" in params and asked.operation.name != "CreateRole":
        found = asked.resources.role(str(params["RoleName"]))
        if found is not None:
            return found
    for name, kind in IAM_RESOURCES.items():
        if name in params:
            path = str(params.get("Path") or "/") if asked.operation.name.startswith("Create") else "/"
            return f"arn:aws:iam::{account}:{kind}{path}{params[name]}"
    return str(params.get("PolicyArn", UNKNOWN_RESOURCE))


def _s3(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield actions with their resources. A copy also reads its source; DeleteObjects deletes several objects."""
    params, action = operation.params, S3_ACTIONS.get(operation.name, operation.name)
    bucket, key = params.get("Bucket"), params.get("Key")
    if operation.name == "DeleteObjects":
        for found in _deleted(operation):
            yield _versioned(action, found.get("VersionId")), f"arn:aws:s3:::{bucket}/{found['Key']}"
        return
    resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}" if bucket else "*"
    yield _versioned(action, params.get("VersionId")), resource
    if "CopySource" in params:
        source = urlsplit(str(params["CopySource"]))
        version = parse_qs(source.query).get("versionId", [None])[0]
        yield _versioned("GetObject", version), f"arn:aws:s3:::{unquote(source.path).lstrip('/')}"


def _versioned(action: str, version: Any) -> str:
    return S3_VERSION_ACTIONS.get(action, action) if version else action


def _deleted(operation: Operation) -> list[Mapping[str, Any]]:
    """Return the objects of a DeleteObjects call, parsed as moto parses them."""
    from xml.parsers.expat import ExpatError

    import xmltodict  # type: ignore[import-untyped]

    try:
        objects = xmltodict.parse(operation.body, strip_whitespace=False)["Delete"]["Object"]
        listed = objects if isinstance(objects, list) else [objects]
        if any(not isinstance(found["Key"], str) for found in listed):
            raise KeyError("Key")
    except (ExpatError, KeyError, TypeError) as error:
        raise Refused("xml", "The XML you provided was not well-formed.", "s3") from error
    return listed
