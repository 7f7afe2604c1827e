"""Zones and instance types that don't fit the settings are refused with a remedy, all at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.preflight import fit
from tests.infra.preflight.world import region, stack

CPU = {"gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt size": (
        {"instanceTypes": ["g5.xlrge"]},
        "instanceTypes = g5.xlrge: us-west-2 has no such instance type; similar ones are g5.xlarge, g5.",
    ),
    "misspelt family": (
        {"systemInstanceTypes": ["mm5.large"]},
        "systemInstanceTypes = mm5.large: us-west-2 has no such instance type; `aws ec2 describe-",
    ),
    "type that only another zone has": (
        {"instanceTypes": ["g7e.2xlarge"], "region": "us-east-1", "availabilityZones": "us-east-1b,us-east-1d"},
        "instanceTypes = g7e.2xlarge: none of the zones us-east-1b, us-east-1d has it; it is in us-east-1a, us-east-",
    ),
    "zone that the region doesn't have": (
        {"availabilityZones": "us-west-2a,us-west-2e"},
        "availabilityZones = us-west-2e: is not a zone of us-west-2 that EKS can use; those are us-west-2a, us-west-2b",
    ),
    "type without GPUs": (
        {"instanceTypes": ["m5.xlarge"]},
        "gpusPerWorker = 1: with workersPerNode = 1 a node needs 1 NVIDIA GPUs, and m5.xlarge in instanceTypes has 0",
    ),
    "surge type without GPUs": (
        {"surgeInstanceTypes": ["m5.xlarge"]},
        "gpusPerWorker = 1: with workersPerNode = 1 a node needs 1 NVIDIA GPUs, and m5.xlarge in surge",
    ),
    "too few GPUs": (
        {"gpusPerWorker": 2, "workersPerNode": 4, "instanceTypes": ["g5.12xlarge"]},
        "gpusPerWorker = 2: with workersPerNode = 4 a node needs 8 NVIDIA GPUs, and g5.12xlarge in instanceTypes has 4",
    ),
    "too few vCPUs": (
        {**CPU, "workersPerNode": 5},
        "workersPerNode = 5: m6i.xlarge in instanceTypes has 4 vCPUs; lower it",
    ),
    "two models": (
        {"instanceTypes": ["g5.xlarge", "g4dn.xlarge"]},
        "instanceTypes: g5.xlarge (A10G), g4dn.xlarge (T4) have different GPUs, and each step waits for the slowest; "
        "choose types with one model, or set mixedGpuModels to true",
    ),
    "another model in the surge": (
        {"surgeInstanceTypes": ["g6.xlarge"]},
        "instanceTypes and surgeInstanceTypes: g5.xlarge (A10G), g6.xlarge (L4) have different GPUs",
    ),
    "limit of the surge's vCPUs below the core's": (
        {"surgeMaxVcpus": 2},
        "surgeMaxVcpus = 2: the smallest of instanceTypes has 4; set it to more, or to 0",
    ),
    "surge type with too few vCPUs": (
        {**CPU, "surgeInstanceTypes": ["r6i.large"]},
        "surgeInstanceTypes = r6i.large: has 2 vCPUs and 16 GiB; a worker that fits the smallest of instanceTypes",
    ),
    "surge type with too little memory": (
        {**CPU, "surgeInstanceTypes": ["m6i.2xlarge", "c6i.xlarge"]},
        "surgeInstanceTypes = c6i.xlarge: has 4 vCPUs and 8 GiB",
    ),
    "instance store of a type without one": (
        {**CPU, "instanceStore": True},
        "instanceStore = true: m6i.xlarge in instanceTypes has no disks of its own; set it to false, or choose another",
    ),
    "EFA of a type without one": (
        {"efa": True},
        "efa = true: g5.xlarge can have no EFA; choose larger types, or set it to false",
    ),
    "types with different numbers of EFAs": (
        {"efa": True, "instanceTypes": ["g6e.12xlarge", "g6e.48xlarge"]},
        "efa = true: all types must have the same number of EFAs; g6e.12xlarge has 1, g6e.48xlarge has 4",
    ),
    "types with EFAs on different network cards": (
        {"efa": True, "instanceTypes": ["p5en.48xlarge", "p6-b300.48xlarge"], "mixedGpuModels": True},
        "efa = true: all types must have their EFAs on the same network cards; p5en.48xlarge from card 0 on, "
        "p6-b300.48xlarge from card 1 on",
    ),
    "EFAs that the workers of a node can't share": (
        {"efa": True, "workersPerNode": 3, "instanceTypes": ["g6e.48xlarge"]},
        "workersPerNode = 3: does not divide the 4 EFAs of each node",
    ),
    "type of another architecture": (
        {"systemInstanceTypes": ["m7g.large"]},
        "systemInstanceTypes = m7g.large: is an arm64 type, and the images of the nodes and of the workers are x8",
    ),
    "type that is too small for any node": (
        {"systemInstanceTypes": ["t3.small"]},
        "systemInstanceTypes = t3.small: has 2 vCPUs and 2 GiB; a node needs at least 2 vCPUs and 4 GiB",
    ),
    "misspelt type of a pool": (
        {"pools": [{"name": "big", "instanceTypes": ["g5.xlrge"], "maxNodes": 2}]},
        "pools.big.instanceTypes = g5.xlrge: us-west-2 has no such instance type; similar ones are g5.xlarge, g5.",
    ),
    "type of a pool of another architecture": (
        {"pools": [{"name": "arm", "instanceTypes": ["m7g.large"], "maxNodes": 2}]},
        "pools.arm.instanceTypes = m7g.large: is an arm64 type, and the images of the nodes and of the workers are x8",
    ),
    "pool with and without GPUs": (
        {"pools": [{"name": "any", "instanceTypes": ["g5.xlarge", "m5.large", "c5.large"], "maxNodes": 2}]},
        "pools.any.instanceTypes = m5.large, c5.large: no NVIDIA GPUs, and other types of the pool have some; make two",
    ),
    "pool of two models": (
        {"pools": [{"name": "any", "instanceTypes": ["g5.xlarge", "g6.xlarge"], "maxNodes": 2}]},
        "pools.any.instanceTypes: g5.xlarge (A10G), g6.xlarge (L4) have different GPUs, and each step waits for the",
    ),
    "pool without disks of the instances": (
        {"pools": [{"name": "cpu", "instanceTypes": ["m5.large"], "maxNodes": 2}], "instanceStore": True},
        "instanceStore = true: m5.large in pools.cpu.instanceTypes has no disks of its own; set it to false",
    ),
    "type of a pool that isn't sold as Spot": (
        {"pools": [{"name": "hpc", "instanceTypes": ["hpc7a.12xlarge"], "maxNodes": 2, "capacityType": "SPOT"}]}
        | {"region": "us-east-2"},
        "pools.hpc.instanceTypes = hpc7a.12xlarge: AWS sells it as on-demand only, and its nodes are spot; choose",
    ),
    "type that isn't sold as Spot": (
        {"gpusPerWorker": 0, "instanceTypes": ["hpc7a.12xlarge"], "surgeNodes": "nodegroup", "capacityType": "SPOT"}
        | {"region": "us-east-2"},
        "instanceTypes = hpc7a.12xlarge: AWS sells it as on-demand only, and its nodes are spot; choose another type",
    ),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_one_mistake_with_key_value_and_remedy(changes: dict[str, Any], message: str) -> None:
    wanted = stack(**changes)
    found = fit.mistakes(wanted, region(wanted))
    assert len(found) == 1, found
    assert message in found[0]


GOOD: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "a type that came out this year": {"instanceTypes": ["g7e.2xlarge"]},
    "types with the same GPUs": {"instanceTypes": ["g5.xlarge", "g5.2xlarge"], "surgeInstanceTypes": ["g5.4xlarge"]},
    "models that were asked for by name": {"instanceTypes": ["g5.xlarge", "g4dn.xlarge"], "mixedGpuModels": True},
    "GPUs that nobody uses": {"instanceTypes": ["g5.xlarge", "g4dn.xlarge"], "gpusPerWorker": 0},
    "a type that one of the zones has": {"instanceTypes": ["g7e.2xlarge"], "region": "us-east-1"},
    "pools of other GPUs, and without": {
        "pools": [
            {"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 2},
            {"name": "cpu", "instanceTypes": ["c6i.large", "t3.medium"], "maxNodes": 2},
        ],
    },
    "larger nodes above the core": {**CPU, "surgeInstanceTypes": ["m6i.2xlarge", "r6i.xlarge"]},
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD.keys())
def test_what_fits_is_no_mistake(changes: dict[str, Any]) -> None:
    wanted = stack(**changes)
    assert fit.mistakes(wanted, region(wanted)) == []


def test_a_type_that_is_sold_in_capacity_blocks_only_is_for_nodes_in_reservations() -> None:
    changes = {"surgeInstanceTypes": ["g5.2xlarge"]}

    def found(**more: Any) -> list[str]:
        wanted = stack(**changes, **more)
        there = region(wanted)
        blocks = replace(there.types["g5.2xlarge"], usage_classes=("capacity-block",))
        return fit.mistakes(wanted, replace(there, types={**there.types, "g5.2xlarge": blocks}))

    (mistake,) = found()
    assert "surgeInstanceTypes = g5.2xlarge: AWS sells it as capacity-block only" in mistake
    assert found(capacityReservationIds=["cr-0123456789abcdef0"]) == []


def test_more_zones_than_the_region_has_are_refused() -> None:
    wanted = stack(availabilityZones="4", region="us-west-1")
    there = region(wanted)
    two = replace(there, zones=("us-west-1a", "us-west-1c"))
    (found,) = (each for each in fit.mistakes(wanted, two) if each.startswith("availabilityZones"))
    has = "us-west-1 has only 2 that EKS can use: us-west-1a, us-west-1c"
    assert found == f"availabilityZones = 4: {has}; lower it, or choose another region"


@pytest.mark.parametrize(
    ("model", "why"),
    [("K80", "NVIDIA's driver 470 was the last one for it"), ("M60", "EKS' AL2023 NVIDIA images don't support it")],
)
def test_a_gpu_without_a_driver_is_refused_by_its_model(model: str, why: str) -> None:
    wanted = stack()
    there = region(wanted)
    types = {name: replace(kind, gpu=model) if kind.gpu else kind for name, kind in there.types.items()}
    (found,) = fit.mistakes(wanted, replace(there, types=types))
    assert (
        found == f"instanceTypes = g5.xlarge: its GPU is a {model}, and {why}; choose a newer type, such as g5.xlarge"
    )


def test_all_mistakes_are_found_at_once() -> None:
    wanted = stack(
        instanceTypes=["g5.xlrge", "m5.xlarge"],
        systemInstanceTypes=["m7g.large"],
        availabilityZones="us-west-2a,us-west-2z",
    )
    keys = [each.split(" ")[0] for each in fit.mistakes(wanted, region(wanted))]
    assert keys == ["availabilityZones", "instanceTypes", "systemInstanceTypes", "gpusPerWorker"]


@pytest.mark.parametrize(
    ("changes", "fewest", "free"),
    [
        # A g5.xlarge has 15 addresses on each interface; the subnet of a zone is an eighth of the VPC.
        pytest.param({"vpcCidr": "10.0.0.0/20"}, 16, 512 - 5, id="a-small-vpc"),
        pytest.param({"vpcCidr": "10.0.0.0/20", "workerZones": "2"}, 33, 2 * (512 - 5), id="two-zones"),
        pytest.param({}, 272, 8192 - 5, id="the-default"),
    ],
)
def test_more_nodes_than_the_subnets_have_addresses_for_are_refused(
    changes: dict[str, Any], fewest: int, free: int
) -> None:
    fits, too_many = (stack(**changes, maxWorkers=most) for most in (fewest, fewest + 1))
    assert fit.addresses(fits, region(fits)) == []
    (mistake,) = fit.addresses(too_many, region(too_many))
    assert mistake.startswith(f"maxWorkers = {fewest + 1}: {fewest + 1} nodes take {30 * (fewest + 1)} IP addresses")
    assert f"have {free} in vpcCidr" in mistake
    assert f"Lower it to {fewest}, add zones" in mistake


def test_the_nodes_of_pools_need_addresses_too() -> None:
    # A c6i.large has 10 addresses on each interface.
    fits, too_many = (
        stack(vpcCidr="10.0.0.0/20", pools=[{"name": "cpu", "instanceTypes": ["c6i.large"], "maxNodes": most}])
        for most in (13, 14)
    )
    assert fit.addresses(fits, region(fits)) == []
    (mistake,) = fit.addresses(too_many, region(too_many))
    assert mistake.startswith("pools: with their maxNodes and maxWorkers = 8 the nodes take 520 IP addresses")
    assert mistake.endswith("Lower maxNodes, add zones to workerZones, or make a new stack with a larger vpcCidr")


def test_workers_that_share_a_node_share_its_addresses() -> None:
    wanted = stack(vpcCidr="10.0.0.0/20", instanceTypes=["g5.12xlarge"], workersPerNode=4, maxWorkers=44)
    assert "Lower it to 20" in " ".join(fit.addresses(wanted, region(wanted)))
