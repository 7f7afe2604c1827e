"""Names what a request asks for, in IAM's terms: action, resource and condition keys.

Operation names come from botocore's models through moto's router, so that no table of paths is kept here; a table says
only where IAM's action is called differently from the operation, as in S3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

from localcloud.aws.policy import UNKNOWN_RESOURCE, Query

# The name botocore has for a service whose signing name is another.
BOTOCORE_NAMES = {"elasticfilesystem": "efs", "monitoring": "cloudwatch", "elasticloadbalancing": "elbv2"}
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
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
}
# Calls that AWS answers for whoever has valid credentials.
ALWAYS_ALLOWED = {"sts:GetCallerIdentity", "sts:GetSessionToken"}


@dataclass(frozen=True)
class Operation:
    """One call: `service` as signed, `name` as in botocore's model, `params` from path, query and form."""

    service: str
    name: str
    region: str
    account: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """IAM's name for it."""
        name = S3_ACTIONS.get(self.name, self.name) if self.service == "s3" else self.name
        return f"{self.service}:{name}"


def identify(environ: dict[str, Any], body: bytes, service: str, region: str, account: str) -> Operation | None:
    """The operation a request is for, or None when no operation of the service has this path.

    Args:
        body: The request's body where the protocol needs it (query and JSON), else empty.
    """
    target = environ.get("HTTP_X_AMZ_TARGET")
    if target:
        return Operation(service, target.rpartition(".")[2], region, account, _json(body))
    form = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        form |= {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
    if "Action" in form:
        return Operation(service, form["Action"], region, account, form)
    return _routed(environ, service, region, account, form)


def _routed(
    environ: dict[str, Any], service: str, region: str, account: str, form: Mapping[str, str]
) -> Operation | None:
    from botocore.exceptions import UnknownServiceError
    from moto.core.request import Request
    from moto.core.routing import get_service_router
    from werkzeug.exceptions import NotFound

    # The router must not consume the body that the service is going to read.
    request = Request({**environ, "wsgi.input": BytesIO()})
    try:
        operation, params = get_service_router(BOTOCORE_NAMES.get(service, service)).match(request)
    except (NotFound, UnknownServiceError):
        return None
    return Operation(service, str(operation.name), region, account, {**form, **params})


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(body or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def query(operation: Operation, environ: Mapping[str, Any], principals: tuple[str, ...]) -> Query:
    """The question that the policies have to answer for this call."""
    context: dict[str, tuple[str, ...]] = {
        # The endpoint is on loopback or on the cloud's own link; there is no wire on which anybody could listen.
        "aws:securetransport": ("true",),
        "aws:sourceip": (str(environ.get("REMOTE_ADDR", "127.0.0.1")),),
        "aws:requestedregion": (operation.region,),
        "aws:principalaccount": (operation.account,),
        "aws:principalarn": principals[1:2],
    }
    if operation.service == "s3":
        for key, name in (("s3:prefix", "prefix"), ("s3:delimiter", "delimiter"), ("s3:max-keys", "max-keys")):
            if name in operation.params:
                context[key] = (str(operation.params[name]),)
            elif key == "s3:prefix" and operation.action == "s3:ListBucket":
                context[key] = ("",)
        for key in ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id", "x-amz-acl"):
            value = environ.get("HTTP_" + key.upper().replace("-", "_"))
            if value:
                context[f"s3:{key}"] = (value,)
    return Query(operation.action, _resource(operation), context, principals)


def _resource(operation: Operation) -> str:
    params, prefix = operation.params, f"{operation.region}:{operation.account}"
    match operation.service:
        case "s3":
            bucket, key = params.get("Bucket"), params.get("Key")
            return f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}" if bucket else "*"
        case "elasticfilesystem":
            for name, kind in (("FileSystemId", "file-system"), ("AccessPointId", "access-point")):
                if name in params:
                    return f"arn:aws:elasticfilesystem:{prefix}:{kind}/{params[name]}"
        case "eks":
            cluster = params.get("name") or params.get("clusterName")
            if cluster and "nodegroupName" not in params and "addonName" not in params:
                return f"arn:aws:eks:{prefix}:cluster/{cluster}"
        case "sts" if "RoleArn" in params:
            return str(params["RoleArn"])
        case "iam" if "RoleName" in params:
            return f"arn:aws:iam::{operation.account}:role/{params['RoleName']}"
    return UNKNOWN_RESOURCE
