"""Match a request of a REST protocol with its operation; write its path, query and headers from the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import quote, unquote, urlencode

from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.received import Received

UNRESERVED = "-_.~"
_LABEL = re.compile(r"{([^}+]+)(\+?)}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# The operations that moto has. moto would treat a request for another subresource as one of these.
S3_OPERATIONS = frozenset(
    """
    AbortMultipartUpload CompleteMultipartUpload CopyObject CreateBucket CreateMultipartUpload DeleteBucket
    DeleteBucketCors DeleteBucketEncryption DeleteBucketLifecycle DeleteBucketOwnershipControls DeleteBucketPolicy
    DeleteBucketReplication DeleteBucketTagging DeleteBucketWebsite DeleteObject DeleteObjectTagging DeleteObjects
    DeletePublicAccessBlock GetBucketAccelerateConfiguration GetBucketAcl GetBucketCors GetBucketEncryption
    GetBucketInventoryConfiguration GetBucketLifecycleConfiguration GetBucketLocation GetBucketLogging
    GetBucketNotificationConfiguration GetBucketOwnershipControls GetBucketPolicy GetBucketPolicyStatus
    GetBucketReplication GetBucketTagging GetBucketVersioning GetBucketWebsite GetObject GetObjectAcl
    GetObjectAttributes GetObjectLegalHold GetObjectLockConfiguration GetObjectTagging GetPublicAccessBlock HeadBucket
    HeadObject ListBucketInventoryConfigurations ListBuckets ListMultipartUploads ListObjectVersions ListObjects
    ListObjectsV2 ListParts PutBucketAccelerateConfiguration PutBucketAcl PutBucketCors PutBucketEncryption
    PutBucketInventoryConfiguration PutBucketLifecycleConfiguration PutBucketLogging PutBucketNotificationConfiguration
    PutBucketOwnershipControls PutBucketPolicy PutBucketReplication PutBucketTagging PutBucketVersioning
    PutBucketWebsite PutObject PutObjectAcl PutObjectLegalHold PutObjectLockConfiguration PutObjectRetention
    PutObjectTagging PutPublicAccessBlock RestoreObject SelectObjectContent UploadPart UploadPartCopy
    """.split()
)


@dataclass(frozen=True)
class Matched:
    """A request of a REST protocol.

    Args:
        params: The parameters from path, query and headers, by their names in the model.
        lists: The names of query parameters that may be given more than once.
        payload: The name of the member that is the whole body, or "".
        in_body: The names in the model of the body's members, by their names in the body.
        has_type: Whether the Content-Type is one of the operation's parameters.
        json: Whether the body is a JSON document.
    """

    name: str
    labels: Mapping[str, str]
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    params: Mapping[str, Any]
    lists: frozenset[str]
    payload: str
    in_body: Mapping[str, str]
    has_body: bool
    has_type: bool
    json: bool


def members(operation: Any) -> Mapping[str, str]:
    """Return the names in the model of an operation's members, by their names in requests."""
    shape = operation.input_shape
    found = {} if shape is None else shape.members
    return {str(member.serialization.get("name", name)): str(name) for name, member in found.items()}


