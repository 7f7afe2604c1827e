"""The aws plug-in over an account that keeps state."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from localcloud.standins.aws.clients import Clients, Settings
from localcloud.standins.aws.provider import AwsProvider
from localcloud.standins.values import from_plain
from pulumi.provider.experimental import provider as sdk

from packages.localcloud.tests.aws.fakes import REGION
from packages.localcloud.tests.standins.aws.harness import Engine


@pytest.fixture(scope="module")
def clients(endpoint: str) -> Clients:
    return Clients(
        Settings(REGION, endpoint=endpoint, access_key="localcloud", secret_key="localcloud", path_style=True)
    )


@pytest.fixture
def engine(endpoint: str) -> Engine:
    return make_engine(endpoint)


def make_engine(endpoint: str, **config: Any) -> Engine:
    """Return an engine with a provider that uses the account."""
    services = ("ec2", "eks", "iam", "efs", "s3", "kms", "logs", "sts", "ssm", "sqs", "events", "ecr", "servicequotas")
    settings = {
        "region": REGION,
        "accessKey": "localcloud",
        "secretKey": "localcloud",
        "s3UsePathStyle": True,
        "endpoints": [dict.fromkeys(services, endpoint)],
        **config,
    }
    provider = AwsProvider()
    asyncio.run(provider.configure(sdk.ConfigureRequest({}, from_plain(settings), True, True)))
    return Engine(provider)
