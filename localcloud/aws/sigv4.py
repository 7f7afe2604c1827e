"""Checks AWS Signature Version 4, in the Authorization header or in the query of a presigned URL.

    signature = parse(request)
    if signature and matches(signature, secret, request): ...

moto doesn't check signatures unless it also enforces its own, incomplete, IAM; and an EKS token is nothing but a
signature, so it has to be checked properly.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote

ALGORITHM = "AWS4-HMAC-SHA256"
TIME_FORMAT = "%Y%m%dT%H%M%SZ"
UNRESERVED = "-_.~"


class MalformedSignature(ValueError):
    """The request is signed, but not in a way that can be read."""


@dataclass(frozen=True)
class SignedRequest:
    """What a signature covers: `path` and `query` percent-encoded as they were sent, header names in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body_hash: str = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Signature:
    """A parsed signature; `expires_seconds` is None unless it came in the query of a presigned URL."""

    access_key: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str
    timestamp: str
    session_token: str | None
    expires_seconds: int | None

    @property
    def time(self) -> datetime:
        """When it was signed.

        Raises:
            MalformedSignature: The timestamp isn't one.
        """
        try:
            return datetime.strptime(self.timestamp, TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError as error:
            raise MalformedSignature(f"X-Amz-Date {self.timestamp!r} is not of the form YYYYMMDDTHHMMSSZ") from error


def query_pairs(query: str) -> list[tuple[str, str]]:
    """The decoded parameters of a query string, in order; '+' stands for itself, as in signatures."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def parse(request: SignedRequest) -> Signature | None:
    """The signature of a request, or None when it has none.

    Raises:
        MalformedSignature: There is one, but it lacks parts.
    """
    header = request.headers.get("authorization", "")
    if header.startswith(ALGORITHM):
        return _from_header(header, request.headers)
    query = dict(query_pairs(request.query))
    if query.get("X-Amz-Algorithm") == ALGORITHM:
        return _from_query(query)
    return None


def matches(signature: Signature, secret: str, request: SignedRequest) -> bool:
    """Whether `secret` made this signature over this request."""
    canonical = _canonical_request(signature, request)
    scope = f"{signature.date}/{signature.region}/{signature.service}/aws4_request"
    text = "\n".join([ALGORITHM, signature.timestamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (signature.date, signature.region, signature.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, signature.signature)


def _from_header(header: str, headers: Mapping[str, str]) -> Signature:
    fields = dict(part.strip().partition("=")[::2] for part in header[len(ALGORITHM) :].split(","))
    try:
        access_key, date, region, service = _scope(fields["Credential"])
        return Signature(
            access_key=access_key,
            date=date,
            region=region,
            service=service,
            signed_headers=tuple(fields["SignedHeaders"].split(";")),
            signature=fields["Signature"],
            timestamp=headers["x-amz-date"],
            session_token=headers.get("x-amz-security-token"),
            expires_seconds=None,
        )
    except KeyError as error:
        raise MalformedSignature(f"the Authorization header lacks {error}") from error


def _from_query(query: Mapping[str, str]) -> Signature:
    try:
        access_key, date, region, service = _scope(query["X-Amz-Credential"])
        return Signature(
            access_key=access_key,
            date=date,
            region=region,
            service=service,
            signed_headers=tuple(query["X-Amz-SignedHeaders"].split(";")),
            signature=query["X-Amz-Signature"],
            timestamp=query["X-Amz-Date"],
            session_token=query.get("X-Amz-Security-Token"),
            expires_seconds=int(query["X-Amz-Expires"]),
        )
    except (KeyError, ValueError) as error:
        raise MalformedSignature(f"the presigned URL lacks or misspells {error}") from error


def _scope(credential: str) -> tuple[str, str, str, str]:
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != "aws4_request":
        raise MalformedSignature(f"the credential scope {credential!r} is not KEY/DATE/REGION/SERVICE/aws4_request")
    return parts[0], parts[1], parts[2], parts[3]


def _canonical_request(signature: Signature, request: SignedRequest) -> str:
    # S3 signs the path as sent; every other service signs it encoded once more.
    path = request.path or "/"
    if signature.service != "s3":
        path = quote(path, safe="/~")
    pairs = [pair for pair in query_pairs(request.query) if pair[0] != "X-Amz-Signature"]
    encoded = sorted((quote(name, safe=UNRESERVED), quote(value, safe=UNRESERVED)) for name, value in pairs)
    query = "&".join(f"{name}={value}" for name, value in encoded)
    headers = "".join(
        f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signature.signed_headers
    )
    body_hash = request.headers.get("x-amz-content-sha256")
    if body_hash is None:
        unsigned = signature.service == "s3" and signature.expires_seconds is not None
        body_hash = "UNSIGNED-PAYLOAD" if unsigned else request.body_hash
    return "\n".join([request.method, path, query, headers, ";".join(signature.signed_headers), body_hash])
