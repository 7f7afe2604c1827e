"""Quotas of VPCs, addresses and NAT gateways are compared with what is in use, without the stack's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.preflight import counts
from infra.preflight.counts import ADDRESSES, GATEWAYS, VPCS
from infra.preflight.region import Count, Region
from tests.infra.preflight.world import region, stack


def there(**changes: Count) -> Region:
    codes = {each.code: changes.get(name, Count(0, 0, 5)) for name, each in NAMES.items()}
    return replace(region(stack()), counts=codes)


NAMES = {"vpcs": VPCS, "addresses": ADDRESSES, "gateways": GATEWAYS}


@pytest.mark.parametrize(
    ("changes", "found", "refused"),
    [
        ({}, {"vpcs": Count(4, 0, 5), "addresses": Count(4, 0, 5), "gateways": Count(4, 0, 5)}, []),
        ({}, {"vpcs": Count(5, 0, 5)}, ["L-F678F1CE"]),
        ({}, {"vpcs": Count(5, 1, 5), "addresses": Count(5, 1, 5), "gateways": Count(9, 1, 5)}, []),
        ({}, {"addresses": Count(5, 0, 5)}, ["L-0263D0A3"]),
        ({"natGateways": "perZone", "availabilityZones": "3"}, {"addresses": Count(3, 1, 5)}, []),
        ({"natGateways": "perZone", "availabilityZones": "3"}, {"addresses": Count(4, 1, 5)}, ["L-0263D0A3"]),
        ({}, {"vpcs": Count(6, 0, 5), "addresses": Count(7, 0, 5)}, ["L-F678F1CE", "L-0263D0A3"]),
    ],
)
def test_what_is_not_left_is_refused(changes: dict[str, Any], found: dict[str, Count], refused: list[str]) -> None:
    mistakes = counts.mistakes(stack(**changes), there(**found))
    assert [code for each in mistakes for code in refused if code in each] == refused
    assert len(mistakes) == len(refused)
    assert counts.warnings(stack(**changes), there(**found)) == []


def test_a_refusal_names_what_there_is_and_the_value_to_ask_for() -> None:
    (mistake,) = counts.mistakes(stack(), there(vpcs=Count(5, 0, 5)))
    assert mistake == (
        "us-west-2 has 5 VPCs, the quota L-F678F1CE (VPCs per Region) allows 5 in it, and the stack needs 1 more. "
        "Delete what is not used, or ask for more: `aws service-quotas request-service-quota-increase --region "
        "us-west-2 --service-code vpc --quota-code L-F678F1CE --desired-value 6`"
    )


def test_nat_gateways_of_the_region_may_be_in_other_zones_so_too_many_are_a_warning() -> None:
    found = there(gateways=Count(5, 0, 5))
    assert counts.mistakes(stack(), found) == []
    (warning,) = counts.warnings(stack(), found)
    assert "allows 5 in each zone" in warning


def test_what_could_not_be_read_is_a_warning() -> None:
    found = replace(region(stack()), counts={}, unread={VPCS.code: "AccessDenied"})
    assert counts.mistakes(stack(), found) == []
    (warning,) = counts.warnings(stack(), found)
    assert warning.startswith("the quotas L-F678F1CE (VPCs per Region) could not be checked.")
    assert warning.endswith("The error: AccessDenied")
