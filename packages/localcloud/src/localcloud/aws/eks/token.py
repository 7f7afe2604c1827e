"""The API server's authentication webhook: check a token of `aws eks get-token` and return the user.

A token is `k8s-aws-v1.` and the base64url of a presigned STS GetCallerIdentity URL that has the header x-k8s-aws-id,
with the cluster's name, among the signed headers. EKS sends the URL to STS; here the signature is checked directly.
https://github.com/kubernetes-sigs/aws-iam-authenticator
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from localcloud.aws import access
from localcloud.aws.eks.model import AccessEntry, Json
from localcloud.aws.eks.operations import access_entries
from localcloud.aws.eks.state import ClusterState, Eks
from localcloud.aws.principals import ExpiredCredentials, Principal, Principals, UnknownCredentials
from localcloud.aws.requests import received, sigv4
from localcloud.aws.requests.payload import EMPTY_HASH

PREFIX = "k8s-aws-v1."
CLUSTER_HEADER = "x-k8s-aws-id"
LIFETIME = timedelta(minutes=15)


class BadToken(Exception):
    """The token is not valid; the message says why."""


@dataclass(frozen=True)
class Identity:
    """The user that the API server sees."""

    username: str
    groups: tuple[str, ...]
    extra: Mapping[str, tuple[str, ...]]


def verify(token: str, cluster: str, principals: Principals, now: datetime) -> Principal:
    """Return the caller that made this token for this cluster.

    Raises:
        BadToken: It is malformed, for another cluster, expired or wrongly signed, or its access key is unknown.
    """
    url = urlsplit(_decoded(token))
    query = dict(received.signed_pairs(url.query))
    if query.get("Action") != "GetCallerIdentity" or url.path not in ("", "/"):
        raise BadToken("it is not a presigned GetCallerIdentity call")
    request = received.Received("GET", url.path or "/", url.query, {"host": url.netloc, CLUSTER_HEADER: cluster})
    try:
        signature = sigv4.parse(request)
        if signature is None or CLUSTER_HEADER not in signature.signed_headers or signature.service != "sts":
            raise BadToken(f"its signature does not cover the header {CLUSTER_HEADER} for sts")
        if not -access.CLOCK_SKEW <= now - signature.time <= LIFETIME:
            raise BadToken(f"it was made at {signature.timestamp} and has expired")
        caller = principals.find(signature.access_key, signature.session_token)
    except sigv4.MalformedSignature as error:
        raise BadToken(str(error)) from error
    except (UnknownCredentials, ExpiredCredentials) as error:
        raise BadToken(f"unknown access key {error}") from error
    if not sigv4.matches(signature, caller.secret, request, EMPTY_HASH):
        raise BadToken("its signature does not match: wrong secret key, or made for another cluster")
    return caller


def identity(entry: AccessEntry, caller: Principal) -> Identity:
    """Return the user name and groups that an entry gives its principal."""
    session = caller.arn.rpartition("/")[2]
    username = entry.username.replace("{{SessionName}}", session).replace("{{SessionNameRaw}}", session)
    username = username.replace("{{AccountID}}", caller.account)
    groups = (*entry.groups, access_entries.group_of(entry.principal_arn)) if entry.policies else entry.groups
    extra = {"arn": (caller.arn,), "canonicalArn": (caller.identity_arn,), "principalId": (caller.identity_arn,)}
    return Identity(username, groups, extra)


def authenticate(state: ClusterState, principals: Principals, token: str, now: datetime | None = None) -> Identity:
    """Return the user that logs in with this token.

    Raises:
        BadToken: The token is bad, or its owner has no access entry.
    """
    cluster = state.cluster
    caller = verify(token, cluster.name, principals, now or datetime.now(UTC))
    if cluster.authentication_mode == "CONFIG_MAP":
        if caller.identity_arn == cluster.creator_arn:
            return Identity("kubernetes-admin", ("system:masters",), {"arn": (caller.arn,)})
        raise BadToken(f"{caller.identity_arn} did not create the cluster, and its aws-auth ConfigMap isn't read here")
    entry = state.entries.get(caller.identity_arn)
    if entry is None:
        raise BadToken(f"{caller.identity_arn} has no access entry in cluster {cluster.name}")
    return identity(entry, caller)


def review(eks: Eks, cluster: str, request: Json) -> Json:
    """Answer a TokenReview."""
    answer: Json = {"apiVersion": request.get("apiVersion"), "kind": "TokenReview", "status": {"authenticated": False}}
    token = str(request.get("spec", {}).get("token", ""))
    if not token.startswith(PREFIX):
        return answer
    state = eks.clusters.get(cluster)
    if state is None:
        return answer
    try:
        found = authenticate(state, eks.principals, token)
    except BadToken as error:
        answer["status"]["error"] = f"token refused: {error}"
        return answer
    user: dict[str, Any] = {
        "username": found.username,
        "uid": f"aws-iam-authenticator:{eks.settings.account}:{found.username}",
        "groups": [*found.groups, "system:authenticated"],
        "extra": {name: list(values) for name, values in found.extra.items()},
    }
    answer["status"] = {"authenticated": True, "user": user}
    return answer


def _decoded(token: str) -> str:
    text = token.removeprefix(PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadToken("it is not base64url") from error
