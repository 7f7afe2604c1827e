"""Decides whether a request may pass: a valid signature of a known caller, and policies that allow the call.

    caller = authorize(environ, body, principals, region, account)     # raises Refused

Unlike moto, which takes any credentials unless told otherwise, this account is closed to everybody but those it knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from localcloud.aws import operations, sigv4
from localcloud.aws.operations import ALWAYS_ALLOWED, Operation
from localcloud.aws.policy import Decision, Query, evaluate
from localcloud.aws.principals import ExpiredCredentials, Principal, Principals, UnknownCredentials

CLOCK_SKEW = timedelta(minutes=15)


class Refused(Exception):
    """The request may not pass; `reason` is one of the keys of `replies.CODES`."""

    def __init__(self, reason: str, message: str, service: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.service = service


@dataclass(frozen=True)
class Authorized:
    """A call that may pass; `operation` is None when the path belongs to no operation of the service."""

    caller: Principal
    service: str
    operation: Operation | None


def signed_request(environ: Mapping[str, Any], body: bytes) -> sigv4.SignedRequest:
    """What the signature of a WSGI request covers."""
    headers = {name[5:].lower().replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    headers["content-length"] = environ.get("CONTENT_LENGTH", "")
    path, _, query = str(environ.get("RAW_URI", environ.get("PATH_INFO", "/"))).partition("?")
    return sigv4.SignedRequest(str(environ["REQUEST_METHOD"]), path, query, headers, hashlib.sha256(body).hexdigest())


def authenticate(
    request: sigv4.SignedRequest, principals: Principals, now: datetime
) -> tuple[Principal, sigv4.Signature]:
    """Whose request this is.

    Raises:
        Refused: No signature, a wrong one, an old one, or credentials that nobody has.
    """
    try:
        signature = sigv4.parse(request)
        if signature is None:
            raise Refused("unsigned", "Request is missing Authentication Token", "s3")
        age = now - signature.time
    except sigv4.MalformedSignature as error:
        raise Refused("malformed", str(error), "s3") from error
    service = signature.service
    try:
        caller = principals.find(signature.access_key, signature.session_token)
    except UnknownCredentials as error:
        raise Refused("unknown", "The security token included in the request is invalid.", service) from error
    except ExpiredCredentials as error:
        raise Refused("expired", "The security token included in the request is expired", service) from error
    if not sigv4.matches(signature, caller.secret, request):
        raise Refused(
            "mismatch",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
            service,
        )
    lifetime = CLOCK_SKEW if signature.expires_seconds is None else timedelta(seconds=signature.expires_seconds)
    if not -CLOCK_SKEW <= age <= lifetime:
        raise Refused("old", f"Signature expired: {signature.timestamp} is {age} old", service)
    return caller, signature


def authorize(
    environ: dict[str, Any], body: bytes, principals: Principals, account: str, now: datetime | None = None
) -> Authorized:
    """Authenticate a WSGI request and ask the policies.

    Raises:
        Refused: See `authenticate`; or the policies don't allow the call.
    """
    request = signed_request(environ, body)
    caller, signature = authenticate(request, principals, now or datetime.now(UTC))
    operation = operations.identify(environ, body, signature.service, signature.region, account)
    if operation is None:
        return Authorized(caller, signature.service, None)
    question = operations.query(operation, environ, caller.names)
    if operation.action not in ALWAYS_ALLOWED and not _allowed(caller, operation, question, principals):
        target = f" on resource: {question.resource}" if question.resource else ""
        raise Refused(
            "denied",
            f"User: {caller.arn} is not authorized to perform: {operation.action}{target} "
            "because no identity-based policy allows the action",
            signature.service,
        )
    return Authorized(caller, signature.service, operation)


def _allowed(caller: Principal, operation: Operation, question: Query, principals: Principals) -> bool:
    identity = evaluate(caller.policies, question)
    if caller.session_policy is not None and evaluate([caller.session_policy], question) is not Decision.ALLOW:
        return False
    resource = Decision.SILENT
    if operation.service == "s3" and "Bucket" in operation.params:
        document = principals.bucket_policy(str(operation.params["Bucket"]))
        resource = evaluate([document], question) if document else Decision.SILENT
    if Decision.DENY in (identity, resource):
        return False
    if operation.action == "sts:AssumeRole":
        return _trusted(caller, operation, question, principals, identity)
    return Decision.ALLOW in (identity, resource)


def _trusted(
    caller: Principal, operation: Operation, question: Query, principals: Principals, identity: Decision
) -> bool:
    """A role of this account is assumed only by those whom its trust policy names, and by policy or by name."""
    role = principals.role(str(operation.params.get("RoleArn", "")))
    if role is None:
        return False
    context = dict(question.context)
    if "ExternalId" in operation.params:
        context["sts:externalid"] = (str(operation.params["ExternalId"]),)
    asked = Query("sts:AssumeRole", question.resource, context, caller.names)
    by_account = evaluate([role.trust], asked) is Decision.ALLOW
    by_name = (
        evaluate([role.trust], Query(asked.action, asked.resource, context, (caller.arn, caller.identity_arn)))
        is Decision.ALLOW
    )
    return by_name or (by_account and identity is Decision.ALLOW)