def match(request: Received, model: Any, service: str) -> Matched:
    """Return the operation that a request is for, and its parameters.

    Raises:
        Refused: No operation has this path, or the path is another operation's when it is decoded.
    """
    operation, labels = _routed(request, request.path, model, service)
    path = _path(operation, labels)
    if model.service_name == "s3":
        _check_s3(operation.name, labels, service)
    elif model.service_name != "eks" and _decoded(request, path, model, service) != operation.name:
        # moto's applications match the decoded path. Our EKS doesn't, and its paths may contain roles' ARNs.
        raise Refused("ambiguous", f"The path {request.path} has an encoded slash", service)
    shape = operation.input_shape
    found = {} if shape is None else shape.members
    at: dict[str, dict[str, Any]] = {"uri": {}, "querystring": {}, "header": {}, "headers": {}, "body": {}}
    for name, member in found.items():
        where = at.get(member.serialization.get("location", "body"), {})
        where[str(member.serialization.get("name", name))] = (name, member)
    query = _query(request, operation, at["querystring"])
    headers = _headers(request, at["header"], at["headers"])
    payload = "" if shape is None else str(shape.serialization.get("payload", ""))
    lists = {wire for wire, (_, member) in at["querystring"].items() if member.type_name == "list"}
    return Matched(
        name=str(operation.name),
        labels=labels,
        path=path,
        query=query,
        headers=headers,
        params={
            **{at["header"][wire][0]: headers[wire.lower()] for wire in at["header"] if wire.lower() in headers},
            **_given(query, at["querystring"], lists),
            **{at["uri"][wire][0]: labels[wire] for wire in at["uri"] if wire in labels},
        },
        lists=frozenset(lists),
        payload=payload,
        in_body={wire: name for wire, (name, _) in at["body"].items()},
        has_body=bool(payload or at["body"]),
        has_type="Content-Type" in at["header"],
        json=model.protocol == "rest-json" and (not payload or found[payload].type_name == "structure"),
    )


def _decoded(request: Received, path: str, model: Any, service: str) -> str:
    """Return the operation of the decoded path."""
    return str(_routed(request, quote(unquote(path), safe=f"/{UNRESERVED}:@"), model, service)[0].name)


def _routed(request: Received, path: str, model: Any, service: str) -> tuple[Any, dict[str, str]]:
    from moto.core.request import Request
    from moto.core.routing import get_service_router
    from werkzeug.exceptions import NotFound

    environ = {
        "REQUEST_METHOD": request.method,
        "RAW_URI": path,
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(request.parameters),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
        **{"HTTP_" + name.upper().replace("-", "_"): value for name, value in request.headers.items()},
    }
    try:
        # The protocol selects the router. moto selects it by content type, which could be another protocol's.
        operation, labels = get_service_router(model.service_name)._get_router(model.protocol).match(Request(environ))
    except NotFound as error:
        message = f"{request.method} {request.path} is no operation of {service}"
        raise Refused("unidentified", message, service) from error
    return operation, dict(labels)


def _check_s3(name: str, labels: Mapping[str, str], service: str) -> None:
    if name not in S3_OPERATIONS:
        raise Refused("unsupported", f"{name} is not supported by this cloud", service)
    if "Bucket" in labels and not _BUCKET.fullmatch(labels["Bucket"]):
        raise Refused("bucket", "The specified bucket is not valid.", service)


def _path(operation: Any, labels: Mapping[str, str]) -> str:
    def filled(label: Any) -> str:
        return quote(labels[label[1]], safe=f"/{UNRESERVED}" if label[2] else UNRESERVED)

    return _LABEL.sub(filled, operation.http_trait.path)


def _query(request: Received, operation: Any, known: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    fixed = operation.http_trait.query_args
    free = any(member.type_name == "map" for _, member in known.values())
    return tuple(pair for pair in request.parameters if free or pair[0] in known or pair[0] in fixed)


def _headers(request: Received, known: Mapping[str, Any], prefixes: Mapping[str, Any]) -> dict[str, str]:
    names = {wire.lower() for wire in known} - {"content-type", "content-length"}
    starts = tuple(prefix.lower() for prefix in prefixes)
    return {
        name: value for name, value in request.headers.items() if name in names or (starts and name.startswith(starts))
    }


def _given(query: tuple[tuple[str, str], ...], known: Mapping[str, Any], lists: set[str]) -> dict[str, str | list[str]]:
    given: dict[str, str | list[str]] = {known[name][0]: value for name, value in query if name in known}
    for wire in lists:
        if values := [value for name, value in query if name == wire]:
            given[known[wire][0]] = values
    return given
