"""A job that has ended stays ended, and ends at its deadline, whatever happens to its pods meanwhile."""

from __future__ import annotations

import pytest

from tests.controller.fakes import jobs
from tests.controller.fakes.world import World
from tidewater.kube.kinds import PODS


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
async def test_a_job_that_has_succeeded_stays_so_whatever_is_cleaned_up(policy: str) -> None:
    world = await World.running(cleanPodPolicy=policy)
    world.exit("imagenet-worker-0", 0)
    await world.settle(300)
    assert "Succeeded" in world.conditions()
    assert len([call for call in world.api.calls if call.verb == "create" and call.kind == PODS]) == 2
    kept = {"All": {}, "Running": {"imagenet-worker-0": "Succeeded"}}
    both = {"imagenet-worker-0": "Succeeded", "imagenet-worker-1": "Running"}
    assert world.pods() == kept.get(policy, both)


async def test_a_job_that_fails_when_its_minimum_is_raised_stays_failed() -> None:
    world = await World.running(cleanPodPolicy="All")
    world.exit("imagenet-worker-1", 1)
    await world.settle()
    world.edit(minReplicas=2)
    await world.settle(300)
    assert (world.status()["state"], world.pods()) == ("Failed", {})


async def test_what_a_pod_has_proved_is_not_forgotten_with_the_pod() -> None:
    """As when Karpenter removes the empty node of a worker that failed for good, and another controller leads by then.

    Otherwise a new node would come for the worker, and the worker would fail there again, for ever.
    """
    world = World()
    first = world.start()
    world.apply(jobs.manifest(replicas=3, successPolicy="AllWorkers"))
    await world.settle()
    world.exit("imagenet-worker-1", 1)
    world.exit("imagenet-worker-2", 0)
    await world.settle()
    await first.stop()
    for name in ("imagenet-worker-1", "imagenet-worker-2"):
        world.kill(name)
    world.start()
    await world.settle(300)
    assert world.pods() == {"imagenet-worker-0": "Running"}
    counts = world.status()["replicaStatuses"]["Worker"]
    assert (counts["completedIndexes"], counts["failedIndexes"]) == ("2", "1")


async def test_the_deadline_of_a_queued_job_begins_when_it_has_room() -> None:
    world = World(rooms=0)
    world.start()
    world.apply(jobs.manifest(activeDeadlineSeconds=60, schedulingPolicy={"queue": "q"}))
    await world.settle(600)
    assert (world.status()["state"], world.status().get("startTime")) == ("Queued", None)
    world.rooms = 2
    world.add_node("another")
    await world.until(lambda: world.status()["state"] == "Running")
    assert "startTime" in world.status()
    await world.settle(70)
    assert world.status()["state"] == "Failed"
