"""Check AWS Signature Version 4, in the Authorization header or in the query of a presigned URL.

    signature = parse(request)
    if signature and matches(signature, secret, request, body_hash): ...

botocore's signer computes the expected signature. Three values that a signer chooses are taken from the request: the
names of the signed headers, the time, and the hash of the body.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

from localcloud.aws.requests.received import Received, signed_pairs

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_SCOPE = re.compile(r"(?P<key>[^/]+)/(?P<date>\d{8})/(?P<region>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)/aws4_request")


class MalformedSignature(ValueError):
    """The request has a signature that can't be parsed."""


@dataclass(frozen=True)
class Signature:
    """A parsed signature; `expires_seconds` is None unless it is in the query of a presigned URL."""

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
        """Return when the request was signed.

        Raises:
            MalformedSignature: The timestamp can't be parsed.
        """
        try:
            return datetime.strptime(self.timestamp, SIGV4_TIMESTAMP).replace(tzinfo=UTC)
        except ValueError as error:
            raise MalformedSignature(f"X-Amz-Date {self.timestamp!r} is not of the form YYYYMMDDTHHMMSSZ") from error


def parse(request: Received) -> Signature | None:
    """Return the signature of a request, or None if it has none.

    Raises:
        MalformedSignature: The signature is incomplete.
    """
    header = request.headers.get("authorization", "")
    pairs = signed_pairs(request.query)
    query = dict(pairs)
    if header.startswith(ALGORITHM):
        if "X-Amz-Algorithm" in query:
            raise MalformedSignature("the request is signed twice: in the Authorization header and in the query")
        return _from_header(header, request.headers)
    if query.get("X-Amz-Algorithm") == ALGORITHM:
        if len(query) != len(pairs):
            raise MalformedSignature("a parameter of the presigned URL is given twice")
        return _from_query(query)
    return None


def matches(signature: Signature, secret: str, request: Received, body_hash: str) -> bool:
    """Return whether this signature of the request was made with `secret`."""
    signer, seen = _signer(signature, secret), _signed_request(signature, request, body_hash)
    text = signer.string_to_sign(seen, signer.canonical_request(seen))
    in_scope = signature.timestamp.startswith(signature.date)
    return hmac.compare_digest(signer.signature(text, seen), signature.signature) and in_scope


def chunk_signature(signature: Signature, secret: str, kind: str, *hashes: str) -> str:
    """Return the signature of a chunk of a streamed body, made from the previous signature and the chunk's hashes."""
    signer, request = _signer(signature, secret), AWSRequest("PUT", "http://localhost/")
    request.context["timestamp"] = signature.timestamp
    scope = signer.credential_scope(request)
    made: str = signer.signature("\n".join([kind, signature.timestamp, scope, *hashes]), request)
    return made


def _signer(signature: Signature, secret: str) -> SigV4Auth:
    # For S3 the path is signed as it was sent; for other services it is normalized and encoded again.
    kind = S3SigV4Auth if signature.service == "s3" else SigV4Auth
    signer: SigV4Auth = kind(Credentials(signature.access_key, secret), signature.service, signature.region)
    signer.headers_to_sign = _signed_headers  # type: ignore[method-assign]
    return signer


def _signed_headers(request: AWSRequest) -> Any:
    """Return the headers that the signature names, also those that botocore doesn't sign itself."""
    headers = HTTPHeaders()
    for name in request.context["signed_headers"]:
        headers[name] = request.context["received"].headers.get(name, "")
    return headers


def _signed_request(signature: Signature, request: Received, body_hash: str) -> AWSRequest:
    pairs = [pair for pair in signed_pairs(request.query) if pair[0] != "X-Amz-Signature"]
    seen = AWSRequest(request.method, f"http://localhost{request.path}")
    seen.params = pairs  # type: ignore[assignment]  # botocore takes pairs, too
    seen.headers["X-Amz-Content-SHA256"] = body_hash
    seen.context["timestamp"] = signature.timestamp
    seen.context["signed_headers"] = signature.signed_headers
    seen.context["received"] = request
    return seen


def _from_header(header: str, headers: Mapping[str, str]) -> Signature:
    fields = dict(part.strip().partition("=")[::2] for part in header[len(ALGORITHM) :].split(","))
    try:
        return Signature(
            **_scope(fields["Credential"]),
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
        return Signature(
            **_scope(query["X-Amz-Credential"]),
            signed_headers=tuple(query["X-Amz-SignedHeaders"].split(";")),
            signature=query["X-Amz-Signature"],
            timestamp=query["X-Amz-Date"],
            session_token=query.get("X-Amz-Security-Token"),
            expires_seconds=int(query["X-Amz-Expires"]),
        )
    except (KeyError, ValueError) as error:
        raise MalformedSignature(f"the presigned URL lacks or misspells {error}") from error


def _scope(credential: str) -> dict[str, str]:
    found = _SCOPE.fullmatch(credential)
    if found is None:
        raise MalformedSignature(f"the credential scope {credential!r} is not KEY/DATE/REGION/SERVICE/aws4_request")
    return {"access_key": found["key"], "date": found["date"], "region": found["region"], "service": found["service"]}
