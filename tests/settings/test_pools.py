"""Every mistake about pools is one sentence with the value and the remedy, and all are found at once."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from tests import facts, graph

BIG: dict[str, Any] = {"name": "big", "instanceTypes": ["p5.48xlarge"], "maxNodes": 4}
CPU: dict[str, Any] = {"name": "cpu", "instanceTypes": ["c7i.8xlarge", "c6i.8xlarge"], "maxNodes": "20"}
RESERVATIONS = [f"cr-{number:017x}" for number in range(21)]


def refused(*pools: Any, **changes: Any) -> list[str]:
    with pytest.raises(settings.ConfigurationError) as mistakes:
        graph.parsed(pools=list(pools), **changes)
    return list(mistakes.value.mistakes)


def test_pools_are_read_with_the_defaults_of_what_they_leave_out() -> None:
    spot = {**CPU, "capacityType": "SPOT", "spotFallback": "true", "capacityReservationIds": RESERVATIONS[:1]}
    big, cpu = graph.parsed(pools=[BIG, spot]).pools
    assert (big.name, big.instance_types, big.maximum) == ("big", ("p5.48xlarge",), 4)
    assert (big.capacity_type, big.spot_fallback, big.reservations) == ("ON_DEMAND", False, ())
    assert (cpu.name, cpu.instance_types, cpu.maximum) == ("cpu", ("c7i.8xlarge", "c6i.8xlarge"), 20)
    assert (cpu.capacity_type, cpu.spot_fallback, cpu.reservations) == ("SPOT", True, tuple(RESERVATIONS[:1]))


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"name": "Big"}, "pools = Big: the name of a pool must be 40 lower-case letters"),
        ({"name": ""}, 'pools = "": the name of a pool must be'),
        ({"name": "a" * 41}, f"pools = {'a' * 41}: the name of a pool must be 40"),
        ({"name": "workers"}, "pools = workers: is the name of the pool of the stack's own workers; choose another"),
        ({"name": 7}, "must be an object with name, instanceTypes and maxNodes"),
        ({"instanceTypes": []}, "pools.big.instanceTypes = []: must have at least one entry: an EC2 instance type"),
        ({"instanceTypes": "g5.xlarge"}, "pools.big.instanceTypes = g5.xlarge: must be a list"),
        ({"instanceTypes": ["g5"]}, "pools.big.instanceTypes = g5: must be an EC2 instance type such as m5.large"),
        ({"instanceTypes": ["g5.xlarge"] * 2}, "pools.big.instanceTypes = g5.xlarge: is listed twice"),
        ({"instanceTypes": None}, "must be an object with name, instanceTypes and maxNodes"),
        ({"maxNodes": 0}, "pools.big.maxNodes = 0: must be from 1 to 1000"),
        ({"maxNodes": "many"}, "pools.big.maxNodes = many: must be an integer"),
        ({"capacityType": "spot"}, "pools.big.capacityType = spot: must be ON_DEMAND or SPOT"),
        ({"spotFallback": True}, "pools.big.spotFallback = true: is for Spot nodes; remove it, or set capacityType to"),
        ({"capacityReservationIds": ["cr-1"]}, "pools.big.capacityReservationIds = cr-1: must be the id of a capacity"),
        ({"capacityReservationIds": RESERVATIONS}, "pools.big.capacityReservationIds = 21 ids: 20 at most"),
        ({"zones": 2}, "must be an object with name, instanceTypes and maxNodes"),
    ],
)
def test_a_wrong_pool_is_one_sentence(changes: dict[str, Any], mistake: str) -> None:
    (found,) = refused({**BIG, **changes})
    assert mistake in found


def test_two_pools_of_one_name_are_refused() -> None:
    assert refused(BIG, {**CPU, "name": "big"}) == [
        "pools = big: is the name of 2 pools; give each pool a name of its own"
    ]


def test_the_reservations_of_all_pools_and_of_the_stacks_own_nodes_have_room_in_one_policy() -> None:
    pools = [{**BIG, "capacityReservationIds": RESERVATIONS[:10]}, {**CPU, "capacityReservationIds": RESERVATIONS[:15]}]
    assert len(graph.parsed(pools=pools, capacityReservationIds=RESERVATIONS[:20]).pools) == 2
    (found,) = refused(*pools, capacityReservationIds=RESERVATIONS[10:])
    assert found.startswith("pools = 21 capacity reservations: 20 at most, with the stack's own")


def test_all_mistakes_come_at_once() -> None:
    found = refused({**BIG, "maxNodes": 0, "capacityType": "spot"}, {**CPU, "instanceTypes": []}, "third")
    assert [each.partition(" = ")[0] for each in found] == [
        "pools",
        "pools.big.capacityType",
        "pools.big.maxNodes",
        "pools.cpu.instanceTypes",
    ]


def test_without_karpenter_pools_are_refused_with_the_remedy() -> None:
    assert refused(BIG, CPU, surgeNodes="nodegroup") == [
        "pools = big, cpu: has an effect only with surgeNodes karpenter; remove it, or set surgeNodes to karpenter"
    ]


def test_instance_types_of_a_pool_are_known_by_the_key_that_names_them() -> None:
    types = graph.parsed(pools=[BIG, CPU]).instance_types
    assert types["pools.big.instanceTypes"] == ("p5.48xlarge",)
    assert types["pools.cpu.instanceTypes"] == ("c7i.8xlarge", "c6i.8xlarge")


def test_a_stack_without_gpus_for_its_own_workers_has_some_in_a_pool() -> None:
    config = {**graph.defaults(), "instanceTypes": ["m5.large"], "gpusPerWorker": 0}
    assert not facts.parsed(config).has_gpus
    assert not facts.parsed({**config, "pools": [CPU]}).has_gpus
    with_gpus = facts.parsed({**config, "pools": [BIG, CPU]})
    assert (with_gpus.has_gpus, with_gpus.gpu_pools) == (True, ("big",))


def test_a_team_may_have_more_workers_than_the_stacks_own_nodes_have_room_for_if_there_are_pools() -> None:
    team = {"name": "vision", "maxWorkers": 9}
    with pytest.raises(settings.ConfigurationError, match=r"vision.maxWorkers = 9: there are nodes for 8 workers"):
        graph.parsed(fileAccess="iam", teams=[team])
    assert graph.parsed(fileAccess="iam", teams=[team], pools=[BIG]).teams[0].maximum == 9
    promised = {**team, "minWorkers": 9}
    (found,) = refused(BIG, fileAccess="iam", teams=[promised])
    assert found.startswith("teams = minWorkers 9: ")
