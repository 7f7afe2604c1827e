"""The controller may be killed before or after any of its requests: the next one ends where it would have.

Each scenario is something that happens to a running job. It is run once undisturbed, and then once for every write
that the controller sends because of it: the controller is killed there, another one starts from scratch and the
cluster must come to the same end, with no pod left over, none doubled and no failure counted twice or forgotten.
`make soak` also kills it before each write, which leaves a cluster almost as after the write before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import WRITES, Call, Fault, Killed
from tests.controller.fakes.world import World
from tidewater.controller.cluster.client import Manifest
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Unavailable
from tidewater.kube.kinds import PODS, SERVICES

PATIENCE_SECONDS = 400.0
"""Longer than any back-off."""

SUCCESSIVE = {"replicaSpecs": jobs.workers(podNames="Successive")}
WHOLE = {"restartScope": "Job"}
PAIRS = {"launcher": "tidewater", "workersPerReplica": 2}

LASTING = (
    "state restarts replicas replicaStatuses desired settledReplicas observedGeneration jobRestarts restartTime"
    " signals".split()
)
"""What the status must say at the end, whenever it was written."""


@dataclass(frozen=True)
class Scenario:
    """A job, and what happens to it when it runs."""

    happens: Callable[[World], None]
    spec: dict[str, Any]
    rooms: int = 100
    ends: str | None = "Running"
    """The job's state at the end; None: it is deleted."""


def worker(world: World, place: int) -> str:
    """Return the name of a worker by its place in their order: which numbers they have may depend on what was lost."""
    return str(_pods(world)[place]["metadata"]["name"])


def first_fails(world: World) -> None:
    """The first worker is interrupted."""
    world.exit(worker(world, 0), 130)


def both_fail(world: World) -> None:
    """Both workers are interrupted."""
    for name in [worker(world, place) for place in range(2)]:
        world.exit(name, 130)


def both_are_done(world: World) -> None:
    """The first two workers end their work."""
    for name in [worker(world, place) for place in range(2)]:
        world.exit(name, 0)


