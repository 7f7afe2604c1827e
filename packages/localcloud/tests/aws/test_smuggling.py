"""Requests that could mean one operation to the policies and another to the service: none is carried out or answered.

Each request is correctly signed as a pod's role with few rights; see `smuggling.STATEMENTS`.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import boto3
import pytest

from packages.localcloud.tests.aws import smuggling
from packages.localcloud.tests.aws.fakes import REGION
from packages.localcloud.tests.aws.smuggling import ASSUME, FORM, IDENTITY, JSON, SECRET, Account, Attempt

MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
FIELDS = dict(pair.split("=") for pair in ASSUME.replace("%3A", ":").replace("%2F", "/").split("&"))


def multipart(fields: dict[str, str]) -> str:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{fields[name]}\r\n' for name in fields]
    return "".join(parts) + "--b--\r\n"


def chunked(data: str, signature: str) -> str:
    return f"{len(data):x};chunk-signature={signature}\r\n{data}\r\n0;chunk-signature={'0' * 64}\r\n\r\n"


STS = [
    Attempt(
        "target header of an allowed call",
        "sts",
        "/",
        body=ASSUME,
        signed=FORM | {"X-Amz-Target": "x.GetCallerIdentity"},
    ),
    Attempt(
        "target header in other case", "sts", "/", body=ASSUME, signed=FORM | {"x-AMZ-tArGeT": "x.GetCallerIdentity"}
    ),
    Attempt(
        "target header outside the signature",
        "sts",
        "/",
        body=ASSUME,
        signed=FORM,
        added=(("X-Amz-Target", "x.GetCallerIdentity"),),
    ),
    Attempt("action in query and in body", "sts", f"/?{IDENTITY}", body=ASSUME, signed=FORM),
    Attempt("action in body and in query", "sts", f"/?{ASSUME}", body=IDENTITY, signed=FORM),
    Attempt("action twice in the body", "sts", "/", body=f"{IDENTITY}&{ASSUME}", signed=FORM),
    Attempt("action twice in the body, the other way", "sts", "/", body=f"{ASSUME}&{IDENTITY}", signed=FORM),
    Attempt("action twice in the query", "sts", f"/?{IDENTITY}&{ASSUME}", "GET"),
    Attempt(
        "action with an escaped name",
        "sts",
        "/",
        body=f"{IDENTITY}&{ASSUME.replace('Action', '%41ction')}",
        signed=FORM,
    ),
    Attempt("form as plain text", "sts", "/", body=ASSUME, signed={"Content-Type": "text/plain"}),
    Attempt("form without a content type", "sts", "/", body=ASSUME),
    Attempt(
        "form with its content type in capitals",
        "sts",
        "/",
        body=ASSUME,
        signed={"Content-Type": "Application/X-WWW-Form-Urlencoded"},
    ),
    Attempt("multipart form", "sts", "/", body=multipart(FIELDS), signed=MULTIPART),
    Attempt("form as JSON", "sts", "/", body=json.dumps(FIELDS), signed=JSON),
    Attempt("form in another path", "sts", "/latest/api/x", body=ASSUME, signed={"Content-Type": "text/plain"}),
    Attempt("GET with a body", "sts", f"/?{IDENTITY}", "GET", body=ASSUME, signed=FORM),
    Attempt("GET with a body of no type", "sts", "/", "GET", body=ASSUME),
    Attempt("PUT instead of POST", "sts", "/", "PUT", body=ASSUME, signed={"Content-Type": "text/plain"}),
    Attempt("method override", "sts", f"/?{IDENTITY}", "GET", body=ASSUME, signed={"X-HTTP-Method-Override": "POST"}),
    Attempt(
        "chunked body",
        "sts",
        f"/?{IDENTITY}",
        body=ASSUME,
        signed=FORM,
        signed_body="",
        added=(("Transfer-Encoding", "chunked"),),
    ),
    Attempt("body that was not signed", "sts", "/", body=ASSUME, signed=FORM, signed_body=IDENTITY),
    Attempt(
        "body that was not signed, with its hash in the header",
        "sts",
        "/",
        body=ASSUME,
        signed=FORM | {"X-Amz-Content-SHA256": smuggling.sha256(IDENTITY)},
        signed_body=IDENTITY,
    ),
    Attempt(
        "body that is not signed at all",
        "sts",
        "/",
        body=ASSUME,
        signed=FORM | {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"},
        signed_body=IDENTITY,
    ),
]
SCOPES = [
    Attempt(
        "action of IAM in the scope of STS",
        "sts",
        "/",
        body="Action=CreateUser&UserName=x&Version=2010-05-08",
        signed=FORM,
    ),
    Attempt("action of STS in the scope of IAM", "iam", "/", body=IDENTITY, signed=FORM),
    Attempt(
        "action of IAM with the host of STS",
        "iam",
        "/",
        body="Action=CreateUser&UserName=x",
        signed=FORM,
        host="sts.amazonaws.com",
    ),
    Attempt(
        "target of KMS in the scope of STS",
        "sts",
        "/",
        body="{}",
        signed=JSON | {"X-Amz-Target": "TrentService.ListKeys"},
    ),
    Attempt(
        "target with the prefix of another service",
        "kms",
        "/",
        body="{}",
        signed=JSON | {"X-Amz-Target": "AmazonSSM.ListKeys"},
    ),
    Attempt("target without a prefix", "kms", "/", body="{}", signed=JSON | {"X-Amz-Target": "ListKeys"}),
    Attempt(
        "two target headers",
        "kms",
        "/",
        body='{"KeyId": "{key}", "PendingWindowInDays": 7}',
        signed=JSON | {"X-Amz-Target": "TrentService.ScheduleKeyDeletion,TrentService.ListKeys"},
    ),
    Attempt(
        "target and an action in the query",
        "kms",
        "/?Action=ScheduleKeyDeletion&KeyId={key}&PendingWindowInDays=7",
        body="{}",
        signed=JSON | {"X-Amz-Target": "TrentService.ListKeys"},
    ),
    Attempt("scope that is a host", "motoapi.amazonaws.com", "/moto-api/data.json", "GET"),
    Attempt("scope of a service that does not exist", "nothing", "/private/secret", "GET"),
    Attempt("scope of metadata", "s3", "/latest/meta-data/iam/security-credentials/", "GET"),
    Attempt("dashboard of moto", "ec2", "/moto-api/data.json", "GET"),
    Attempt("dashboard of moto, signed for S3", "s3", "/moto-api/data.json", "GET"),
    Attempt("dashboard of moto with an escaped path", "ec2", "/%6doto-api/data.json", "GET"),
    Attempt("reset of moto", "ec2", "/moto-api/reset"),
    Attempt("reset of moto, signed for EKS", "eks", "/moto-api/reset"),
    Attempt("reset of moto, signed for S3", "s3", "/moto-api/reset"),
    Attempt("path that no operation has", "elasticfilesystem", "/2015-02-01/nothing", "GET"),
    Attempt("operation that the service does not have", "ec2", "/", body="Action=DescribeNothing", signed=FORM),
    Attempt("no operation at all", "ec2", "/", body="Version=2016-11-15", signed=FORM),
]
RESOURCES = [
    Attempt(
        "role name for an operation that has none",
        "iam",
        "/",
        body="Action=CreateUser&UserName=x&RoleName=own&Version=2010-05-08",
        signed=FORM,
    ),
    Attempt(
        "role name twice",
        "iam",
        "/",
        body="Action=DeleteRole&RoleName=own&RoleName=pod&Version=2010-05-08",
        signed=FORM,
    ),
    Attempt(
        "own file system in the query, another one in the body",
        "elasticfilesystem",
        "/2015-02-01/access-points?FileSystemId={own}",
        body='{"FileSystemId": "{other}", "ClientToken": "c"}',
        signed={"Content-Type": "application/json"},
    ),
    Attempt(
        "escaped slash in a file system's name",
        "elasticfilesystem",
        "/2015-02-01/file-systems/{own}%2F..%2F{other}",
        "DELETE",
    ),
    Attempt(
        "access entry of another cluster",
        "eks",
        "/clusters/a/node-groups",
        body='{"clusterName": "b"}',
        signed={"Content-Type": "application/json"},
    ),
]
S3 = [
    Attempt("escaped slash after the bucket", "s3", "/private%2Fsecret", "GET"),
    Attempt("doubly escaped slash", "s3", "/code/code%252F..%252F..%252Fprivate/secret", "GET"),
    Attempt("dots in the path", "s3", "/code/code/../../private/secret", "GET"),
    Attempt("escaped dots in the path", "s3", "/code/code/%2e%2e/%2e%2e/private/secret", "GET"),
    Attempt("two slashes before the bucket", "s3", "//private/secret", "GET"),
    Attempt("bucket of the host header", "s3", "/secret", "GET", host="private.s3.amazonaws.com"),
    Attempt(
        "bucket of the host header instead of the path's", "s3", "/code/code/x", "GET", host="private.s3.amazonaws.com"
    ),
    Attempt("absolute address of another host", "s3", "http://private.s3.amazonaws.com/secret", "GET"),
    Attempt("source of a copy", "s3", "/code/code/copy", "PUT", signed={"x-amz-copy-source": "/private/secret"}),
    Attempt(
        "source of a copy outside the signature",
        "s3",
        "/code/code/copy",
        "PUT",
        added=(("x-amz-copy-source", "/code/code/x"),),
    ),
    Attempt("version in the query of a deletion", "s3", "/code/code/z?versionId={version}", "DELETE"),
    Attempt("version twice", "s3", "/code/code/z?versionId=null&versionId={version}", "DELETE"),
    Attempt("marker that moto takes for a listing", "s3", "/private?requestPayment", "GET"),
    Attempt("marker that moto takes for an object", "s3", "/private/secret?torrent", "GET"),
    Attempt("two markers", "s3", "/private?requestPayment&uploads", "GET"),
    Attempt("upload as a form", "s3", "/private", body=multipart({"key": "stolen", "file": "x"}), signed=MULTIPART),
    Attempt(
        "preflight",
        "s3",
        "/private/secret",
        "OPTIONS",
        signed={"Origin": "http://a", "Access-Control-Request-Method": "GET"},
    ),
    Attempt(
        "deletion of several, one of them another's",
        "s3",
        "/code?delete",
        body="<Delete><Object><Key>code/x</Key></Object><Object><Key>data/y</Key></Object></Delete>",
    ),
    Attempt("body of another hash", "s3", "/code/code/y", "PUT", body="other", signed_body="signed"),
    Attempt(
        "chunked body of another hash",
        "s3",
        "/code/code/y",
        "PUT",
        body="other",
        signed_body="",
        added=(("Transfer-Encoding", "chunked"),),
    ),
    Attempt(
        "unknown payload kind",
        "s3",
        "/code/code/y",
        "PUT",
        body="other",
        signed={"X-Amz-Content-SHA256": "STREAMING-NOTHING"},
    ),
    Attempt(
        "chunk of another signature",
        "s3",
        "/code/code/y",
        "PUT",
        body=chunked("other", "0" * 64),
        signed={"X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "x-amz-decoded-content-length": "5"},
    ),
    Attempt(
        "chunks without signatures where signed ones are announced",
        "s3",
        "/code/code/y",
        "PUT",
        body="5\r\nother\r\n0\r\n\r\n",
        signed={"X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
    ),
    Attempt(
        "trailing checksum of another body",
        "s3",
        "/code/code/y",
        "PUT",
        body="5\r\nother\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
        signed={"X-Amz-Content-SHA256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
    ),
    Attempt("method in small letters", "s3", "/private/secret", "get"),
    Attempt("account header", "s3", "/private/secret", "GET", signed={"X-Moto-Account-Id": "999999999999"}),
]


@pytest.fixture(scope="module")
def account(endpoint: str) -> Account:
    made: Any = boto3.Session("localcloud", "localcloud", region_name=REGION)
    return smuggling.account(cache(lambda service: made.client(service, endpoint_url=endpoint)), endpoint)


@pytest.mark.parametrize("attempt", [*STS, *SCOPES, *RESOURCES, *S3], ids=lambda attempt: attempt.name)
def test_an_ambiguous_request_is_neither_carried_out_nor_answered(
    endpoint: str, account: Account, attempt: Attempt
) -> None:
    before = account.state()
    status, answer = smuggling.send(endpoint, account.credentials, attempt, account.ids)
    assert 400 <= status < 500 or status == 501, answer
    assert not [text for text in (SECRET, b"SecretAccessKey", b"<Contents>") if text in answer]
    assert account.state() == before


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(
            "action inside of a JSON text",
            "kms",
            "/",
            body='{"Marker": "&Action=ScheduleKeyDeletion&KeyId={key}&PendingWindowInDays=7&"}',
            signed=JSON | {"X-Amz-Target": "TrentService.ListKeys"},
        ),
        Attempt(
            "file system in the query",
            "elasticfilesystem",
            "/2015-02-01/file-systems/{own}/policy?FileSystemId={other}",
            "DELETE",
        ),
        Attempt(
            "file system in the body",
            "elasticfilesystem",
            "/2015-02-01/file-systems/{own}/policy",
            "PUT",
            body='{"FileSystemId": "{other}", "Policy": "{}"}',
            signed={"Content-Type": "application/json"},
        ),
        Attempt(
            "version in the body of a deletion", "s3", "/code/code/z", "DELETE", body="versionId={version}", signed=FORM
        ),
    ],
    ids=lambda attempt: attempt.name,
)
def test_parameters_in_the_wrong_place_are_ignored(endpoint: str, account: Account, attempt: Attempt) -> None:
    before = account.others()
    smuggling.send(endpoint, account.credentials, attempt, account.ids)
    assert account.others() == before


def test_the_tables_role_may_do_what_its_policy_allows(endpoint: str, account: Account) -> None:
    client = smuggling.session(account, endpoint)
    assert client("s3").get_object(Bucket="code", Key="code/x")["Body"].read() == b"x"
    assert client("kms").list_keys()["Keys"]
    assert client("iam").get_role(RoleName="own")["Role"]["RoleName"] == "own"
    assert client("efs").describe_file_system_policy is not None
    assert client("efs").update_file_system(FileSystemId=account.ids["own"], ThroughputMode="bursting")
