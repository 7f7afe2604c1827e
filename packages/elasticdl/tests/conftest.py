"""What the tests of ElasticDL share: processes with an etcd, two datasets, and an S3 by moto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked

from packages.elasticdl.tests.processes.forked import ENVIRONMENT, ZYGOTE
from tests.aws import moto_server
from tests.elastic.conftest import etcd
from tests.farm import Farm
from tidewater.elastic.storage import s3

__all__ = ["etcd"]

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


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Yield a farm of forked masters, parameter servers and workers; they end with the farm."""
    with Farm(ZYGOTE, tmp_path_factory.mktemp("farm"), ENVIRONMENT) as farm:
        yield farm


@pytest.fixture(scope="session")
def digits_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits of scikit-learn as RecordIO, in `train` and `test`."""
    out = tmp_path_factory.mktemp("records") / "digits"
    write("digits", str(out), Options(records_per_shard=500))
    return out


@pytest.fixture(scope="session")
def clicks_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated clicks as RecordIO, in `train` and `test`."""
    out = tmp_path_factory.mktemp("records") / "clicks"
    write("generated-clicks", str(out), Options(records_per_shard=4000, asked=Asked(records=12_000)))
    return out