SCENARIOS = {
    "the job is created": Scenario(lambda world: None, {}),
    "it grows": Scenario(lambda world: world.scale(3), {}),
    "it grows by itself": Scenario(lambda world: world.edit(autoscale=True), {}),
    "it shrinks": Scenario(lambda world: world.scale(1), {}),
    "a worker fails and is retried": Scenario(lambda world: world.exit("imagenet-worker-0", 130), {}),
    "both workers fail and are retried": Scenario(both_fail, {}),
    "a worker is evicted": Scenario(lambda world: world.evict("imagenet-worker-1"), {}),
    "a worker fails for good": Scenario(lambda world: world.exit("imagenet-worker-1", 1), {}),
    "too few workers are left": Scenario(
        lambda world: world.exit("imagenet-worker-1", 1), {"minReplicas": 2}, ends="Failed"
    ),
    "the back-off limit is reached": Scenario(
        lambda world: world.exit("imagenet-worker-0", 130), {"backoffLimit": 0}, ends="Failed"
    ),
    "the training is done": Scenario(
        lambda world: world.exit("imagenet-worker-0", 0), {"cleanPodPolicy": "All"}, ends="Succeeded"
    ),
    "the job's time to live ends": Scenario(
        lambda world: world.exit("imagenet-worker-0", 0), {"ttlSecondsAfterFinished": 5}, ends=None
    ),
    "a worker is killed": Scenario(lambda world: world.exit("imagenet-worker-1", 137), {}),
    "it is suspended": Scenario(lambda world: world.edit(suspend=True), {}, ends="Suspended"),
    "its template changes": Scenario(
        lambda world: world.edit(replicaSpecs={"Worker": {"template": jobs.template(hostNetwork=True)}}), {}
    ),
    "it is deleted": Scenario(lambda world: world.delete(), {}, ends=None),
    "there is no room for all": Scenario(lambda world: world.scale(3), {}, rooms=2),
    "it grows by successors": Scenario(lambda world: world.scale(3), SUCCESSIVE),
    "it shrinks to the first workers": Scenario(lambda world: world.scale(1), SUCCESSIVE),
    "a worker is deleted and has a successor": Scenario(lambda world: world.kill(worker(world, 0)), SUCCESSIVE),
    "a worker fails and has a successor": Scenario(first_fails, SUCCESSIVE),
    "both workers fail and have successors": Scenario(both_fail, SUCCESSIVE),
    "a worker fails and the whole job restarts": Scenario(first_fails, WHOLE),
    "a worker is evicted and the whole job restarts": Scenario(lambda world: world.evict("imagenet-worker-1"), WHOLE),
    "both workers fail and the whole job restarts": Scenario(both_fail, {**WHOLE, **SUCCESSIVE}),
    "a job that restarts as a whole is suspended": Scenario(
        lambda world: world.edit(suspend=True), WHOLE, ends="Suspended"
    ),
    "it grows by a replica of two pods": Scenario(lambda world: world.scale(3), PAIRS),
    "it shrinks to one replica of two pods": Scenario(lambda world: world.scale(1), PAIRS),
    "a pod of a replica fails and is retried": Scenario(lambda world: world.exit("imagenet-worker-3", 130), PAIRS),
    "a pod of a replica fails for good": Scenario(lambda world: world.exit("imagenet-worker-2", 1), PAIRS),
    "a pod of a replica is evicted": Scenario(lambda world: world.evict("imagenet-worker-3"), PAIRS),
    "a pod of a replica is deleted": Scenario(lambda world: world.kill("imagenet-worker-2"), PAIRS),
    "both pods of replica 0 are done": Scenario(both_are_done, {**PAIRS, "cleanPodPolicy": "All"}, ends="Succeeded"),
    "there is room for one pod of a replica": Scenario(lambda world: world.scale(3), PAIRS, rooms=5),
    "replicas get three pods": Scenario(lambda world: world.edit(workersPerReplica=3), PAIRS),
}


def killing(number: int, moment: str, deaths: list[Call]) -> Fault:
    """Return a fault that kills the process before or after its write of that number, counted from 0."""
    seen = [0]

    def fault(call: Call, now: str) -> None:
        if call.verb not in WRITES or now != moment:
            return
        seen[0] += 1
        if seen[0] == number + 1:
            deaths.append(call)
            raise Killed

    return fault


async def outcome(scenario: Scenario, number: int, moment: str, deaths: list[Call]) -> dict[str, Any]:
    """Run a scenario in which the controller is killed once, and return how the cluster is at the end."""
    world = World(scenario.rooms)
    creation = scenario is SCENARIOS["the job is created"]
    if not creation:
        before = world.start()
        world.apply(jobs.manifest(**scenario.spec))
        await world.settle()
        await before.stop()
    first = world.start(killing(number, moment, deaths))
    if creation:
        world.apply(jobs.manifest(**scenario.spec))
    scenario.happens(world)
    await world.settle(PATIENCE_SECONDS)
    await first.stop()
    second = world.start()
    await world.settle(PATIENCE_SECONDS)
    await second.stop()
    assert world.orphans() == []
    assert world.most["imagenet"] <= 3 * scenario.spec.get("workersPerReplica", 1)
    if "replicaSpecs" in scenario.spec:
        added = world.api.added(PODS)
        assert len(set(added)) == len(added), "two pods have had the same number"
    return ending(world)


def ending(world: World) -> dict[str, Any]:
    """Return how the cluster is at the end, without what may depend on when something was seen.

    A controller that is killed after it has reserved numbers leaves them unused, so of pods that are numbered on and on
    only their order counts.
    """
    return {
        "pods": sorted(_pod(pod, place) for place, pod in enumerate(_pods(world))),
        "services": world.api.names(SERVICES),
        "jobs": [(_lasting(job), world.conditions(job["metadata"]["name"])) for job in world.api.all(JOBS)],
    }


