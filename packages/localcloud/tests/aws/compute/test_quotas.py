"""Service Quotas says how many vCPUs may run, and launches are held to it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from localcloud.aws.compute import capacity, quotas
from localcloud.aws.compute.quota_service import QuotaService

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import run

STANDARD, STANDARD_SPOT, G = "L-1216C47A", "L-34B43A08", "L-DB2E81BA"


@pytest.fixture
def account(operator: Clients) -> Iterator[Any]:
    """moto's EC2 of the account; its quotas and instances end with the test."""
    from moto.ec2.models import ec2_backends

    backend = ec2_backends[ACCOUNT][REGION]
    yield backend
    quotas.grant(backend, dict.fromkeys(quotas.QUOTAS, quotas.GRANTED))
    running = [instance.id for instance in backend.all_instances() if instance.state == "running"]
    if running:
        operator("ec2").terminate_instances(InstanceIds=running)


def launch(operator: Clients, type_: str, count: int = 1, **more: Any) -> None:
    run(operator("ec2"), InstanceType=type_, MinCount=count, MaxCount=count, **more)


@pytest.mark.parametrize(
    ("type_", "market", "code"),
    [
        ("m5.large", capacity.ON_DEMAND, STANDARD),
        ("im4gn.large", capacity.ON_DEMAND, STANDARD),
        ("t3.micro", capacity.SPOT, STANDARD_SPOT),
        ("g5.xlarge", capacity.ON_DEMAND, G),
        ("gr6.4xlarge", capacity.SPOT, "L-3819A6DF"),
        ("vt1.3xlarge", capacity.ON_DEMAND, G),
        ("p6-b200.48xlarge", capacity.ON_DEMAND, "L-417A185B"),
        ("p4d.24xlarge", capacity.SPOT, "L-7212CCBC"),
        ("p5en.48xlarge", capacity.SPOT, "L-C4BD4855"),
        ("dl1.24xlarge", capacity.ON_DEMAND, "L-6E869C2A"),
        ("inf2.xlarge", capacity.SPOT, "L-B5D1601B"),
        ("trn1n.32xlarge", capacity.ON_DEMAND, "L-2C3B7624"),
        ("u-6tb1.112xlarge", capacity.ON_DEMAND, "L-43DA4232"),
        ("u7i-12tb.224xlarge", capacity.ON_DEMAND, "L-43DA4232"),
        ("mac2.metal", capacity.ON_DEMAND, None),
    ],
)
def test_each_type_is_counted_by_one_quota(type_: str, market: str, code: str | None) -> None:
    found = quotas.quota_of(type_, market)
    assert (found and found.code) == code


def test_every_type_for_rent_is_counted() -> None:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    missed = {
        name.partition(".")[0]
        for name, kind in INSTANCE_TYPES.items()
        if "on-demand" in kind["SupportedUsageClasses"] and quotas.quota_of(name, capacity.ON_DEMAND) is None
    }
    assert {name for name in missed if not name.startswith("mac")} == set()


def test_a_quota_has_awss_default_and_the_accounts_own_value(operator: Clients) -> None:
    service = operator("service-quotas")
    asked = {"ServiceCode": "ec2", "QuotaCode": STANDARD}
    default = service.get_aws_default_service_quota(**asked)["Quota"]
    own = service.get_service_quota(**asked)["Quota"]
    assert (default["Value"], own["Value"]) == (5.0, quotas.GRANTED)
    assert own["QuotaName"] == "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
    assert own["QuotaArn"] == f"arn:aws:servicequotas:{REGION}:{ACCOUNT}:ec2/{STANDARD}"
    with pytest.raises(service.exceptions.NoSuchResourceException):
        service.get_service_quota(ServiceCode="ec2", QuotaCode="L-0")


