"""The operations that the stack uses work with real clients, whatever the names and the bodies contain."""

from __future__ import annotations

import io
import json
import urllib.request
from base64 import b64encode
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from localcloud.aws.requests.payload import EMPTY_HASH
from localcloud.aws.requests.received import Received
from localcloud.aws.requests.sigv4 import chunk_signature, parse

from packages.localcloud.tests.aws import smuggling
from packages.localcloud.tests.aws.account import Clients, clients
from packages.localcloud.tests.aws.fakes import REGION
from scripts.sweep.account import Found, look
from scripts.sweep.model import Stack

ALLOW = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
KEYS = [
    "plain",
    "a b+c.zip",
    "folder/",
    "ünïcode/ключ",
    "per%cent",
    "per%2Fcent",
    "a=b&c=d",
    "who?me",
    "hash#tag",
    "semi;colon",
    "dots/../up",
    "./here",
    "a//b",
    "~tilde'(x)!*",
    "comma,plus+",
    'quote"s',
    "Action=DeleteObject&x=.eu-west-1.amazonaws.com",
]


@pytest.fixture(scope="module")
def client(endpoint: str) -> Clients:
    made: Any = boto3.Session("localcloud", "localcloud", region_name=REGION)
    config = Config(signature_version="s3v4")
    return cache(lambda name: made.client(name, endpoint_url=endpoint, config=config if name == "s3" else None))


def test_the_sweep_can_look_for_everything_here(client: Clients) -> None:
    assert look(client, Stack("tidewater", "gone")) == Found((), (), (), ())


@pytest.fixture(scope="module")
def bucket(client: Clients) -> str:
    client("s3").create_bucket(Bucket="data", CreateBucketConfiguration={"LocationConstraint": REGION})
    return "data"


@pytest.mark.parametrize("key", KEYS)
def test_an_object_can_have_any_name(client: Clients, bucket: str, key: str) -> None:
    s3 = client("s3")
    s3.put_object(Bucket=bucket, Key=key, Body=b"body", Metadata={"with_underscore": "1", "with-dash": "2"})
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"body"
    assert s3.head_object(Bucket=bucket, Key=key)["Metadata"] == {"with_underscore": "1", "with-dash": "2"}
    assert key in [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix=key[:3])["Contents"]]
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
    assert urllib.request.urlopen(url).read() == b"body"
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == b"body"
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}, {"Key": "copy"}]})
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/plain"])
def test_the_type_of_an_object_does_not_change_its_content(client: Clients, bucket: str, kind: str) -> None:
    s3 = client("s3")
    s3.put_object(Bucket=bucket, Key="typed", Body=b"key=value&file=x", ContentType=kind)
    found = s3.get_object(Bucket=bucket, Key="typed")
    assert (found["Body"].read(), found["ContentType"]) == (b"key=value&file=x", kind)
    s3.delete_object(Bucket=bucket, Key="typed")


def test_multipart_uploads_and_ranges(client: Clients, bucket: str) -> None:
    s3, body = client("s3"), bytes(range(256)) * 40_000
    small = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    s3.upload_fileobj(io.BytesIO(body), bucket, "large", Config=small)
    taken = io.BytesIO()
    s3.download_fileobj(bucket, "large", taken, Config=small)
    assert taken.getvalue() == body
    assert s3.get_object(Bucket=bucket, Key="large", Range="bytes=10-19")["Body"].read() == body[10:20]
    upload = s3.create_multipart_upload(Bucket=bucket, Key="left")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="left", UploadId=upload, PartNumber=1, Body=b"x")
    assert s3.list_parts(Bucket=bucket, Key="left", UploadId=upload)["Parts"][0]["Size"] == 1
    assert s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Key"] == "left"
    s3.abort_multipart_upload(Bucket=bucket, Key="left", UploadId=upload)
    s3.delete_object(Bucket=bucket, Key="large")


