"""An account that keeps state: the gateway with moto and an EKS whose machines are fakes, in this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi.provider.experimental import provider as sdk

from localcloud.plugins.aws.clients import Clients, Settings
from localcloud.plugins.aws.provider import AwsProvider
from localcloud.plugins.values import from_plain
from tests.localcloud.aws import fakes
from tests.localcloud.aws.fakes import ACCOUNT, REGION
from tests.localcloud.plugins.aws.harness import Engine


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    from localcloud.daemon import MOTO_SETTINGS

    os.environ.update(MOTO_SETTINGS)
    from werkzeug.serving import make_server

    from localcloud.aws import moto_rules
    from localcloud.aws.ec2 import MotoEc2
    from localcloud.aws.eks.service import EksService
    from localcloud.aws.eks.state import Eks
    from localcloud.aws.eks.state import Settings as EksSettings
    from localcloud.aws.gateway import Gateway
    from localcloud.aws.principals import MotoPrincipals

    moto_rules.install()
    principals = MotoPrincipals(ACCOUNT, REGION)
    principals.create_operator()
    settings = EksSettings(ACCOUNT, REGION, lambda kind, cluster: None)
    eks = Eks(settings, MotoEc2(ACCOUNT, REGION), principals, fakes.FakeMachine())
    gateway = Gateway(ACCOUNT, principals, {"eks": EksService(eks)}, [], {})
    server = make_server("127.0.0.1", 0, gateway, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def clients(endpoint: str) -> Clients:
    return Clients(
        Settings(REGION, endpoint=endpoint, access_key="localcloud", secret_key="localcloud", path_style=True)
    )


@pytest.fixture
def engine(endpoint: str) -> Engine:
    return make_engine(endpoint)


def make_engine(endpoint: str, **config: Any) -> Engine:
    """An engine over a provider that talks to the account."""
    services = ("ec2", "eks", "iam", "efs", "s3", "kms", "logs", "sts", "ssm")
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
