"""An S3 by moto that boto3 finds through the environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.aws import moto_server
from tidewater.elastic.storage import s3

BUCKET = "there"


@pytest.fixture(scope="session")
def account() -> Iterator[str]:
    """Yield the endpoint of an AWS account in a process of its own, with one bucket."""
    with moto_server.serve() as endpoint:
        moto_server.client("s3", endpoint).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": moto_server.REGION}
        )
        yield endpoint


@pytest.fixture
def bucket(account: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a client of S3; the bucket `there` is empty, and boto3 finds the account through the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": account,
        "AWS_ACCESS_KEY_ID": moto_server.KEYS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": moto_server.KEYS["aws_secret_access_key"],
        "AWS_DEFAULT_REGION": moto_server.REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    # The session that boto3 keeps has the credentials of the test that used it first.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    s3.client.cache_clear()
    client = moto_server.client("s3", account)
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    yield client
    s3.client.cache_clear()