def test_presigned_urls_upload_and_apply_their_query_parameters(client: Clients, bucket: str) -> None:
    s3 = client("s3")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "up"})
    urllib.request.urlopen(urllib.request.Request(url, data=b"up", method="PUT", headers={"Content-Type": ""}))
    params = {"Bucket": bucket, "Key": "up", "ResponseContentDisposition": 'attachment; filename="a b.txt"'}
    with urllib.request.urlopen(s3.generate_presigned_url("get_object", Params=params)) as answer:
        assert (answer.read(), answer.headers["Content-Disposition"]) == (b"up", 'attachment; filename="a b.txt"')
    s3.delete_object(Bucket=bucket, Key="up")


def test_virtual_hosted_addresses_name_the_bucket_in_the_host(endpoint: str, client: Clients, bucket: str) -> None:
    client("s3").put_object(Bucket=bucket, Key="hosted", Body=b"hosted")
    attempt = smuggling.Attempt("", "s3", "/hosted", "GET", host=f"{bucket}.s3.{REGION}.amazonaws.com")
    assert smuggling.send(endpoint, Credentials("localcloud", "localcloud"), attempt, {}) == (200, b"hosted")
    client("s3").delete_object(Bucket=bucket, Key="hosted")


@pytest.mark.parametrize("signed", [True, False], ids=["signed chunks", "unsigned chunks with a checksum"])
def test_uploads_in_chunks_are_stored_without_the_chunk_headers(
    endpoint: str, client: Clients, bucket: str, signed: bool
) -> None:
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" if signed else "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    headers = {"X-Amz-Content-SHA256": kind, "x-amz-decoded-content-length": "10", "Content-Encoding": "aws-chunked"}
    request = AWSRequest("PUT", f"{endpoint}/{bucket}/streamed", headers=headers)
    SigV4Auth(Credentials("localcloud", "localcloud"), "s3", REGION).add_auth(request)
    lines = {name.lower(): str(value) for name, value in request.headers.items()}
    signature = parse(Received("PUT", f"/{bucket}/streamed", "", lines))
    assert signature is not None
    previous, body = signature.signature, b""
    for chunk in (b"first", b"other", b""):
        digest = smuggling.sha256(chunk.decode())
        previous = chunk_signature(signature, "localcloud", "AWS4-HMAC-SHA256-PAYLOAD", previous, EMPTY_HASH, digest)
        extension = f";chunk-signature={previous}" if signed else ""
        body += f"{len(chunk):x}{extension}\r\n".encode() + (chunk + b"\r\n" if chunk else b"")
    checksum = b64encode(bytes.fromhex(smuggling.sha256("firstother"))).decode()
    body += b"\r\n" if signed else f"x-amz-checksum-sha256:{checksum}\r\n\r\n".encode()
    status, answer = smuggling.exchange(
        endpoint, "PUT", f"/{bucket}/streamed", urlsplit(endpoint).netloc, request.headers.items(), body
    )
    assert status == 200, answer
    found = client("s3").get_object(Bucket=bucket, Key="streamed")
    assert found["Body"].read() == b"firstother"
    assert "ContentEncoding" not in found
    client("s3").delete_object(Bucket=bucket, Key="streamed")


def test_parameters_of_kms_logs_and_ssm_arrive_as_they_were_sent(client: Clients) -> None:
    text = "&Action=Other&KeyId=x; a=b/ü"
    key = client("kms").create_key(Description=text)["KeyMetadata"]["KeyId"]
    assert client("kms").describe_key(KeyId=key)["KeyMetadata"]["Description"] == text
    secret = client("kms").encrypt(KeyId=key, Plaintext=b"\0plain")["CiphertextBlob"]
    assert client("kms").decrypt(CiphertextBlob=secret)["Plaintext"] == b"\0plain"
    logs = client("logs")
    logs.create_log_group(logGroupName="/aws/eks/a/cluster", tags={"a": text})
    logs.put_retention_policy(logGroupName="/aws/eks/a/cluster", retentionInDays=7)
    assert logs.describe_log_groups(logGroupNamePrefix="/aws")["logGroups"][0]["retentionInDays"] == 7
    client("ssm").put_parameter(Name="/a/b", Value=text, Type="String")
    assert client("ssm").get_parameter(Name="/a/b")["Parameter"]["Value"] == text
    assert client("ssm").get_parameters_by_path(Path="/a")["Parameters"][0]["Name"] == "/a/b"