def _pods(world: World) -> list[Manifest]:
    pods = [pod for pod in world.api.all(PODS) if "deletionTimestamp" not in pod["metadata"]]
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][names.LABEL_REPLICA_INDEX]))


def _pod(pod: Manifest, place: int) -> tuple[str, str, str]:
    meta, tier = pod["metadata"], pod["metadata"]["labels"].get(names.LABEL_TIER, "")
    return f"{tier} worker {place}" if tier else meta["name"], pod["status"]["phase"], str(meta["annotations"])


def _lasting(job: Manifest) -> Manifest:
    status = {key: job.get("status", {}).get(key) for key in LASTING}
    counts = status["replicaStatuses"] or {}
    status["replicaStatuses"] = {
        type: {**count, "nextIndex": None, "replacedIndexes": len(indexes.numbers(count.get("replacedIndexes", "")))}
        for type, count in counts.items()
    }
    return status


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.soak), "after"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_controller_may_be_killed_at_every_write(name: str, moment: str) -> None:
    scenario = SCENARIOS[name]
    expected = virtual.run(outcome(scenario, 10_000, moment, []))
    assert [status["state"] for status, _ in expected["jobs"]] == ([scenario.ends] if scenario.ends else [])
    for number in range(100):
        deaths: list[Call] = []
        found = virtual.run(outcome(scenario, number, moment, deaths))
        if not deaths:
            # The garbage collector deletes what a deleted job owns.
            assert (number == 0) == (name == "it is deleted")
            return
        assert found == expected, f"killed {moment} {deaths[0]}"
    raise AssertionError("a hundred writes for one change")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_answer_may_be_lost_once(name: str) -> None:
    scenario = SCENARIOS[name]
    expected = virtual.run(outcome(scenario, 10_000, "before", []))

    async def main() -> dict[str, Any]:
        lost = set[str]()

        def fault(call: Call, moment: str) -> None:
            if call.verb in WRITES and moment == "after" and str(call) not in lost:
                lost.add(str(call))
                raise Unavailable("the connection was closed")

        world = World(scenario.rooms)
        replica = world.start(fault)
        world.apply(jobs.manifest(**scenario.spec))
        await world.settle()
        scenario.happens(world)
        await world.settle(PATIENCE_SECONDS)
        await replica.stop()
        assert world.orphans() == []
        return ending(world)

    assert virtual.run(main()) == expected


async def test_an_api_server_that_restarts_again_and_again_only_delays() -> None:
    world = World()
    world.start()
    for number in range(20):
        world.apply(jobs.manifest(f"job-{number}"))
        world.api.down = number % 2 == 0
        world.api.restart()
        if number % 5 == 0:
            world.api.compact()
        await world.settle(3)
    world.api.down = False
    await world.settle(60)
    assert len(world.pods()) == 40
    assert set(world.pods().values()) == {"Running"}
    assert all("Running" in world.conditions(f"job-{number}") for number in range(20))


async def test_two_controllers_at_once_make_no_pod_twice() -> None:
    world = World()
    replicas = [world.start(), world.start()]
    for number in range(10):
        world.apply(jobs.manifest(f"job-{number}"))
    await world.settle()
    for number in range(10):
        world.scale(3, f"job-{number}")
    await world.settle(60)
    assert len(world.pods()) == 30
    created = [call.name for call in world.api.calls if call.verb == "create" and call.kind == PODS]
    assert len(set(created)) == 30
    assert max(world.most.values()) == 3
    for replica in replicas:
        await replica.stop()


async def test_a_former_leader_that_wakes_up_changes_nothing() -> None:
    world = World()
    former = world.start()
    world.apply(jobs.manifest())
    await world.settle()
    former.fence.close()
    before = len(former.client.calls)
    world.scale(3)
    await world.settle()
    assert [call for call in former.client.calls[before:] if call.verb in WRITES] == []
    assert len(world.pods()) == 2
    world.start()
    await world.settle()
    assert len(world.pods()) == 3
