"""What the worker nodes have in common, and every mistake about it."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from tests import graph

NAMED = {"availabilityZones": "us-west-2a,us-west-2b"}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "named zone of unnamed ones": (
        {"workerZones": "us-west-2a"},
        "workerZones = us-west-2a: zones can be named only if availabilityZones names zones too",
    ),
    "zone of which there is no subnet": (
        {**NAMED, "workerZones": "us-west-2c"},
        r"us-west-2c: not among availabilityZones \(us-west-2a, us-west-2b\)",
    ),
    "zone twice": ({**NAMED, "workerZones": "us-west-2a,us-west-2a"}, "must name each zone once"),
    "strategy": ({"updateStrategy": "minimal"}, "updateStrategy = minimal: must be auto or DEFAULT or MINIMAL"),
    "no disk": ({"diskGib": 0}, "diskGib = 0: must be from 50 to 16384"),
    "IOPS below gp3's": ({"diskIops": 100}, "diskIops = 100: must be from 3000 to 80000"),
    "throughput below gp3's": ({"diskThroughput": 100}, "diskThroughput = 100: must be from 125 to 2000"),
    "more IOPS than the size allows": (
        {"diskIops": 60000},
        "diskIops = 60000: a gp3 disk of 100 GiB has at most 50000; raise diskGib",
    ),
    "more throughput than the IOPS allow": (
        {"diskThroughput": 1000},
        "diskThroughput = 1000: needs diskIops of 4000 or more, which is 3000",
    ),
    "placement group over named zones": (
        {**NAMED, "placementGroup": True, "workerZones": NAMED["availabilityZones"]},
        "placementGroup = true: needs one zone, and workerZones is us-west-2a,us-west-2b",
    ),
    "EFA without GPUs": (
        {"efa": True, "gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]},
        "efa = true: is for NCCL, and workers without GPUs use gloo",
    ),
    "EFA over zones": (
        {"efa": True, "workerZones": 2, "instanceTypes": ["p5.48xlarge"]},
        "efa = true: needs one zone, and workerZones is 2",
    ),
    "zones as nothing": ({"workerZones": ""}, 'workerZones = "": must be a count of zones, or names'),
}


@pytest.mark.parametrize(("config", "message"), BAD.values(), ids=BAD.keys())
def test_a_mistake_names_its_key_its_value_and_the_remedy(config: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.ConfigurationError, match=message):
        graph.parsed(**config)


def test_workers_are_in_one_zone_unless_more_are_asked_for() -> None:
    def zones(**config: Any) -> int | tuple[str, ...]:
        return graph.parsed(**config).machines.zones

    assert zones() == 1
    assert zones(workerZones=2) == 2
    assert zones(**NAMED, workerZones="us-west-2b, us-west-2a") == ("us-west-2b", "us-west-2a")


@pytest.mark.parametrize(
    ("config", "strategy"),
    [
        ({}, "MINIMAL"),
        ({"gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]}, "DEFAULT"),
        ({"updateStrategy": "DEFAULT"}, "DEFAULT"),
        ({"updateStrategy": "MINIMAL", "gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]}, "MINIMAL"),
    ],
)
def test_nodes_with_gpus_are_replaced_without_further_instances_unless_it_is_set(
    config: dict[str, Any], strategy: str
) -> None:
    assert graph.parsed(**config).machines.update_strategy == strategy
