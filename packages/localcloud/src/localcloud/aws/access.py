"""Decide whether a request may pass: it needs a valid signature of a known caller, and policies that allow it.

    call = authorize(environ, principals, account)     # raises Refused

By default moto accepts any credentials. This module refuses unknown ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from localcloud.aws.policy import Decision, Query, evaluate
from localcloud.aws.principals import ExpiredCredentials, Principal, Principals, UnknownCredentials
from localcloud.aws.requests import operations, payload, questions, received, sigv4
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.operations import Operation
from localcloud.aws.requests.received import Received
from localcloud.aws.requests.resources import Resources

CLOCK_SKEW = timedelta(minutes=15)


@dataclass(frozen=True)
class Authorized:
    """A call that may pass: its caller, the access key, and the operation that the policies allow."""

    caller: Principal
    access_key: str
    operation: Operation


def authorize(
    environ: dict[str, Any],
    principals: Principals,
    account: str,
    resources: Resources | None = None,
    now: datetime | None = None,
) -> Authorized:
    """Authenticate a WSGI request, find its operation and ask the policies.

    Args:
        resources: The account's resources, for conditions on their tags; without them, none has a tag.

    Raises:
        Refused: The policies don't allow the call; or see `authenticate` and `operations.identify`.
    """
    request = received.read(environ)
    caller, signature = authenticate(request, principals, now or datetime.now(UTC))
    request = payload.decoded(request, signature, caller.secret)
    operation = operations.identify(request, signature.service, signature.region, account)
    for question in questions.questions(operation, caller.names, request.address, resources):
        if not _allowed(caller, operation, question, principals):
            target = f" on resource: {question.resource}" if question.resource else ""
            raise Refused(
                "denied",
                f"User: {caller.arn} is not authorized to perform: {question.action}{target} "
                "because no identity-based policy allows the action",
                signature.service,
            )
    return Authorized(caller, signature.access_key, operation)


def authenticate(request: Received, principals: Principals, now: datetime) -> tuple[Principal, sigv4.Signature]:
    """Return the caller of a request and its signature.

    Raises:
        Refused: The signature is missing, wrong or expired, the credentials are unknown, or the body was changed.
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
    if not sigv4.matches(signature, caller.secret, request, payload.signed_hash(request, signature)):
        raise Refused(
            "mismatch",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
            service,
        )
    _refuse_unsigned_headers(request, signature)
    lifetime = CLOCK_SKEW if signature.expires_seconds is None else timedelta(seconds=signature.expires_seconds)
    if not -CLOCK_SKEW <= age <= lifetime:
        raise Refused("old", f"Signature expired: {signature.timestamp} is {age} old", service)
    return caller, signature


def _refuse_unsigned_headers(request: Received, signature: sigv4.Signature) -> None:
    """Raise Refused unless the signature covers the host and every `x-amz-` header, as AWS requires."""
    wanted = {"host", *(name for name in request.headers if name.startswith("x-amz-"))}
    missing = sorted(wanted - set(signature.signed_headers))
    if missing:
        message = f"There were headers present in the request which were not signed: {', '.join(missing)}"
        raise Refused("unsigned headers", message, signature.service)


def _allowed(caller: Principal, operation: Operation, question: Query, principals: Principals) -> bool:
    identity = evaluate(caller.policies, question)
    if any(evaluate([limit], question) is not Decision.ALLOW for limit in caller.limits):
        return False
    resource = Decision.SILENT
    if operation.service == "s3" and question.resource != "*":
        bucket = question.resource.rpartition(":")[2].partition("/")[0]
        document = principals.bucket_policy(bucket)
        resource = evaluate([document], question) if document else Decision.SILENT
    if Decision.DENY in (identity, resource):
        return False
    if question.action == "sts:AssumeRole":
        return _trusted(caller, operation, question, principals, identity)
    return Decision.ALLOW in (identity, resource)


def _trusted(
    caller: Principal, operation: Operation, question: Query, principals: Principals, identity: Decision
) -> bool:
    """Return whether the trust policy names the caller, or names the account and the caller's policies allow it."""
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