def test_forms_of_iam_sts_and_ec2_arrive_as_they_were_sent(client: Clients) -> None:
    iam, ec2 = client("iam"), client("ec2")
    document = json.dumps({"Version": "2012-10-17", "Id": "a b+c&d=e", "Statement": [ALLOW]})
    made = iam.create_policy(PolicyName="forms", PolicyDocument=document, Tags=[{"Key": "a+b", "Value": "c=d e"}])
    arn = made["Policy"]["Arn"]
    version = iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]
    assert version["Document"]["Id"] == "a b+c&d=e"
    assert iam.get_policy(PolicyArn=arn)["Policy"]["Tags"] == [{"Key": "a+b", "Value": "c=d e"}]
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "Name", "Value": "a b+c&d=e"}]}]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
    filters = [{"Name": "tag:Name", "Values": ["a b+c&d=e", "other"]}]
    assert [found["VpcId"] for found in ec2.describe_vpcs(Filters=filters)["Vpcs"]] == [vpc]
    url = client("sts").generate_presigned_url("get_caller_identity", HttpMethod="GET")
    assert b"user/operator" in urllib.request.urlopen(url).read()


def test_a_call_is_carried_out_in_the_region_that_was_signed(endpoint: str, client: Clients) -> None:
    vpc = client("ec2").create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    disguised = Config(user_agent="Boto3 region/eu-west-1")
    made: Any = boto3.client(
        "ec2",
        REGION,
        endpoint_url=endpoint,
        aws_access_key_id="localcloud",
        aws_secret_access_key="localcloud",
        config=disguised,
    )
    assert vpc in [found["VpcId"] for found in made.describe_vpcs()["Vpcs"]]
    elsewhere: Any = boto3.client(
        "ec2", "eu-west-1", endpoint_url=endpoint, aws_access_key_id="localcloud", aws_secret_access_key="localcloud"
    )
    assert vpc not in [found["VpcId"] for found in elsewhere.describe_vpcs()["Vpcs"]]


@pytest.mark.parametrize(
    ("service", "call", "params"),
    [
        ("cloudformation", "list_stacks", {}),
        ("dynamodb", "list_tables", {}),
        ("elb", "describe_load_balancers", {}),
        ("elbv2", "describe_load_balancers", {}),
        ("lambda", "list_functions", {}),
        ("route53", "list_hosted_zones", {}),
        ("sns", "list_topics", {}),
        ("resourcegroupstaggingapi", "get_resources", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_moto_answers_for_other_services(client: Clients, service: str, call: str, params: dict[str, Any]) -> None:
    answer = getattr(client(service), call)(**params)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_path_may_contain_the_arn_of_a_role(client: Clients) -> None:
    eks, role = client("eks"), "arn:aws:iam::123456789012:role/path/a"
    with pytest.raises(eks.exceptions.ResourceNotFoundException):
        eks.list_associated_access_policies(clusterName="none", principalArn=role)


def test_a_cluster_in_another_region_is_refused_with_the_command_that_moves_the_cloud(endpoint: str) -> None:
    elsewhere = clients(endpoint, "localcloud", "localcloud", region="eu-west-1")("eks")
    request = {"name": "demo", "roleArn": "arn:aws:iam::123456789012:role/eks", "resourcesVpcConfig": {"subnetIds": []}}
    with pytest.raises(elsewhere.exceptions.InvalidRequestException, match="localcloud start --region eu-west-1"):
        elsewhere.create_cluster(**request)
