"""The next actions of a node group, for every state of its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from localcloud.aws.eks.model import Nodegroup, Phase, Worker
from localcloud.aws.eks.rules import (
    Drain,
    Launch,
    PowerOff,
    Terminate,
    decide,
    decide_self_managed,
    settled,
    victims,
)

NOW = 100.0


def group(desired: int, status: str = "ACTIVE") -> Nodegroup:
    return Nodegroup(
        name="workers",
        cluster="demo",
        arn="arn",
        version="1.34",
        release_version="",
        created_at=0,
        modified_at=0,
        node_role="role",
        subnets=("subnet-a", "subnet-b"),
        scaling={"minSize": 0, "maxSize": 9, "desiredSize": desired},
        instance_types=("m5.large",),
        instance_type="m5.large",
        ami_type="",
        capacity_type="ON_DEMAND",
        disk_size=20,
        labels={},
        taints=(),
        update_config={},
        node_repair_config=None,
        launch_template=None,
        remote_access=None,
        auto_scaling_group="",
        status=status,
    )


def worker(number: int, zone: str = "a", phase: Phase = Phase.UP, **fields: float) -> Worker:
    made = Worker(f"i-{number}", f"node-{number}", f"subnet-{zone}", zone, float(number), phase, phase is Phase.UP)
    return replace(made, **fields)  # type: ignore[arg-type]


def running(*workers: Worker) -> dict[str, int]:
    return {worker.instance_id: worker.boots for worker in workers}


def test_missing_nodes_are_launched_in_each_subnet_in_turn() -> None:
    assert decide(group(3), [], {}, NOW) == [Launch("subnet-a"), Launch("subnet-b"), Launch("subnet-a")]


def test_a_missing_node_is_launched_in_the_subnet_with_the_fewest_nodes() -> None:
    one = worker(1, "a")
    assert decide(group(2), [one], running(one), NOW) == [Launch("subnet-b")]


def test_a_complete_group_gets_no_actions() -> None:
    workers = [worker(1, "a"), worker(2, "b", Phase.STARTING)]
    assert decide(group(2), workers, running(*workers), NOW) == []


def test_a_terminated_instance_is_powered_off_and_replaced_at_once() -> None:
    gone, kept = worker(1, "a"), worker(2, "b")
    actions = decide(group(2), [gone, kept], running(kept), NOW)
    assert actions == [PowerOff("i-1", clean=False), Launch("subnet-a")]


def test_an_instance_that_is_terminated_while_its_node_starts_is_replaced() -> None:
    gone = worker(1, "a", Phase.STARTING)
    assert decide(group(1), [gone], {}, NOW) == [PowerOff("i-1", clean=False), Launch("subnet-a")]


def test_a_surplus_node_is_drained_then_terminated_then_shut_down() -> None:
    surplus = worker(1)
    assert decide(group(0), [surplus], running(surplus), NOW) == [Drain("i-1")]
    draining = replace(surplus, phase=Phase.DRAINING)
    assert decide(group(0), [draining], running(draining), NOW) == []
    drained = replace(surplus, phase=Phase.DRAINED)
    assert decide(group(0), [drained], running(drained), NOW) == [Terminate("i-1")]
    assert decide(group(0), [drained], {}, NOW) == [PowerOff("i-1", clean=True)]


@pytest.mark.parametrize(
    ("zones", "count", "chosen"),
    [
        ("ab", 1, ["i-2"]),
        ("aab", 1, ["i-2"]),
        ("abb", 1, ["i-3"]),
        ("aabb", 2, ["i-4", "i-2"]),
        ("aaa", 2, ["i-3", "i-2"]),
        ("ab", 0, []),
        ("ab", -1, []),
    ],
    ids=["the newest", "fullest zone first", "newest there", "zones in turn", "one zone", "none", "too few"],
)
def test_the_newest_node_of_the_fullest_zone_is_ended_first(zones: str, count: int, chosen: list[str]) -> None:
    workers = [worker(number, zone) for number, zone in enumerate(zones, 1)]
    assert [victim.instance_id for victim in victims(workers, count)] == chosen


def test_a_node_without_pods_is_ended_before_its_equals() -> None:
    workers = [worker(1, "a"), worker(2, "b"), worker(3, "a")]
    assert [victim.instance_id for victim in victims(workers, 2, busy={"i-2"})] == ["i-3", "i-1"]


def test_a_group_is_settled_when_exactly_the_desired_nodes_are_ready() -> None:
    assert settled(group(1), [worker(1)])
    assert not settled(group(1), [worker(1, phase=Phase.STARTING)])
    assert not settled(group(1), [worker(1), worker(2, phase=Phase.DEAD)])
    assert settled(group(0), [])


def test_a_started_instance_waits_until_its_last_process_has_ended() -> None:
    assert decide_self_managed([worker(1, phase=Phase.DEAD)], {"i-1": 2}, (), NOW) == []


def updating(desired: int, **update_config: object) -> Nodegroup:
    return replace(group(desired, "UPDATING"), release_version="new", update_config=update_config)


def released(release: str, *numbers: int, phase: Phase = Phase.UP) -> list[Worker]:
    return [replace(worker(number, phase=phase), release=release) for number in numbers]


def test_the_next_node_waits_until_the_one_before_is_gone() -> None:
    fleet = [*released("old", 1, phase=Phase.DRAINING), *released("old", 2), *released("new", 3)]
    assert [type(action) for action in decide(updating(2), fleet, running(*fleet), NOW)] == [Launch]
    fleet += released("new", 4)
    assert decide(updating(2), fleet, running(*fleet), NOW) == []


def test_the_last_old_node_goes_without_another_launch() -> None:
    fleet = [*released("old", 2), *released("new", 3, 4)]
    assert decide(updating(2), fleet, running(*fleet), NOW) == [Drain("i-2")]
    fresh = released("new", 3, 4)
    assert decide(updating(2), fresh, running(*fresh), NOW) == []
    assert settled(updating(2), fresh)
    assert not settled(updating(2), released("old", 1, 2))


def test_with_minimal_the_old_nodes_go_first_and_there_are_never_more_than_before() -> None:
    minimal = updating(3, updateStrategy="MINIMAL", maxUnavailable=2)
    old = released("old", 1, 2, 3)
    assert decide(minimal, old, running(*old), NOW) == [Drain("i-1"), Drain("i-2")]
    fleet = [*released("old", 1, 2, phase=Phase.DRAINING), *released("old", 3)]
    assert decide(minimal, fleet, running(*fleet), NOW) == []
    gone = released("old", 3)
    assert [type(action) for action in decide(minimal, gone, running(*gone), NOW)] == [Launch, Launch]
    last = [*released("old", 3, phase=Phase.DRAINING), *released("new", 4, 5)]
    assert decide(minimal, last, running(*last), NOW) == []


def test_as_many_are_replaced_at_once_as_the_group_allows() -> None:
    old = released("old", *range(1, 11))
    actions = decide(updating(10, maxUnavailablePercentage=25), old, running(*old), NOW)
    assert [type(action) for action in actions] == [Launch, Launch]


def test_a_node_whose_image_is_not_eks_s_is_left_as_it_is() -> None:
    own = released("", 1, 2)
    assert decide(updating(2), own, running(*own), NOW) == []
    assert settled(updating(2), own)


def test_an_old_node_that_is_not_ready_goes_first_and_holds_nothing_up() -> None:
    stuck = [replace(node, ready=False) for node in released("old", 2)]
    fleet = [*released("old", 1), *stuck, *released("new", 3)]
    assert decide(updating(2), fleet, running(*fleet), NOW) == [Drain("i-2")]


def test_without_an_update_nodes_of_two_releases_stay() -> None:
    mixed = [*released("old", 1), *released("new", 2)]
    steady = replace(updating(2), status="ACTIVE")
    assert decide(steady, mixed, running(*mixed), NOW) == []
    assert settled(steady, mixed)
