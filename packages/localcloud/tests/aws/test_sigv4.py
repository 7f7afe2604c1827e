"""A signature is accepted only if botocore made it for this request with the right secret."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from localcloud.aws.requests import sigv4
from localcloud.aws.requests.received import Received
from localcloud.aws.requests.sigv4 import MalformedSignature

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session")


def signed(auth: type[SigV4Auth], service: str, url: str, method: str = "GET", body: bytes = b"") -> Received:
    request = AWSRequest(method, url, data=body, headers={"X-Extra": "two  spaces"})
    auth(CREDENTIALS, service, "us-west-2").add_auth(request)
    return as_seen(request, body)


def as_seen(request: AWSRequest, body: bytes = b"") -> Received:
    prepared = request.prepare()
    path, _, query = prepared.url.partition("://")[2].partition("/")[2].partition("?")
    headers = {name.lower(): str(value) for name, value in prepared.headers.items()}
    headers["host"] = prepared.url.partition("://")[2].partition("/")[0]
    return Received(str(prepared.method), "/" + path, query, headers, body)


def holds(request: Received, secret: str = "secret") -> bool:
    signature = sigv4.parse(request)
    assert signature is not None
    return sigv4.matches(signature, secret, request, hashlib.sha256(request.body).hexdigest())


@pytest.mark.parametrize(
    ("auth", "service", "url"),
    [
        (SigV4Auth, "ec2", "http://127.0.0.1:1/"),
        (SigV4Auth, "eks", "http://127.0.0.1:1/clusters/a/access-entries/arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx"),
        (SigV4Auth, "eks", "http://127.0.0.1:1/clusters?maxResults=2&nextToken=a%2Bb%3D"),
        (S3SigV4Auth, "s3", "http://127.0.0.1:1/bucket/a%20b%2Bc.zip?prefix=x%2Fy"),
    ],
    ids=["root", "escaped path", "query", "s3 key with blank and plus"],
)
def test_a_signature_by_botocore_is_accepted(auth: type[SigV4Auth], service: str, url: str) -> None:
    assert holds(signed(auth, service, url))


def test_a_changed_body_is_refused() -> None:
    request = signed(SigV4Auth, "ec2", "http://127.0.0.1:1/", "POST", b"Action=DescribeVpcs")
    assert holds(request)
    assert not holds(replace(request, body=b"Action=DeleteVpc"))


def test_a_signature_with_another_secret_is_refused() -> None:
    assert not holds(signed(SigV4Auth, "ec2", "http://127.0.0.1:1/"), secret="guessed")


def test_a_changed_signed_header_is_refused() -> None:
    request = signed(SigV4Auth, "ec2", "http://127.0.0.1:1/")
    assert not holds(replace(request, headers={**request.headers, "host": "elsewhere:1"}))


def test_a_presigned_url_is_accepted_and_has_its_lifetime() -> None:
    request = AWSRequest("GET", "http://127.0.0.1:1/?Action=GetCallerIdentity&Version=2011-06-15")
    SigV4QueryAuth(CREDENTIALS, "sts", "us-west-2", expires=60).add_auth(request)
    seen = as_seen(request)
    signature = sigv4.parse(seen)
    assert signature is not None
    assert (signature.expires_seconds, signature.session_token) == (60, "session")
    assert holds(seen)


def test_an_unsigned_request_has_no_signature() -> None:
    assert sigv4.parse(Received("GET", "/", "", {})) is None


@pytest.mark.parametrize(
    "header",
    ["AWS4-HMAC-SHA256 Credential=a/b/c", "AWS4-HMAC-SHA256 Credential=k/20260101/r/s/aws4_request, Signature=x"],
    ids=["short scope", "no signed headers"],
)
def test_a_malformed_header_is_reported_as_malformed(header: str) -> None:
    with pytest.raises(MalformedSignature):
        sigv4.parse(Received("GET", "/", "", {"authorization": header, "x-amz-date": "20260101T000000Z"}))
