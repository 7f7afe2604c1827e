"""What there is no capacity of, and what EC2 says then."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.compute.capacity import ON_DEMAND, SPOT, NotUnderstood, Shortage, parse, refusal

TYPES = ("m5.large", "m5.xlarge", "c5.large")
ZONES = ("us-west-2a", "us-west-2b")


@pytest.mark.parametrize(
    ("shortage", "covered"),
    [
        pytest.param(Shortage(("m5.large",)), True, id="the type everywhere"),
        pytest.param(Shortage(("m5.*",)), True, id="a pattern"),
        pytest.param(Shortage(("*",), "us-west-2a", SPOT), True, id="everything in the zone and market"),
        pytest.param(Shortage(("m5.xlarge",)), False, id="another type"),
        pytest.param(Shortage(("m5.large",), "us-west-2b"), False, id="another zone"),
        pytest.param(Shortage(("m5.large",), None, ON_DEMAND), False, id="another market"),
    ],
)
def test_a_shortage_covers_its_types_zone_and_market(shortage: Shortage, covered: bool) -> None:
    assert shortage.covers("m5.large", "us-west-2a", SPOT) is covered


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param({}, "at least one instance type", id="nothing"),
        pytest.param({"types": ["m5.large", "m6.large"]}, "no instance type 'm6.large'", id="type"),
        pytest.param({"types": ["m5.large"], "zone": "us-west-2z"}, "no zone 'us-west-2z'; the zones are", id="zone"),
        pytest.param({"types": ["m5.large"], "market": "cheap"}, "market 'cheap'", id="market"),
    ],
)
def test_a_shortage_that_cannot_be_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(NotUnderstood, match=text):
        parse(given, TYPES, ZONES)


def test_on_demand_is_told_where_there_is_capacity() -> None:
    known = [Shortage(("m5.large",), "us-west-2a")]
    assert refusal(known, "m5.large", "us-west-2a", ON_DEMAND, ZONES) == (
        "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a). "
        "Our system will be working on provisioning additional capacity. You can currently get m5.large capacity by "
        "not specifying an Availability Zone in your request or choosing us-west-2b."
    )
    everywhere = refusal([Shortage(("*",))], "m5.large", "us-west-2a", ON_DEMAND, ZONES)
    assert everywhere is not None
    assert "choosing" not in everywhere
