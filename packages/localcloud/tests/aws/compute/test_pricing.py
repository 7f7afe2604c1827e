"""The Pricing API and the Spot prices answer as Karpenter asks them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from localcloud.aws.compute import prices

from packages.localcloud.tests.aws.account import OPERATOR, Clients, clients
from packages.localcloud.tests.aws.fakes import REGION

FILTERS = {
    "regionCode": REGION,
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@pytest.fixture
def pricing(endpoint: str) -> Any:
    return clients(endpoint, OPERATOR.access_key, OPERATOR.secret_key, region="us-east-1")("pricing")


@pytest.fixture
def ec2(operator: Clients) -> Any:
    return operator("ec2")


def products(pricing: Any, **more: str) -> dict[str, float]:
    """Return the prices by instance type."""
    given = [{"Field": key, "Type": "TERM_MATCH", "Value": value} for key, value in {**FILTERS, **more}.items()]
    found = {}
    for page in pricing.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=given, MaxResults=100):
        assert len(page["PriceList"]) <= 100
        for text in page["PriceList"]:
            product = json.loads(text)
            (term,) = product["terms"]["OnDemand"].values()
            (rate,) = term["priceDimensions"].values()
            found[product["product"]["attributes"]["instanceType"]] = float(rate["pricePerUnit"]["USD"])
    return found


def test_every_type_of_the_region_has_a_price(pricing: Any) -> None:
    found = products(pricing, tenancy="Shared", productFamily="Compute Instance")
    assert found["m5.large"] == pytest.approx(0.096, rel=0.05)  # AWS's price in us-west-2
    assert found["c5.large"] < found["m5.large"] < found["r5.large"] < found["m5.xlarge"] < found["g5.xlarge"]
    assert "m5.metal" not in found


def test_bare_metal_is_a_family_of_its_own(pricing: Any) -> None:
    found = products(pricing, tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    assert found
    assert all("metal" in name for name in found)


def test_one_type_can_be_asked_for(pricing: Any) -> None:
    assert list(products(pricing, instanceType="m5.large")) == ["m5.large"]
    assert products(pricing, operatingSystem="Windows") == {}


@pytest.mark.parametrize("kind", ["EQUALS", "CONTAINS", "ANY_OF", "NONE_OF"])
def test_filters_of_other_types_are_refused_by_name(pricing: Any, kind: str) -> None:
    filters = [{"Type": kind, "Field": "instanceType", "Value": "m5.large"}]
    with pytest.raises(pricing.exceptions.InvalidParameterException, match=f"the Type {kind} are not.*use TERM_MATCH"):
        pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)


def test_without_a_region_all_have_prices(pricing: Any) -> None:
    filters = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "m5.large"}]
    listed = pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    regions = {json.loads(each)["product"]["attributes"]["regionCode"] for each in listed}
    assert {REGION, "us-east-1", "eu-west-1"} <= regions


def test_a_foreign_token_and_another_service_are_refused(pricing: Any) -> None:
    with pytest.raises(pricing.exceptions.InvalidNextTokenException):
        pricing.get_products(ServiceCode="AmazonEC2", NextToken="!")
    with pytest.raises(pricing.exceptions.InvalidParameterException, match="AmazonEC2 only"):
        pricing.get_products(ServiceCode="AmazonS3")


def test_spot_costs_less_in_every_zone_that_offers_the_type(ec2: Any) -> None:
    found = ec2.describe_spot_price_history(
        InstanceTypes=["m5.large"],
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        StartTime=datetime.now(UTC),
        MaxResults=1000,
    )["SpotPriceHistory"]
    assert {each["AvailabilityZone"] for each in found} == {f"{REGION}{zone}" for zone in "abcd"}
    assert {float(each["SpotPrice"]) for each in found} == {prices.spot(prices.on_demand_of("m5.large"))}
    assert {each["ProductDescription"] for each in found} == {"Linux/UNIX"}
    assert all(each["Timestamp"] <= datetime.now(UTC) for each in found)


def test_there_are_no_prices_of_windows(ec2: Any) -> None:
    assert ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"] == []


def test_the_price_of_a_size_grows_with_it() -> None:
    assert prices.on_demand(2, 8192, 0) < prices.on_demand(4, 16384, 0) < prices.on_demand(4, 16384, 24576)
    assert prices.on_demand_of("m5.nothing") == float("inf")
