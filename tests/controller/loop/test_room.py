"""The controller as a whole on fixed nodes: jobs of a queue get pods when these have room."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.fakes import jobs
from tests.controller.fakes.api import KilledAtWrite
from tests.controller.fakes.world import Replica, World
from tidewater.kube.kinds import PODS


def queued(name: str, low: int, priority: int = 0) -> dict[str, Any]:
    policy = {"queue": "q", "priority": priority}
    return jobs.manifest(name, replicas=low, low=low, high=low, schedulingPolicy=policy)


def states(world: World) -> dict[str, str]:
    return {name: world.status(name)["state"] for name in ("big", "small")}


async def crowded() -> tuple[World, Replica]:
    """Return a cluster where a job waits for the room that another one has, and a small one went ahead."""
    world = World(rooms=4, fixed_nodes=True)
    world.apply(jobs.manifest("first", replicas=2, low=2, high=2))
    replica = world.start()
    await world.settle()
    world.apply(queued("big", 4, priority=1))
    await world.settle()
    world.apply(queued("small", 2))
    await world.settle()
    return world, replica


async def test_a_job_without_room_gets_no_pods_and_a_small_one_goes_ahead() -> None:
    world, _ = await crowded()
    assert states(world) == {"big": "Queued", "small": "Running"}
    assert not any(name.startswith("big") for name in world.api.added(PODS))
    assert world.status("big")["waiting"] == "Unschedulable"
    (message,) = world.events("Unschedulable")
    assert message == "It starts when all of its minimum has room at once: 4 of type Worker."
    before = len(world.api.calls)
    await world.settle(3600)
    assert [str(call) for call in world.api.calls[before:]] == []


async def test_the_job_ahead_gives_its_room_back_once_that_helps_and_comes_next() -> None:
    world, _ = await crowded()
    since = world.status("small")["queuedSince"]
    world.delete("first")
    await world.settle()
    assert states(world) == {"big": "Running", "small": "Queued"}
    assert world.status("small")["queuedSince"] == since
    assert world.events("ElasticJobQueued").count("Found no room in 300 s. It is the next job's turn.") == 0
    added = world.api.added(PODS)
    assert sum(name.startswith("big") for name in added) == 4
    assert sum(name.startswith("small") for name in added) == 2
    world.delete("big")
    await world.settle()
    assert world.status("small")["state"] == "Running"
    assert "queuedSince" not in world.status("small")


@pytest.mark.parametrize("number", range(12))
async def test_wherever_it_is_killed_the_next_controller_decides_the_same(number: int) -> None:
    kill = KilledAtWrite(number)
    world, before = await crowded()
    since = world.status("small")["queuedSince"]
    await before.stop()
    world.delete("first")
    replica = world.start(kill)
    await world.settle(5)
    await replica.stop()
    world.start()
    await world.settle()
    assert kill.writes > number
    assert states(world) == {"big": "Running", "small": "Queued"}
    assert (world.status("small")["queuedSince"], world.status("small")["turnsMissed"]) == (since, 0)


async def test_a_job_that_finds_room_starts_at_once() -> None:
    world = World(rooms=4, fixed_nodes=True)
    world.start()
    world.apply(queued("big", 4))
    world.apply(queued("small", 2))
    await world.settle(5)
    assert states(world) == {"big": "Running", "small": "Queued"}
    assert world.events("Unschedulable") == ["It starts when all of its minimum has room at once: 2 of type Worker."]


async def test_a_job_that_grows_by_itself_gives_room_back_to_one_that_waits_without_pods() -> None:
    world = World(rooms=6, fixed_nodes=True)
    world.start()
    world.apply(jobs.manifest("grower", replicas=1, low=1, high=6, autoscale=True))
    await world.settle(3600)
    assert world.status("grower")["replicaStatuses"]["Worker"]["active"] == 6
    world.apply(queued("big", 3))
    await world.settle(3600)
    assert world.status("big")["state"] == "Running"
    assert world.status("grower")["replicaStatuses"]["Worker"]["active"] == 3
