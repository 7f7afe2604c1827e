"""The controller as a whole with quotas of teams: a borrower shrinks for the owner, and gets its room back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.controller.fakes import jobs
from tests.controller.fakes.api import KilledAtWrite
from tests.controller.fakes.world import Replica, World
from tidewater.contract.controller_program import Quota
from tidewater.controller.cluster.client import Manifest, Ref
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import PODS

TWO = {"vision": Quota(2, 4), "speech": Quota(2, 4)}


def of(team: str, low: int, replicas: int, name: str = "job", **spec: Any) -> Manifest:
    """Return a job of a team for `low` to `replicas` workers."""
    made = jobs.manifest(name, replicas, low, replicas, **spec)
    made["metadata"]["namespace"] = team
    return made


def status(world: World, team: str, name: str = "job") -> dict[str, Any]:
    found: dict[str, Any] = world.api.get(JOBS, team, name).get("status", {})
    return found


def message(world: World, team: str, name: str = "job") -> str:
    """Return what a person reads of the job."""
    conditions = status(world, team, name)["conditions"]
    return next(str(each["message"]) for each in conditions if each["type"] == "Running")


def size(world: World, team: str, name: str = "job") -> int:
    """Return how many pods of the job run."""
    label = names.LABEL_JOB_NAME
    pods = [each["metadata"] for each in world.api.all(PODS) if each["status"]["phase"] == "Running"]
    return sum(each["namespace"] == team and each["labels"][label] == name for each in pods)


def delete(world: World, team: str, name: str = "job") -> None:
    world.api.delete(Ref(JOBS, team, name))


async def lent(**spec: Any) -> tuple[World, Replica]:
    """Return a cluster in which vision has a job with 1 to 4 workers, two of them borrowed."""
    world = World(quotas=TWO)
    replica = world.start()
    world.apply(of("vision", 1, 4, **spec))
    await world.settle()
    assert size(world, "vision") == 4
    assert status(world, "vision")["settledReplicas"] == 4
    return world, replica


async def test_the_borrower_shrinks_the_owner_starts_and_the_borrower_grows_again_when_it_has_gone() -> None:
    world, _ = await lent()
    first = {name for name, phase in world.pods().items() if phase == "Running"}
    world.apply(of("speech", 2, 2))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (2, 2)
    assert {"job-worker-0", "job-worker-1"} <= first & world.pods().keys()
    assert status(world, "vision")["state"] == "Running"
    assert (status(world, "vision")["waiting"], status(world, "vision")["settledReplicas"]) == ("QuotaExceeded", 4)
    assert message(world, "vision") == (
        "ElasticJob job is running. It may have 2 of 4 workers: too few are left of the 2 of team vision, and other "
        "teams lend no more."
    )
    assert world.events("ElasticJobResized") == ["Resized from 4 to 2 workers. It gives back 2 workers to team speech."]
    before = len(world.api.calls)
    await world.settle(3600)
    assert [str(call) for call in world.api.calls[before:]] == []
    delete(world, "speech")
    await world.settle()
    assert size(world, "vision") == 4
    assert (status(world, "vision").get("waiting", ""), message(world, "vision")) == ("", "ElasticJob job is running.")


async def test_the_owner_gets_no_pod_before_the_borrowers_are_gone_and_says_what_it_waits_for() -> None:
    world, _ = await lent()
    world.lingering = True
    world.apply(of("speech", 2, 2))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (4, 0)
    assert status(world, "speech")["state"] == "Queued"
    assert status(world, "speech")["waiting"] == "QuotaExceeded"
    assert message(world, "speech") == "ElasticJob job waits for 2 workers: team vision gives back 2 workers."
    assert message(world, "vision") == "ElasticJob job is running. It gives back 2 workers to team speech."
    world.lingering = False
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (2, 2)
    assert "startTime" in status(world, "speech")


async def test_a_borrowed_minimum_is_given_back_as_a_whole_and_the_job_starts_again_later() -> None:
    world = World(quotas=TWO)
    world.start()
    world.apply(of("vision", 3, 3))
    await world.settle()
    world.apply(of("speech", 2, 2))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (0, 2)
    assert status(world, "vision")["state"] == "Queued"
    assert "too few are left of the 2 of team vision" in message(world, "vision")
    assert "ElasticJob job is queued. It gives back 3 workers to team speech." in world.events("ElasticJobQueued")
    delete(world, "speech")
    await world.settle()
    assert size(world, "vision") == 3
    assert status(world, "vision")["state"] == "Running"


async def test_a_job_without_a_share_stops_no_other_team_of_the_same_queue() -> None:
    world = World(quotas={"vision": Quota(1, 1), "speech": Quota(2, 2)})
    world.start()
    world.apply(of("vision", 2, 2, schedulingPolicy={"queue": "q", "priority": 9}))
    await world.settle()
    world.apply(of("speech", 2, 2, schedulingPolicy={"queue": "q"}))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (0, 2)
    assert message(world, "vision") == "ElasticJob job needs 2 workers, and team vision may have 1."


async def test_a_queue_that_was_asked_just_before_a_share_changes_is_asked_again() -> None:
    world = World(quotas=TWO)
    world.start()
    world.apply(of("speech", 1, 1))
    await world.settle()
    world.apply(of("vision", 4, 4, schedulingPolicy={"queue": "q"}))
    world.apply(of("training", 1, 1, schedulingPolicy={"queue": "q"}))
    await world.settle()
    assert (size(world, "vision"), size(world, "training")) == (0, 1)
    world.api.patch(Ref(JOBS, "training", "job"), {"spec": {"schedulingPolicy": {"priority": 1}}})
    await asyncio.sleep(0.3)
    delete(world, "speech")
    await world.settle()
    assert size(world, "vision") == 4


async def test_jobs_of_a_queue_give_back_and_come_again_too() -> None:
    world = World(quotas=TWO)
    world.start()
    world.apply(of("vision", 4, 4, schedulingPolicy={"queue": "q"}))
    await world.settle()
    assert "wholeSince" in status(world, "vision")
    world.apply(of("speech", 1, 1, schedulingPolicy={"queue": "q"}))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (0, 1)
    delete(world, "speech")
    await world.settle()
    assert size(world, "vision") == 4


async def test_a_job_that_grows_by_itself_stays_within_its_share_and_shrinks_with_it() -> None:
    world = World(quotas=TWO)
    world.start()
    grower = of("vision", 1, 1, autoscale=True)
    grower["spec"]["maxReplicas"] = 9
    world.apply(grower)
    await world.settle(3600)
    assert size(world, "vision") == 4
    world.apply(of("speech", 1, 1))
    await world.settle(3600)
    assert (size(world, "vision"), size(world, "speech")) == (3, 1)
    delete(world, "speech")
    await world.settle(3600)
    assert size(world, "vision") == 4


async def test_a_limited_job_keeps_to_its_allowed_sizes() -> None:
    world, _ = await lent(sizes=[1, 2, 4])
    world.apply(of("speech", 1, 1))
    await world.settle()
    assert (size(world, "vision"), size(world, "speech")) == (2, 1)


async def test_jobs_outside_of_the_teams_are_not_limited_and_count_for_nothing() -> None:
    world, _ = await lent()
    world.apply(of("training", 8, 8))
    await world.settle()
    assert (size(world, "vision"), size(world, "training")) == (4, 8)


async def test_a_worker_that_fails_is_replaced_while_its_team_has_borrowed_all_that_there_is() -> None:
    world, _ = await lent()
    world.api.delete(Ref(PODS, "vision", "job-worker-2"))
    await world.settle()
    assert size(world, "vision") == 4
    assert world.events("ElasticJobResized") == []


@pytest.mark.parametrize("number", range(10))
async def test_wherever_it_is_killed_the_next_controller_decides_the_same(number: int) -> None:
    kill = KilledAtWrite(number)
    world, before = await lent()
    await before.stop()
    world.apply(of("speech", 2, 2))
    replica = world.start(kill)
    await world.settle(5)
    await replica.stop()
    world.start()
    await world.settle()
    assert kill.writes > number
    assert (size(world, "vision"), size(world, "speech")) == (2, 2)
    assert status(world, "vision")["state"] == "Running"
