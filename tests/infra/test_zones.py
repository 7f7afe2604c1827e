"""The stack's zones and their address ranges stay as they were, and its workers' nodes are where their types are."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

from infra.zones import check_offerings, choose_worker_zones, choose_zones, plan_subnets
from tests import graph

ZONES = ["a", "b", "c"]
G5 = {"instanceTypes": ["g5.xlarge"]}
BOTH = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": ["p5.48xlarge"]}
OFFERED = [("g5.xlarge", "a"), ("g5.xlarge", "c"), ("p5.48xlarge", "c"), ("m5.large", "b")]


def test_it_is_the_first_zone_that_has_the_type() -> None:
    assert choose_worker_zones(ZONES, OFFERED, G5, 1) == ["a"]


def test_a_zone_that_has_all_types_comes_before_one_that_has_some() -> None:
    assert choose_worker_zones(ZONES, OFFERED, BOTH, 1) == ["c"]


def test_of_several_zones_those_are_chosen_that_have_most() -> None:
    assert choose_worker_zones(ZONES, OFFERED, G5, 2) == ["a", "c"]


def test_what_system_nodes_need_does_not_matter() -> None:
    assert choose_worker_zones(ZONES, OFFERED, {**G5, "systemInstanceTypes": ["m5.large"]}, 1) == ["a"]


def test_a_pool_is_where_the_workers_are_and_moves_no_node() -> None:
    pool = {**G5, "pools.big.instanceTypes": ["p5.48xlarge"]}
    assert choose_worker_zones(ZONES, OFFERED, pool, 1) == ["c"]
    assert choose_worker_zones(ZONES, OFFERED, pool, 2, kept=["a", "c"]) == ["a", "c"]
    with pytest.raises(pulumi.RunError, match=r"pools\.big\.instanceTypes = p5\.48xlarge: the workers are in a, which"):
        choose_worker_zones(ZONES, OFFERED, pool, 1, kept=["a"])


def test_a_choice_is_kept_when_aws_offers_the_types_elsewhere_too() -> None:
    grown = [*OFFERED, ("p5.48xlarge", "a")]
    assert choose_worker_zones(ZONES, grown, BOTH, 1) == ["a"]
    assert choose_worker_zones(ZONES, grown, BOTH, 1, kept=["c"]) == ["c"]


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(["b"], id="it does not have the types of today"),
        pytest.param(["d"], id="the stack no longer has the zone"),
        pytest.param(["a", "c"], id="another number of zones is asked for"),
    ],
)
def test_a_choice_that_no_longer_fits_is_made_anew(kept: list[str]) -> None:
    assert choose_worker_zones(ZONES, OFFERED, BOTH, 1, kept) == ["c"]


def test_an_update_after_aws_offers_the_types_elsewhere_leaves_the_nodes_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    monkeypatch.setattr(graph, "STASHED", {"tidewater-local-worker-zones-1": ["us-west-2b"]})
    deployed = graph.run(graph.program, config)
    group = deployed.one("aws:eks/nodeGroup:NodeGroup", "workers")
    assert group.inputs["subnetIds"] == ["tidewater-local-private-1-id"]
    stash = next(each for each in deployed.all("pulumi:index:Stash") if "worker-zones" in each.name)
    assert stash.ignored == ("input",)


def test_the_choice_for_another_number_of_zones_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    grown = False

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = graph.answer(token, arguments)
        if not grown and "getInstanceTypeOfferings" in token:
            pairs = zip(found["instanceTypes"], found["locations"], strict=True)
            kept = [(name, zone) for name, zone in pairs if name != "m6i.xlarge" or zone != "us-west-2a"]
            return {"instanceTypes": [name for name, _ in kept], "locations": [zone for _, zone in kept]}
        return found

    def update(zones: int) -> list[str]:
        own = {"availabilityZones": "3", "workerZones": str(zones), "gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]}
        deployed = graph.run(graph.program, {**graph.defaults(), **own}, ask=ask)
        stashed = {each.name: each.outputs["output"] for each in deployed.all("pulumi:index:Stash")}
        monkeypatch.setattr(graph, "STASHED", stashed)
        subnets: list[str] = deployed.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs["subnetIds"]
        return subnets

    update(1)
    before = update(2)
    grown = True
    assert update(2) == before == ["tidewater-local-private-1-id", "tidewater-local-private-2-id"]


def test_named_zones_are_taken_as_they_are() -> None:
    assert choose_worker_zones(ZONES, OFFERED, BOTH, ("c", "a")) == ["a", "c"]


def test_types_that_no_zone_has_together_are_an_error_that_says_where_they_are() -> None:
    apart = [("g5.xlarge", "a"), ("p5.48xlarge", "c")]
    message = (
        "surgeInstanceTypes = p5.48xlarge: the workers are in a, which doesn't have it; it is in c. Name that zone"
    )
    with pytest.raises(pulumi.RunError, match=message):
        choose_worker_zones(ZONES, apart, BOTH, 1)
    assert choose_worker_zones(ZONES, apart, BOTH, 2) == ["a", "c"]


def test_a_named_zone_without_a_type_is_an_error() -> None:
    with pytest.raises(pulumi.RunError, match=r"instanceTypes = g5\.xlarge: the workers are in b"):
        choose_worker_zones(ZONES, OFFERED, G5, ("b",))


@pytest.mark.parametrize(
    ("asked", "subnets"),
    [("1", ["0"]), ("us-west-2c,us-west-2a", ["0", "2"])],
)
def test_worker_nodes_of_both_kinds_are_in_the_workers_zones(asked: str, subnets: list[str]) -> None:
    deployed = graph.production(availabilityZones="us-west-2a,us-west-2b,us-west-2c", workerZones=asked)
    ids = [f"tidewater-production-private-{index}-id" for index in subnets]
    assert deployed.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs["subnetIds"] == ids
    spec = deployed.one("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass").inputs["spec"]
    assert spec["subnetSelectorTerms"] == [{"id": each} for each in ids]


def test_the_rest_of_the_stack_is_in_all_zones() -> None:
    deployed = graph.production()
    assert len(deployed.one("aws:eks/nodeGroup:NodeGroup", "system").inputs["subnetIds"]) == 3
    assert len(deployed.all("aws:efs/mountTarget:MountTarget")) == 3


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "192.168.16.0/20", "172.16.0.0/18"])
@pytest.mark.parametrize("zones", [2, 3, 4])
def test_subnets_are_in_the_vpc_and_do_not_overlap(cidr: str, zones: int) -> None:
    plan = plan_subnets(cidr, zones)
    ranges = [ipaddress.IPv4Network(each) for each in (*plan.public, *plan.private)]
    assert len(ranges) == 2 * zones
    assert all(each.subnet_of(ipaddress.IPv4Network(cidr)) for each in ranges)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(ranges, 2))


def test_another_zone_does_not_change_existing_subnets() -> None:
    two, three = plan_subnets("10.0.0.0/16", 2), plan_subnets("10.0.0.0/16", 3)
    assert three.private[:2] == two.private
    assert three.public[:2] == two.public


def test_pods_get_most_of_the_addresses() -> None:
    plan = plan_subnets("10.0.0.0/16", 2)
    assert plan.private == ("10.0.0.0/19", "10.0.32.0/19")
    assert ipaddress.IPv4Network(plan.public[0]).prefixlen == 24


def test_zones_come_in_a_stable_order() -> None:
    assert choose_zones(["c", "a", "b"], ["c", "a", "b"], 2) == ["a", "b"]


@pytest.mark.parametrize(
    "available",
    [
        pytest.param(["a", "b", "c", "d"], id="zones are new"),
        pytest.param(["c", "d"], id="a zone is not available"),
        pytest.param([], id="no zone is"),
    ],
)
def test_subnets_stay_in_their_zones_when_awss_list_changes(available: list[str]) -> None:
    assert choose_zones(["b", "d"], available, 2) == ["b", "d"]


def test_another_zone_is_added_to_those_in_use() -> None:
    assert choose_zones(["b", "c", "d"], ["a", "b", "c", "d"], 3) == ["b", "c", "d"]
    assert choose_zones(["b", "c"], ["a", "b", "c", "d"], 3) == ["b", "c", "a"]


def test_too_few_zones_in_the_region_is_an_error_that_names_them() -> None:
    with pytest.raises(pulumi.RunError, match=r"availabilityZones = 3: .* only 2 .*\(a, b\); set it to 2"):
        choose_zones(["a"], ["b", "a"], 3)


OFFERED_IN_REGION = [("g5.xlarge", "us-west-2a"), ("g5.xlarge", "us-west-2b"), ("p5.48xlarge", "us-west-2c")]


def test_one_zone_with_an_instance_type_is_enough() -> None:
    zones = ["us-west-2b", "us-west-2c"]
    wanted = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": ["g5.xlarge", "p5.48xlarge"]}
    assert check_offerings(zones, OFFERED_IN_REGION, wanted) == zones


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("p5.48xlarge", "none of .* us-west-2a, us-west-2b has it; it is in us-west-2c. Choose another"),
        ("g6e.xlarge", "none of .* us-west-2a, us-west-2b has it; no zone of the region has it"),
    ],
)
def test_an_instance_type_that_no_zone_has_is_an_error_that_names_both(name: str, reason: str) -> None:
    wanted = {"instanceTypes": ["g5.xlarge"], "surgeInstanceTypes": [name]}
    with pytest.raises(pulumi.RunError, match=f"surgeInstanceTypes = {name}: {reason}"):
        check_offerings(["us-west-2a", "us-west-2b"], OFFERED_IN_REGION, wanted)
