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


def sts(name: str, headers: dict[str, str] = FORM, *, query: str = "", body: str = ASSUME, **more: Any) -> Attempt:
    """Return a request to STS, by default the form that assumes a role."""
    return Attempt(name, "sts", f"/?{query}" if query else "/", body=body, signed=headers, **more)


def form(name: str, scope: str, body: str, **more: Any) -> Attempt:
    """Return a form with an operation."""
    return Attempt(name, scope, "/", body=body, signed=FORM, **more)


def targeted(name: str, target: str, scope: str = "kms", path: str = "/", body: str = "{}") -> Attempt:
    """Return a request that names its operation in a header."""
    return Attempt(name, scope, path, body=body, signed=JSON | {"X-Amz-Target": target})


def upload(name: str, kind: str = "", body: str = "other", **more: Any) -> Attempt:
    """Return an upload of an object that the role may write, with a kind of payload."""
    signed = {"X-Amz-Content-SHA256": kind} if kind else {}
    return Attempt(name, "s3", "/code/code/y", "PUT", body=body, signed=signed | more.pop("signed", {}), **more)


TEXT = {"Content-Type": "text/plain"}
PLAIN_JSON = {"Content-Type": "application/json"}
CHUNKED = (("Transfer-Encoding", "chunked"),)
DELETION = "KeyId={key}&PendingWindowInDays=7"
STS = [
    sts("target header of an allowed call", FORM | {"X-Amz-Target": "x.GetCallerIdentity"}),
    sts("target header in other case", FORM | {"x-AMZ-tArGeT": "x.GetCallerIdentity"}),
    sts("target header outside the signature", added=(("X-Amz-Target", "x.GetCallerIdentity"),)),
    sts("action in query and in body", query=IDENTITY),
    sts("action in body and in query", query=ASSUME, body=IDENTITY),
    sts("action twice in the body", body=f"{IDENTITY}&{ASSUME}"),
    sts("action twice in the body, the other way", body=f"{ASSUME}&{IDENTITY}"),
    sts("action twice in the query", {}, query=f"{IDENTITY}&{ASSUME}", body="", method="GET"),
    sts("action with an escaped name", body=f"{IDENTITY}&{ASSUME.replace('Action', '%41ction')}"),
    sts("form as plain text", TEXT),
    sts("form without a content type", {}),
    sts("form with its content type in capitals", {"Content-Type": "Application/X-WWW-Form-Urlencoded"}),
    sts("multipart form", MULTIPART, body=multipart(FIELDS)),
    sts("form as JSON", JSON, body=json.dumps(FIELDS)),
    Attempt("form in another path", "sts", "/latest/api/x", body=ASSUME, signed=TEXT),
    sts("GET with a body", query=IDENTITY, method="GET"),
    sts("GET with a body of no type", {}, method="GET"),
    sts("PUT instead of POST", TEXT, method="PUT"),
    sts("method override", {"X-HTTP-Method-Override": "POST"}, query=IDENTITY, method="GET"),
    sts("chunked body", query=IDENTITY, signed_body="", added=CHUNKED),
    sts("body that was not signed", signed_body=IDENTITY),
    sts(
        "body that was not signed, with its hash in the header",
        FORM | {"X-Amz-Content-SHA256": smuggling.sha256(IDENTITY)},
        signed_body=IDENTITY,
    ),
    sts("body that is not signed at all", FORM | {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}, signed_body=IDENTITY),
]
SCOPES = [
    form("action of IAM in the scope of STS", "sts", "Action=CreateUser&UserName=x&Version=2010-05-08"),
    form("action of STS in the scope of IAM", "iam", IDENTITY),
    form("action of IAM with the host of STS", "iam", "Action=CreateUser&UserName=x", host="sts.amazonaws.com"),
    targeted("target of KMS in the scope of STS", "TrentService.ListKeys", "sts"),
    targeted("target with the prefix of another service", "AmazonSSM.ListKeys"),
    targeted("target without a prefix", "ListKeys"),
    targeted(
        "two target headers",
        "TrentService.ScheduleKeyDeletion,TrentService.ListKeys",
        body='{"KeyId": "{key}", "PendingWindowInDays": 7}',
    ),
    targeted(
        "target and an action in the query",
        "TrentService.ListKeys",
        path=f"/?Action=ScheduleKeyDeletion&{DELETION}",
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
    form("operation that the service does not have", "ec2", "Action=DescribeNothing"),
    form("no operation at all", "ec2", "Version=2016-11-15"),
]
RESOURCES = [
    form(
        "role name for an operation that has none",
        "iam",
        "Action=CreateUser&UserName=x&RoleName=own&Version=2010-05-08",
    ),
    form("role name twice", "iam", "Action=DeleteRole&RoleName=own&RoleName=pod&Version=2010-05-08"),
    Attempt(
        "own file system in the query, another one in the body",
        "elasticfilesystem",
        "/2015-02-01/access-points?FileSystemId={own}",
        body='{"FileSystemId": "{other}", "ClientToken": "c"}',
        signed=PLAIN_JSON,
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
        signed=PLAIN_JSON,
    ),
]
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
OTHERS_BUCKET = "private.s3.amazonaws.com"
S3 = [
    Attempt("escaped slash after the bucket", "s3", "/private%2Fsecret", "GET"),
    Attempt("doubly escaped slash", "s3", "/code/code%252F..%252F..%252Fprivate/secret", "GET"),
    Attempt("dots in the path", "s3", "/code/code/../../private/secret", "GET"),
    Attempt("escaped dots in the path", "s3", "/code/code/%2e%2e/%2e%2e/private/secret", "GET"),
    Attempt("two slashes before the bucket", "s3", "//private/secret", "GET"),
    Attempt("bucket of the host header", "s3", "/secret", "GET", host=OTHERS_BUCKET),
    Attempt("bucket of the host header instead of the path's", "s3", "/code/code/x", "GET", host=OTHERS_BUCKET),
    Attempt("absolute address of another host", "s3", f"http://{OTHERS_BUCKET}/secret", "GET"),
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
    upload("body of another hash", signed_body="signed"),
    upload("chunked body of another hash", signed_body="", added=CHUNKED),
    upload("unknown payload kind", "STREAMING-NOTHING"),
    upload(
        "chunk of another signature",
        SIGNED_CHUNKS,
        chunked("other", "0" * 64),
        signed={"x-amz-decoded-content-length": "5"},
    ),
    upload("chunks without signatures where signed ones are announced", SIGNED_CHUNKS, "5\r\nother\r\n0\r\n\r\n"),
    upload(
        "trailing checksum of another body",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "5\r\nother\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
    ),
    Attempt("method in small letters", "s3", "/private/secret", "get"),
    Attempt("account header", "s3", "/private/secret", "GET", signed={"X-Moto-Account-Id": "999999999999"}),
]


@pytest.fixture(scope="module")
def account(endpoint: str) -> Account:
    made: Any = boto3.Session("localcloud", "localcloud", region_name=REGION)
    return smuggling.account(cache(lambda service: made.client(service, endpoint_url=endpoint)), endpoint)


@pytest.fixture(scope="module")
def state(account: Account) -> str:
    """What no attempt may change."""
    return account.state()


@pytest.mark.parametrize("attempt", [*STS, *SCOPES, *RESOURCES, *S3], ids=lambda attempt: attempt.name)
def test_an_ambiguous_request_is_neither_carried_out_nor_answered(
    endpoint: str, account: Account, state: str, attempt: Attempt
) -> None:
    status, answer = smuggling.send(endpoint, account.credentials, attempt, account.ids)
    assert 400 <= status < 500 or status == 501, answer
    assert not [text for text in (SECRET, b"SecretAccessKey", b"<Contents>") if text in answer]
    assert account.state() == state


@pytest.mark.parametrize(
    "attempt",
    [
        targeted(
            "action inside of a JSON text",
            "TrentService.ListKeys",
            body=f'{{"Marker": "&Action=ScheduleKeyDeletion&{DELETION}&"}}',
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
            signed=PLAIN_JSON,
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
    assert client("efs").update_file_system(FileSystemId=account.ids["own"], ThroughputMode="bursting")
