"""Serve an account in this process: the gateway with moto, and an EKS with fake machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from localcloud.instance import Credentials

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from tests.aws.account import served

OPERATOR = Credentials("localcloud", "localcloud")
Clients = Callable[[str], Any]
"""Return boto3's client of a service."""


def serve_account() -> Iterator[str]:
    """Serve an empty account until the generator ends; yield its endpoint.

    moto's state belongs to the process, so there is one account at a time: a new one clears the state.
    """
    from localcloud.daemon import MOTO_SETTINGS

    os.environ.update(MOTO_SETTINGS)
    from localcloud.aws.compute.pricing import PricingService
    from localcloud.aws.compute.quota_service import QuotaService
    from localcloud.aws.ec2 import MotoEc2
    from localcloud.aws.eks.service import EksService
    from localcloud.aws.eks.state import Eks, Settings
    from localcloud.aws.gateway import Gateway, Service
    from localcloud.aws.principals import MotoPrincipals
    from moto.moto_api._internal.models import moto_api_backend

    _lay_rules()
    moto_api_backend.reset()
    principals = MotoPrincipals(ACCOUNT, REGION)
    principals.create_operator(OPERATOR)
    settings = Settings(ACCOUNT, REGION, lambda kind, cluster: None)
    eks = Eks(settings, MotoEc2(ACCOUNT, REGION), principals, fakes.FakeMachine())
    services: dict[str, Service] = {
        "eks": EksService(eks),
        "pricing": PricingService(),
        "servicequotas": QuotaService(ACCOUNT),
    }
    gateway = Gateway(ACCOUNT, principals, services, [], {})
    with served(gateway) as endpoint:
        yield endpoint


def clients(endpoint: str, key: str, secret: str, token: str | None = None, *, region: str = REGION) -> Clients:
    """Return the clients of the principal with these credentials, one for each service."""
    import boto3

    session: Any = boto3.Session(key, secret, token, region_name=region)
    return cache(lambda service: session.client(service, endpoint_url=endpoint))


@cache
def _lay_rules() -> None:
    """Install the rules once per process, as the daemon does."""
    from localcloud.aws import moto_rules

    moto_rules.install()
