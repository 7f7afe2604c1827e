"""Send the requests of the table in `test_smuggling.py`: signed as a pod's role, over a raw connection."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import boto3
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/x-amz-json-1.1"}
SECRET = b"the secret of the other bucket"
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/admin"
IDENTITY = "Action=GetCallerIdentity&Version=2011-06-15"
ASSUME = urlencode({"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": ADMIN, "RoleSessionName": "x"})


@dataclass(frozen=True)
class Attempt:
    """A request; `{...}` in `target` and `body` are replaced by the ids of the account's resources.

    Args:
        signed: The headers that the signature covers, in addition to what botocore adds.
        added: Header lines that are sent too, but not signed.
        scope: The service in the credential scope.
        signed_body: The body that the signature is made for, if it is not the one that is sent.
    """

    name: str
    scope: str
    target: str
    method: str = "POST"
    body: str = ""
    signed: dict[str, str] = field(default_factory=dict)
    added: tuple[tuple[str, str], ...] = ()
    signed_body: str | None = None
    host: str | None = None


def send(endpoint: str, credentials: Credentials, attempt: Attempt, ids: dict[str, str]) -> tuple[int, bytes]:
    """Send an attempt; return the status and the body of the response."""

    def filled(text: str) -> str:
        for name, value in ids.items():
            text = text.replace("{" + name + "}", value)
        return text

    target, body = filled(attempt.target), filled(attempt.body).encode()
    signed_body = body if attempt.signed_body is None else filled(attempt.signed_body).encode()
    host = attempt.host or urlsplit(endpoint).netloc
    headers = {name: filled(value) for name, value in attempt.signed.items()}
    url = f"http://{host}{target}" if target.startswith("/") else target
    request = AWSRequest(attempt.method, url, data=signed_body, headers=headers)
    # S3SigV4Auth would replace the hash.
    auth = S3SigV4Auth if attempt.scope == "s3" and "X-Amz-Content-SHA256" not in headers else SigV4Auth
    auth(credentials, attempt.scope, REGION).add_auth(request)
    lines = [*request.headers.items(), *attempt.added]
    return exchange(endpoint, attempt.method, target, host, lines, body)


def exchange(
    endpoint: str, method: str, target: str, host: str, headers: Iterable[tuple[str, Any]], body: bytes
) -> tuple[int, bytes]:
    """Send one request with exactly these header lines."""
    lines = list(headers)
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", host)
    for name, value in lines:
        connection.putheader(name, value)
    names = {name.lower() for name, _ in lines}
    if not names & {"content-length", "transfer-encoding"}:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders()
    chunked = "transfer-encoding" in names
    connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked and body else body)
    with connection.getresponse() as response:
        return response.status, response.read()


@dataclass(frozen=True)
class Account:
    """The account that receives the attempts."""

    credentials: Credentials
    ids: dict[str, str]
    operator: Any

    def state(self) -> str:
        """Return everything that an attempt could change, as text."""
        client = self.operator
        s3, listed = client("s3"), {}
        for bucket in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
            versions = s3.list_object_versions(Bucket=bucket)
            listed[bucket] = [
                sorted((found["Key"], found["VersionId"], str(found.get("ETag"))) for found in versions.get(kind, []))
                for kind in ("Versions", "DeleteMarkers")
            ]
        kms, systems = client("kms"), client("efs").describe_file_systems()["FileSystems"]
        seen = [
            listed,
            sorted(user["UserName"] for user in client("iam").list_users()["Users"]),
            sorted(role["RoleName"] for role in client("iam").list_roles()["Roles"]),
            sorted(kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]["KeyState"] for key in kms.list_keys()["Keys"]),
            sorted((system["FileSystemId"], system["LifeCycleState"]) for system in systems),
            [system.get("FileSystemProtection") for system in systems],
            [_policy(client("efs"), system["FileSystemId"]) for system in systems],
            sorted(vpc["VpcId"] for vpc in client("ec2").describe_vpcs()["Vpcs"]),
        ]
        return json.dumps(seen, sort_keys=True, default=str)

    def others(self) -> str:
        """Return the resources that the role may not change with the calls that it may make."""
        kms, s3 = self.operator("kms"), self.operator("s3")
        return json.dumps(
            [
                kms.describe_key(KeyId=self.ids["key"])["KeyMetadata"]["KeyState"],
                _policy(self.operator("efs"), self.ids["other"]),
                [found["VersionId"] for found in s3.list_object_versions(Bucket="code", Prefix="code/z")["Versions"]],
            ]
        )


def _policy(efs: Any, system: str) -> str:
    try:
        return str(efs.describe_file_system_policy(FileSystemId=system)["Policy"])
    except efs.exceptions.PolicyNotFound:
        return ""


STATEMENTS = [
    ("code", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "arn:aws:s3:::code/code/*"),
    ("list", ["s3:ListBucket"], "arn:aws:s3:::code"),
    ("billing", ["s3:GetBucketRequestPayment", "s3:GetObjectTorrent"], "arn:aws:s3:::private*"),
    ("own", ["iam:*"], f"arn:aws:iam::{ACCOUNT}:role/own"),
    ("keys", ["kms:ListKeys"], "*"),
    ("types", ["ec2:DescribeInstanceTypes"], "*"),
]


def account(operator: Any, endpoint: str) -> Account:
    """Create the account: a role `pod` with few rights, and resources that it has no rights on."""
    iam, s3, efs = operator("iam"), operator("s3"), operator("efs")
    for bucket in ("code", "private"):
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket="private", Key="secret", Body=SECRET)
    s3.put_object(Bucket="code", Key="code/x", Body=b"x")
    version = s3.put_object(Bucket="code", Key="code/z", Body=b"z")["VersionId"]
    systems = [efs.create_file_system(CreationToken=name)["FileSystemId"] for name in ("own", "other")]
    efs.put_file_system_policy(FileSystemId=systems[1], Policy=json.dumps({"Statement": []}))
    key = operator("kms").create_key()["KeyMetadata"]["KeyId"]
    root = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [root]})
    for role in ("pod", "own", "admin"):
        iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
    own = ("system", ["elasticfilesystem:*"], f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:file-system/{systems[0]}")
    allowed = [
        {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
        for sid, actions, resource in (*STATEMENTS, own)
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": allowed})
    iam.put_role_policy(RoleName="pod", PolicyName="few", PolicyDocument=document)
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    iam.put_role_policy(
        RoleName="admin",
        PolicyName="all",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [everything]}),
    )
    arn = f"arn:aws:iam::{ACCOUNT}:role/pod"
    made = operator("sts").assume_role(RoleArn=arn, RoleSessionName="pod")["Credentials"]
    ids = {"version": version, "own": systems[0], "other": systems[1], "key": key}
    credentials = Credentials(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
    return Account(credentials, ids, operator)


def session(account: Account, endpoint: str) -> Any:
    """Return a boto3 session of the pod's role."""
    held = account.credentials
    made = boto3.Session(held.access_key, held.secret_key, held.token, region_name=REGION)
    return lambda service: made.client(service, endpoint_url=endpoint)


def sha256(text: str) -> str:
    """Return the hash of a body in the form of `x-amz-content-sha256`."""
    return hashlib.sha256(text.encode()).hexdigest()
