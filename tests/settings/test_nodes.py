"""Who brings which worker node, and every mistake about it."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from tests import facts, graph

CPU = {"gpusPerWorker": 0, "instanceTypes": ["m6i.xlarge"]}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "surge type without a size": ({"surgeInstanceTypes": ["g5"]}, "surgeInstanceTypes = g5: must be an EC2 instance"),
    "surge type twice": ({"surgeInstanceTypes": ["g5.xlarge"] * 2}, "surgeInstanceTypes = g5.xlarge: is listed twice"),
    "more reservations than a policy has room for": (
        {"capacityReservationIds": [f"cr-{number:017x}" for number in range(21)]},
        "capacityReservationIds = 21 ids: 20 at most",
    ),
    "Spot for the core alone": (
        {"capacityType": "SPOT", "workers": 2, "minWorkers": 2, "maxWorkers": 2},
        "capacityType = SPOT: is for the nodes above minWorkers, and maxWorkers leaves none",
    ),
    "Spot for a core whose last node has room": (
        {**CPU, "capacityType": "SPOT", "minWorkers": 3, "workers": 4, "maxWorkers": 4, "workersPerNode": 2},
        "Lower minWorkers, raise maxWorkers, set ON_DEMAND, or set surgeNodes to nodegroup",
    ),
    "more core nodes than the minimum needs": (
        {"coreNodes": 2},
        "coreNodes = 2: must be from 0 to 1, the number of nodes for minWorkers",
    ),
    "core nodes without Karpenter": (
        {"coreNodes": 0, "surgeNodes": "nodegroup"},
        "coreNodes = 0: has an effect only with surgeNodes karpenter",
    ),
    "suspended but with a core": ({"workers": 0}, "workers = 0: must be from 1 to 8 (from minWorkers to maxWorkers)"),
    "window without a weekday": ({"maintenanceWindow": "03:00 4h"}, "maintenanceWindow = 03:00 4h: must be weekday"),
    "window of no day": ({"maintenanceWindow": "Son 03:00 4h"}, "such as Sun 03:00 4h, or empty"),
    "window at no time": ({"maintenanceWindow": "Sun 24:00 4h"}, "maintenanceWindow = Sun 24:00 4h"),
    "window of no length": ({"maintenanceWindow": "Sun 03:00 0h"}, "maintenanceWindow = Sun 03:00 0h"),
    "window of more than a day": ({"maintenanceWindow": "Sun 03:00 25h"}, "maintenanceWindow = Sun 03:00 25h"),
    "image release as a date": ({"nodeImageVersion": "2026-03-04"}, "nodeImageVersion = 2026-03-04: must be a release"),
    "no charts": ({"karpenterCharts": ""}, 'karpenterCharts = "": must be an oci:// address or a folder'),
    "controller's image": ({"karpenterImage": "-"}, "karpenterImage = -: must be a container image"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_a_mistake_is_reported_with_key_value_and_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**changes)
    assert message in str(refused.value)
    assert len(refused.value.mistakes) == 1, str(refused.value)


def sizes(nodes: settings.Nodes) -> tuple[int, int, int]:
    return nodes.desired, nodes.minimum, nodes.maximum


def surge(**changes: Any) -> settings.Surge:
    found = graph.parsed(**changes).surge
    assert found is not None
    return found


@pytest.mark.parametrize("count", [2, 3, 9])
def test_with_karpenter_the_number_of_workers_changes_no_node_group(count: int) -> None:
    stack = graph.parsed(workers=count, minWorkers=2, maxWorkers=9)
    assert stack.workers.count == count
    assert sizes(stack.workers.nodes) == (2, 2, 2)


def test_the_core_has_the_nodes_for_the_minimum_and_karpenter_may_bring_the_rest() -> None:
    changes = {"instanceTypes": ["g5.12xlarge"], "workersPerNode": 4, "minWorkers": 5, "workers": 5, "maxWorkers": 17}
    assert sizes(graph.parsed(**changes).workers.nodes) == (2, 2, 2)
    assert surge(**changes).maximum == 3


@pytest.mark.parametrize(("nodes", "sizes_of_group"), [("0", (0, 0, 1)), (2, (2, 2, 2)), ("all", (4, 4, 4))])
def test_a_core_may_start_with_fewer_nodes_and_karpenter_may_bring_those_too(
    nodes: str | int, sizes_of_group: tuple[int, int, int]
) -> None:
    changes = {"coreNodes": nodes, "minWorkers": 4, "workers": 4, "maxWorkers": 9}
    stack = graph.parsed(**changes)
    assert sizes(stack.workers.nodes) == sizes_of_group
    assert stack.workers.minimum == 4, "training still waits for the minimum"
    assert surge(**changes).maximum == 9 - sizes_of_group[0]


def test_a_core_of_no_workers_has_no_node_and_a_maximum_that_eks_accepts() -> None:
    stack = graph.parsed(minWorkers=0, workers=0)
    assert (stack.workers.count, stack.workers.minimum) == (0, 0)
    assert sizes(stack.workers.nodes) == (0, 0, 1)


def test_with_karpenter_the_capacity_type_is_that_of_the_surge_and_the_core_is_on_demand() -> None:
    stack = graph.parsed(capacityType="SPOT")
    assert stack.workers.nodes.capacity_type == "ON_DEMAND"
    assert stack.surge is not None
    assert stack.surge.capacity_type == "SPOT"


def test_with_a_node_group_it_has_all_worker_nodes() -> None:
    stack = graph.parsed(surgeNodes="nodegroup", capacityType="SPOT", workers=3, minWorkers=2, maxWorkers=6)
    assert stack.surge is None
    assert sizes(stack.workers.nodes) == (3, 2, 6)
    assert stack.workers.nodes.capacity_type == "SPOT"


def test_spot_workers_of_a_fixed_number_need_a_node_group() -> None:
    stack = graph.parsed(surgeNodes="nodegroup", capacityType="SPOT", workers=2, minWorkers=2, maxWorkers=2)
    assert stack.workers.nodes.capacity_type == "SPOT"


def test_surge_types_may_be_others_than_the_cores() -> None:
    assert surge(surgeInstanceTypes=["g5.2xlarge", "g6.xlarge"]).instance_types == ("g5.2xlarge", "g6.xlarge")


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("", None),
        ("Sun 03:00 4h", settings.Window("sun", 3, 0, 4)),
        ("Fri 23:30 24h", settings.Window("fri", 23, 30, 24)),
    ],
)
def test_the_maintenance_window_is_a_weekday_a_start_and_a_length(text: str, window: settings.Window | None) -> None:
    assert surge(maintenanceWindow=text).window == window


@pytest.mark.parametrize("charts", ["oci://public.ecr.aws/karpenter", "../charts", ".charts"])
def test_charts_come_from_a_registry_or_from_a_folder(charts: str) -> None:
    assert surge(karpenterCharts=charts).charts == charts


def test_instance_types_are_known_by_the_key_that_names_them() -> None:
    types = graph.parsed(surgeInstanceTypes=["g6.xlarge"]).instance_types
    assert types == {
        "systemInstanceTypes": ("m5.large",),
        "instanceTypes": ("g5.xlarge",),
        "surgeInstanceTypes": ("g6.xlarge",),
    }
    assert "surgeInstanceTypes" not in graph.parsed(surgeNodes="nodegroup").instance_types


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        pytest.param({}, 8, id="twice-the-vcpus-of-the-smallest"),
        pytest.param({"instanceTypes": ["g5.xlarge", "g5.4xlarge"]}, 16, id="as-many-as-the-largest"),
        pytest.param({"surgeMaxVcpus": 64}, 64, id="as-many-as-are-set"),
    ],
)
def test_a_worker_gets_no_node_that_costs_several_times_as_much(changes: dict[str, Any], most: int) -> None:
    assert facts.parsed({**graph.defaults(), "instanceTypes": ["g5.xlarge"], **changes}).surge_vcpus == most
