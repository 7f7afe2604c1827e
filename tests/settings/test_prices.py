"""The estimate of what a stack costs has its parts, its day, and what it leaves out."""

from __future__ import annotations

import pytest

from settings import prices
from tests import graph


def test_the_defaults_cost_what_the_documentation_says() -> None:
    found = prices.hourly(graph.parsed())
    assert {key: value for key, value in found.items() if key != "note"} == {
        "controlPlane": 0.1,
        "natGateways": 0.05,
        "systemNodes": pytest.approx(3 * 0.096),
        "workerNodes": 1.006,
        "surgeNodes": 1.006,
        "total": pytest.approx(2.45),
    }
    assert f"about ${found['total']:.2f}" in (graph.ROOT / "docs" / "deploy-aws.md").read_text()


def test_an_estimate_says_of_which_day_and_region_its_prices_are() -> None:
    assert f"list prices of us-west-2 for On-Demand on {prices.DAY}" in prices.hourly(graph.parsed())["note"]
    elsewhere = prices.hourly(graph.parsed(region="eu-west-1", capacityType="SPOT"))["note"]
    assert "Prices in eu-west-1 are others." in elsewhere
    assert "Spot nodes cost less." in elsewhere


def test_nodes_of_pools_come_with_jobs_and_are_not_in_it() -> None:
    pool = {"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 2}
    found, without = prices.hourly(graph.parsed(pools=[pool])), prices.hourly(graph.parsed())
    assert "Not in it: nodes of pools, storage, requests" in found.pop("note")
    assert found == {part: price for part, price in without.items() if part != "note"}


def test_a_type_without_a_price_is_left_out_and_named() -> None:
    found = prices.hourly(graph.parsed(instanceTypes=["p6-b200.48xlarge"], natGateways="perZone"))
    assert found["total"] == pytest.approx(0.1 + 2 * 0.05 + 3 * 0.096)
    assert "workerNodes" not in found
    assert found["note"].endswith("The table has no price for p6-b200.48xlarge.")


def test_the_nodes_are_those_of_the_workers_that_are_set() -> None:
    none = prices.hourly(graph.parsed(workers=0, minWorkers=0))
    assert not none.keys() & {"workerNodes", "surgeNodes"}
    group = prices.hourly(graph.parsed(workers=4, surgeNodes="nodegroup"))
    assert group["workerNodes"] == pytest.approx(4 * 1.006)
    assert "surgeNodes" not in group


def test_throughput_of_the_file_system_has_a_price_by_the_hour_if_it_is_provisioned() -> None:
    assert prices.hourly(graph.parsed(fileThroughput=146))["fileThroughput"] == pytest.approx(1.2)
    for mode in ("elastic", "bursting"):
        assert "fileThroughput" not in prices.hourly(graph.parsed(fileThroughput=mode))


def test_the_estimate_is_an_output_of_the_stack() -> None:
    assert graph.deploy(graph.stack_config("Pulumi.local.yaml")).outputs["hourlyCost"]["controlPlane"] == 0.1
