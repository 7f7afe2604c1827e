"""Refusals in the error format of each AWS protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import uuid4
from xml.sax.saxutils import escape

from werkzeug.wrappers import Response

_SIGNATURE = {"s3": "SignatureDoesNotMatch", "query": "SignatureDoesNotMatch", "json": "InvalidSignatureException"}
# reason -> (HTTP status, {family: error code}); "query" is for IAM and STS, "json" for every other service.
CODES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "unsigned": (403, {"s3": "AccessDenied", "ec2": "MissingParameter", "json": "MissingAuthenticationTokenException"}),
    "malformed": (400, {"s3": "AuthorizationHeaderMalformed", "json": "IncompleteSignatureException"}),
    "unknown": (
        403,
        {
            "s3": "InvalidAccessKeyId",
            "ec2": "AuthFailure",
            "query": "InvalidClientTokenId",
            "json": "UnrecognizedClientException",
        },
    ),
    "expired": (403, {"s3": "ExpiredToken", "query": "ExpiredToken", "json": "ExpiredTokenException"}),
    "old": (403, {"s3": "RequestTimeTooSkewed", "query": "SignatureDoesNotMatch", "json": "InvalidSignatureException"}),
    "mismatch": (403, _SIGNATURE),
    "unsigned headers": (403, {**_SIGNATURE, "s3": "AccessDenied"}),
    "body": (400, {"json": "XAmzContentSHA256Mismatch"}),
    "checksum": (400, {"json": "BadDigest"}),
    "incomplete": (400, {"json": "IncompleteBody"}),
    "length": (411, {"json": "MissingContentLength"}),
    "bucket": (400, {"json": "InvalidBucketName"}),
    "xml": (400, {"json": "MalformedXML"}),
    "unsupported": (501, {"json": "NotImplemented"}),
    "failed": (500, {"s3": "InternalError", "ec2": "InternalError", "json": "InternalFailure"}),
    "unidentified": (
        400,
        {"s3": "MethodNotAllowed", "query": "InvalidAction", "json": "UnknownOperationException"},
    ),
    "ambiguous": (400, {"s3": "InvalidArgument", "query": "MalformedInput", "json": "SerializationException"}),
    "denied": (
        403,
        {
            "s3": "AccessDenied",
            "ec2": "UnauthorizedOperation",
            "query": "AccessDenied",
            "json": "AccessDeniedException",
        },
    ),
}
FAMILIES = {"s3": "s3", "ec2": "ec2", "iam": "query", "sts": "query", "autoscaling": "query"}


def refusal(reason: str, message: str, service: str) -> Response:
    """Return the reply to a request that may not pass."""
    status, codes = CODES[reason]
    family = FAMILIES.get(service, "json")
    code = codes.get(family) or codes.get("query") or codes["json"]
    if family == "json":
        return json_error(status, code, message)
    request = str(uuid4())
    error = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    if family == "s3":
        text = f"<Error>{error}<RequestId>{request}</RequestId></Error>"
    elif family == "ec2":
        text = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request}</RequestID></Response>"
    else:
        text = (
            f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>{request}</RequestId></ErrorResponse>"
        )
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}', status, content_type="text/xml")


def json_error(status: int, code: str, message: str, **members: str) -> Response:
    """Return an error of a JSON or REST-JSON service; `members` are other members of the exception's shape."""
    body = json.dumps({"__type": code, "message": message, **members})
    return Response(body, status, {"x-amzn-ErrorType": code}, content_type="application/json")