def test_quotas_are_listed_in_pages(operator: Clients) -> None:
    pages = list(
        operator("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="ec2", MaxResults=10)
    )
    assert [len(each["Quotas"]) for each in pages[:-1]] == [10] * (len(pages) - 1)
    listed = {quota["QuotaCode"] for each in pages for quota in each["Quotas"]}
    assert listed == {code for code, quota in quotas.QUOTAS.items() if quota.service == "ec2"}


def test_the_quotas_of_networks_are_those_of_another_service(operator: Clients) -> None:
    service = operator("service-quotas")
    asked = {"ServiceCode": "vpc", "QuotaCode": "L-F678F1CE"}
    assert service.get_aws_default_service_quota(**asked)["Quota"]["Value"] == 5.0
    assert "UsageMetric" not in service.get_service_quota(**asked)["Quota"]
    assert len(service.list_service_quotas(ServiceCode="vpc")["Quotas"]) == 2
    with pytest.raises(service.exceptions.NoSuchResourceException):
        service.get_service_quota(ServiceCode="ec2", QuotaCode="L-F678F1CE")


def test_one_quota_can_be_listed_and_a_wrong_page_is_refused(operator: Clients) -> None:
    service = operator("service-quotas")
    listed = service.list_service_quotas(ServiceCode="ec2", QuotaCode=G)["Quotas"]
    assert [quota["QuotaCode"] for quota in listed] == [G]
    with pytest.raises(service.exceptions.InvalidPaginationTokenException):
        service.list_service_quotas(ServiceCode="ec2", NextToken="forged")


@pytest.mark.parametrize("params", [{"DesiredValue": "many"}, {}], ids=["no number", "missing"])
def test_a_wish_without_a_number_is_an_error_of_the_caller(params: dict[str, str]) -> None:
    call: Any = SimpleNamespace(
        operation=SimpleNamespace(
            name="RequestServiceQuotaIncrease",
            region=REGION,
            params={"ServiceCode": "ec2", "QuotaCode": G, **params},
        )
    )
    answer = QuotaService(ACCOUNT).handle(call)
    assert (answer.status_code, answer.get_json()["__type"]) == (400, "IllegalArgumentException")


def test_what_is_more_than_the_quota_is_refused_until_more_is_asked_for(operator: Clients, account: Any) -> None:
    quotas.grant(account, {STANDARD: 4})
    launch(operator, "m5.large")
    with pytest.raises(operator("ec2").exceptions.ClientError, match=r"VcpuLimitExceeded.*limit of 4 allows"):
        launch(operator, "m5.large", 2)
    launch(operator, "m5.large")
    asked = {"ServiceCode": "ec2", "QuotaCode": STANDARD, "DesiredValue": 6.0}
    assert operator("service-quotas").request_service_quota_increase(**asked)["RequestedQuota"]["Status"] == "APPROVED"
    launch(operator, "m5.large")
    with pytest.raises(operator("service-quotas").exceptions.IllegalArgumentException):
        operator("service-quotas").request_service_quota_increase(**asked)


def test_two_launches_at_once_do_not_both_get_the_last_of_a_quota(
    operator: Clients, account: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas.grant(account, {STANDARD: 2})
    both, refuse = threading.Barrier(2), quotas.refuse

    def refuse_slowly(*args: Any) -> None:
        refuse(*args)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # for the other one, if it is asked at the same time

    monkeypatch.setattr(quotas, "refuse", refuse_slowly)
    ec2 = operator("ec2")
    with ThreadPoolExecutor(2) as threads:
        launches = [threads.submit(launch, lambda name: ec2, "m5.large") for _ in range(2)]
    assert [type(each.exception()) for each in launches].count(type(None)) == 1


def test_spot_and_each_family_have_quotas_of_their_own(operator: Clients, account: Any) -> None:
    quotas.grant(account, {STANDARD_SPOT: 2, G: 0})
    spot: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}}
    launch(operator, "m5.large", 8)
    launch(operator, "m5.large", **spot)
    with pytest.raises(operator("ec2").exceptions.ClientError, match="MaxSpotInstanceCountExceeded"):
        launch(operator, "m5.large", **spot)
    with pytest.raises(operator("ec2").exceptions.ClientError, match="limit of 0 allows"):
        launch(operator, "g5.xlarge")


def test_ended_instances_do_not_count(operator: Clients, account: Any) -> None:
    quotas.grant(account, {STANDARD: 2})
    launch(operator, "m5.large")
    ids = [instance.id for instance in account.all_instances() if instance.state == "running"]
    operator("ec2").terminate_instances(InstanceIds=ids)
    launch(operator, "m5.large")
