"""Quotas are counted in vCPUs, for the nodes that are started now and for the most that there can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from localcloud.aws.compute import quotas as aws

from infra.preflight import quotas
from tests import facts
from tests.infra.preflight.world import ENOUGH, region, stack

G, G_SPOT, P, STANDARD, STANDARD_SPOT = "L-DB2E81BA", "L-3819A6DF", "L-417A185B", "L-1216C47A", "L-34B43A08"
P_SPOT, P5_SPOT = "L-7212CCBC", "L-C4BD4855"


def needed(**changes: Any) -> dict[str, tuple[int, int]]:
    """Return vCPUs now and at most, by quota."""
    wanted = stack(**changes)
    return {each.quota.code: (each.now, each.most) for each in quotas.needs(wanted, region(wanted))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Three m5.large as system nodes, and a fourth one while one of them is replaced; nodes that Karpenter brings
        # have up to twice the vCPUs of the core's.
        pytest.param({}, {STANDARD: (6, 8), G: (8, 4 + 7 * 8)}, id="defaults"),
        pytest.param(
            {"capacityType": "SPOT", "workers": 4, "minWorkers": 2, "maxWorkers": 10},
            {STANDARD: (6, 8), G: (8, 8), G_SPOT: (8, 8 * 8)},
            id="the-core-is-on-demand-and-the-rest-is-spot",
        ),
        pytest.param(
            {"capacityType": "SPOT", "surgeNodes": "nodegroup", "workers": 3},
            {STANDARD: (6, 8), G_SPOT: (12, 32)},
            id="one-node-group-of-spot",
        ),
        pytest.param(
            {"instanceTypes": ["m5.xlarge"], "gpusPerWorker": 0, "workers": 3},
            {STANDARD: (6 + 12, 8 + 4 + 7 * 8)},
            id="workers-share-the-quota-of-the-system-nodes",
        ),
        pytest.param(
            {
                "instanceTypes": ["p4d.24xlarge"],
                "gpusPerWorker": 1,
                "workersPerNode": 8,
                "workers": 16,
                "maxWorkers": 20,
            },
            {STANDARD: (6, 8), P: (2 * 96, 96 + 2 * 192)},
            id="several-workers-on-a-node",
        ),
        pytest.param(
            {"instanceTypes": ["g5.2xlarge", "g5.xlarge"], "workers": 1, "maxWorkers": 1},
            {STANDARD: (6, 8), G: (4, 8)},
            id="the-smallest-of-several-types-now-and-the-largest-at-most",
        ),
        pytest.param(
            {"minWorkers": 0, "workers": 0, "surgeInstanceTypes": ["g5.2xlarge"]},
            {STANDARD: (6, 8), G: (0, 8 * 8)},
            id="no-worker-yet",
        ),
        pytest.param(
            {"systemInstanceTypes": ["m5.xlrge"]},
            {G: (8, 8 * 4)},
            id="a-type-that-there-is-not-is-a-mistake-elsewhere",
        ),
        pytest.param(
            {"instanceTypes": ["t3.xlarge"], "gpusPerWorker": 0, "capacityType": "SPOT", "workers": 3},
            {STANDARD: (6 + 4, 8 + 4), STANDARD_SPOT: (8, 7 * 8)},
            id="any-general-type-for-the-surge",
        ),
        pytest.param(
            {
                "pools": [
                    {"name": "big", "instanceTypes": ["g5.12xlarge", "g5.48xlarge"], "maxNodes": 2},
                    {"name": "cheap", "instanceTypes": ["c6i.large"], "maxNodes": 5, "capacityType": "SPOT"},
                ]
            },
            {STANDARD: (6, 8), G: (8, 4 + 7 * 8 + 2 * 192), STANDARD_SPOT: (0, 5 * 2)},
            id="nodes-of-pools-come-later",
        ),
        pytest.param(
            {"workers": 4, "surgeInstanceTypes": ["g5.xlarge"], "capacityReservationIds": ["cr-0123456789abcdef0"]},
            {STANDARD: (6, 8), G: (4, 4 + 7 * 4)},
            id="nodes-that-may-be-reserved-are-not-needed-now",
        ),
    ],
)
def test_vcpus_are_counted_by_quota(changes: dict[str, Any], expected: dict[str, tuple[int, int]]) -> None:
    assert needed(**changes) == expected
    assert expected.keys() <= set(quotas.codes(stack(**changes)))


def test_a_quota_that_is_too_small_for_this_up_is_refused_with_its_code_and_the_value_to_ask_for() -> None:
    wanted = stack()
    there = region(wanted, {G: 7})
    (mistake,) = quotas.mistakes(wanted, there, quotas.needs(wanted, there))
    assert mistake == (
        f"instanceTypes: 2 nodes need 8 vCPUs of the quota {G} (Running On-Demand G and VT instances), and us-west-2 "
        "has 7. Ask for at least 60, for maxWorkers = 8: `aws service-quotas request-service-quota-increase --region "
        f"us-west-2 --service-code ec2 --quota-code {G} --desired-value 60`, or choose fewer nodes or other types"
    )


def test_the_last_vcpu_of_a_quota_may_be_used() -> None:
    wanted = stack()
    there = region(wanted, {G: 8, STANDARD: 6})
    assert quotas.mistakes(wanted, there, quotas.needs(wanted, there)) == []


def test_a_quota_that_is_too_small_for_the_largest_size_only_is_a_warning() -> None:
    wanted = stack()
    there = region(wanted, {G: 8})
    (warning,) = quotas.warnings(wanted, there, quotas.needs(wanted, there))
    assert warning.startswith(f"instanceTypes: at maxWorkers = 8 the nodes need up to 60 vCPUs of the quota {G} (Runn")
    assert "--desired-value 60`" in warning


def test_a_quota_that_is_too_small_for_a_pool_is_a_warning_that_names_it() -> None:
    wanted = stack(pools=[{"name": "cheap", "instanceTypes": ["c6i.large"], "maxNodes": 5, "capacityType": "SPOT"}])
    there = region(wanted, {STANDARD_SPOT: 8})
    (warning,) = quotas.warnings(wanted, there, quotas.needs(wanted, there))
    assert warning.startswith(
        "pools.cheap.instanceTypes: at maxWorkers = 8 and maxNodes of the pools the nodes need up"
    )


def test_all_quotas_that_are_too_small_are_told_together() -> None:
    wanted = stack(capacityType="SPOT")
    there = region(wanted, {G: 0, G_SPOT: 0, STANDARD: 1})
    found = quotas.mistakes(wanted, there, quotas.needs(wanted, there))
    assert [code for each in found for code in (STANDARD, G, G_SPOT) if f"{code} (" in each] == [STANDARD, G, G_SPOT]


def test_a_quota_that_cannot_be_read_is_a_warning_that_names_the_right() -> None:
    wanted = stack()
    there = region(wanted)
    blind = replace(there, quotas={STANDARD: ENOUGH}, unread={G: "AccessDenied"})
    needs = quotas.needs(wanted, blind)
    assert quotas.mistakes(wanted, blind, needs) == []
    (warning,) = quotas.warnings(wanted, blind, needs)
    assert f"the quota {G} (" in warning
    assert "allow servicequotas:GetServiceQuota" in warning
    assert warning.endswith("AccessDenied")


def test_a_family_whose_quota_is_not_known_is_a_warning() -> None:
    wanted = stack(
        instanceTypes=["p6-b200.48xlarge"], surgeNodes="nodegroup", capacityType="SPOT", gpusPerWorker=8, workers=1
    )
    there = region(wanted)
    (warning,) = quotas.warnings(wanted, there, quotas.needs(wanted, there))
    assert warning == "instanceTypes = p6-b200.48xlarge: its Spot quota is not known here, so it was not checked"


@pytest.mark.parametrize("market", ["ON_DEMAND", "SPOT"])
def test_every_type_is_counted_as_the_cloud_counts_it(market: str) -> None:
    names = {name for name, _ in facts.offered("us-east-1", "*")}
    assert len(names) > 500
    for name in names:
        counted = aws.quota_of(name, "spot" if market == "SPOT" else "on-demand")
        ours = quotas.quota_of(name, market)
        assert (ours and (ours.code, ours.name)) == (counted and (counted.code, counted.name)), name


@pytest.mark.parametrize(
    ("name", "market", "code"),
    [
        ("g6e.xlarge", "ON_DEMAND", G),
        ("vt1.3xlarge", "SPOT", G_SPOT),
        ("p5en.48xlarge", "ON_DEMAND", P),
        ("p5en.48xlarge", "SPOT", P5_SPOT),
        ("p4d.24xlarge", "SPOT", P_SPOT),
        ("dl2q.24xlarge", "ON_DEMAND", "L-6E869C2A"),
        ("f2.6xlarge", "SPOT", "L-88CF9481"),
        ("inf2.xlarge", "ON_DEMAND", "L-1945791B"),
        ("trn2.48xlarge", "SPOT", "L-6B0D517C"),
        ("x8g.large", "ON_DEMAND", "L-7295265B"),
        ("i7ie.large", "SPOT", STANDARD_SPOT),
        ("m9z.large", "ON_DEMAND", STANDARD),
    ],
)
def test_the_quota_follows_from_the_beginning_of_the_name(name: str, market: str, code: str) -> None:
    found = quotas.quota_of(name, market)
    assert found is not None
    assert found.code == code
