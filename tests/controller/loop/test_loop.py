"""The controller as a whole, with an API server and nodes in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import WRITES, Call
from tests.controller.fakes.world import NODE, World
from tidewater.controller.cluster.client import Manifest, Ref
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Unavailable
from tidewater.kube.kinds import EVENTS, NODES, PODS, SERVICES, Kind


async def test_a_new_job_gets_its_service_and_pods_and_says_so_in_few_requests() -> None:
    world = World()
    world.start()
    await world.settle(1)
    world.apply(jobs.manifest())
    await world.settle()
    assert world.pods() == {"imagenet-worker-0": "Running", "imagenet-worker-1": "Running"}
    assert world.api.names(SERVICES) == ["imagenet"]
    assert "Running" in world.conditions()
    assert world.status()["replicaStatuses"]["Worker"]["active"] == 2
    assert world.status()["replicas"] == 2
    writes = world.writes()
    assert writes["create pods"] == 2
    assert writes["create services"] == 1
    assert writes["patch elasticjobs"] <= 2
    assert world.events(names.Reason.SUCCESSFUL_CREATE_POD) == ["Created pods: imagenet-worker-0, imagenet-worker-1"]


async def test_a_job_that_is_suspended_from_the_start_says_that_it_has_no_workers() -> None:
    world = await World.running(suspend=True)
    assert world.status()["state"] == "Suspended"
    assert world.status()["replicas"] == 0  # `pulumi up` with `workers: 0` waits for it


async def test_a_cluster_at_rest_costs_no_request() -> None:
    world = World()
    world.start()
    for number in range(50):
        world.apply(jobs.manifest(f"job-{number}"))
    await world.settle(120)
    before = len(world.api.calls)
    await world.settle(3600)
    assert [str(call) for call in world.api.calls[before:]] == []


async def test_a_job_is_resized_and_its_other_workers_go_on() -> None:
    world = await World.running()
    before = world.uids()
    world.scale(3)
    await world.settle()
    assert world.uids().items() > before.items()
    assert world.status()["settledReplicas"] == 3
    world.scale(1)
    await world.settle()
    assert world.uids() == {"imagenet-worker-0": before["imagenet-worker-0"]}
    assert world.status()["replicas"] == 1


async def test_the_status_is_written_before_a_counted_failure_is_deleted() -> None:
    world = await World.running()
    before = len(world.api.calls)
    world.exit("imagenet-worker-0", 130)
    await world.settle(120)
    done = [call for call in world.api.calls[before:] if call.verb in WRITES and call.kind != EVENTS]
    first = next(call for call in done if call.kind == JOBS)
    assert first.body is not None
    assert first.body["status"]["restarts"] == 1
    assert done.index(first) < next(done.index(call) for call in done if call.verb == "delete")
    assert world.status()["restarts"] == 1
    assert set(world.pods().values()) == {"Running"}


async def test_a_pod_of_somebody_else_is_not_touched_and_is_told() -> None:
    world = World()
    world.start()
    world.api.create(
        PODS,
        {
            "metadata": {
                "name": "imagenet-worker-0",
                "namespace": jobs.NAMESPACE,
                "labels": {names.LABEL_JOB_NAME: "x"},
            },
            "spec": {},
        },
    )
    foreign = world.uids()
    world.apply(jobs.manifest())
    await world.settle(60)
    assert world.uids().items() >= foreign.items()
    assert any("does not belong to this job" in each for each in world.events(names.Reason.FAILED_CREATE_POD))
    assert "imagenet-worker-0" in str(world.status()["conditions"])
    world.api.delete(Ref(PODS, jobs.NAMESPACE, "imagenet-worker-0"), grace=0)
    await world.settle(120)
    assert len(world.pods()) == 2
    assert world.orphans() == []


async def test_a_service_that_a_tool_manages_is_not_to_be_deleted() -> None:
    world = World()
    world.start()
    labels = {"app.kubernetes.io/managed-by": "pulumi"}
    service = {"metadata": {"name": "imagenet", "namespace": jobs.NAMESPACE, "labels": labels}, "spec": {}}
    world.api.create(SERVICES, service)
    world.apply(jobs.manifest())
    await world.settle()
    said = "Service imagenet exists and does not belong to this job: pulumi manages it; give the job another name"
    assert said in str(world.status()["conditions"])


async def test_a_service_of_somebody_else_does_not_stop_the_job() -> None:
    world = World()
    world.start()
    world.api.create(SERVICES, {"metadata": {"name": "imagenet", "namespace": jobs.NAMESPACE}, "spec": {}})
    world.apply(jobs.manifest())
    await world.settle()
    assert len(world.pods()) == 2
    assert world.events(names.Reason.FAILED_CREATE_SERVICE)
    told = "The API server refuses the service: Service imagenet exists and does not belong to this job"
    assert told in str(world.status()["conditions"])
    world.scale(3)
    await world.settle(2)
    assert told in str(world.status()["conditions"])
    world.api.delete(Ref(SERVICES, jobs.NAMESPACE, "imagenet"))
    await world.settle(600)
    assert world.orphans() == []
    assert told not in str(world.status()["conditions"])
    assert world.api.names(SERVICES) == ["imagenet"]


async def test_a_job_that_is_made_anew_under_its_name_gets_pods_of_its_own() -> None:
    world = await World.running()
    before = world.uids()
    world.delete()
    world.apply(jobs.manifest(replicas=1))
    await world.settle(60)
    assert list(world.pods()) == ["imagenet-worker-0"]
    assert not set(world.uids().values()) & set(before.values())
    assert world.orphans() == []


async def test_a_change_that_comes_in_between_is_not_overwritten() -> None:
    raced = [False]
    world = World()

    def fault(call: Call, moment: str) -> None:
        if call.verb == "patch" and call.kind == JOBS and moment == "before" and not raced[0]:
            raced[0] = True
            world.scale(3)

    world.start(fault)
    world.apply(jobs.manifest())
    await world.settle()
    assert raced[0]
    assert len(world.pods()) == 3
    assert world.status()["observedGeneration"] == world.job()["metadata"]["generation"]


async def test_a_defect_that_one_job_brings_to_light_does_not_stop_the_others() -> None:
    def defect(kind: Kind, manifest: Manifest) -> str | None:
        if kind == PODS and manifest["metadata"]["name"].startswith("odd"):
            raise ZeroDivisionError("division by zero")
        return None

    world = World()
    replica = world.start()
    world.api.refuse = defect
    for name in ("odd", "good"):
        world.apply(jobs.manifest(name))
    await world.settle()
    assert list(world.pods()) == ["good-worker-0", "good-worker-1"]
    assert "ZeroDivisionError" in replica.output.getvalue()
    assert not replica.task.done()


async def test_a_watch_that_has_missed_everything_catches_up() -> None:
    world = await World.running()
    world.api.down = True
    world.api.restart()
    world.evict("imagenet-worker-1")
    world.scale(3)
    await world.settle(30)
    world.api.compact()
    world.api.down = False
    await world.settle(60)
    assert world.pods() == {f"imagenet-worker-{index}": "Running" for index in range(3)}


async def test_a_deleted_job_takes_its_pods_along_and_none_come_back() -> None:
    world = World()
    replica = world.start()
    world.apply(jobs.manifest())
    await world.settle()
    world.delete()
    await world.settle()
    assert world.pods() == {}
    assert world.api.names(SERVICES) == []
    assert replica.controller.store.states() == {}


async def test_jobs_of_a_queue_start_one_after_the_other() -> None:
    world = World(rooms=2)
    world.start()
    for name in ("first", "second", "third"):
        world.apply(jobs.manifest(name, low=2, schedulingPolicy={"queue": "research"}))
        await world.settle(2)
    await world.settle()
    phases = {"first": "Running", "second": "Pending"}
    assert world.pods() == {f"{job}-worker-{index}": phase for job, phase in phases.items() for index in range(2)}
    assert [world.status(name)["state"] for name in ("second", "third")] == ["Queued", "Queued"]
    for index in range(2):
        world.exit(f"first-worker-{index}", 0)
    await world.settle(60)
    assert "Succeeded" in world.conditions("first")
    assert "Running" in world.conditions("second")
    assert world.pods().items() >= {f"third-worker-{index}": "Pending" for index in range(2)}.items()


async def test_a_doomed_node_makes_its_jobs_due() -> None:
    world = World()
    replica = world.start()
    world.apply(jobs.manifest())
    await world.settle()
    seen = list[str]()
    replica.controller.store._due = lambda key, seconds: seen.append(key.name)
    world.api.patch(Ref(NODES, None, NODE), {"spec": {"unschedulable": True}})
    await world.settle(1)
    assert seen == ["imagenet"]


async def test_a_burst_of_jobs_is_worked_on_at_the_same_time() -> None:
    flying, most = [0], [0]

    def fault(call: Call, moment: str) -> None:
        if call.verb == "create" and call.kind == PODS:
            flying[0] += 1 if moment == "before" else -1
            most[0] = max(most[0], flying[0])

    world = World(rooms=1000)
    world.start(fault)
    await world.settle(1)
    for number in range(100):
        world.apply(jobs.manifest(f"job-{number}"))
    await world.settle(60)
    assert len(world.pods()) == 200
    assert all(world.status(f"job-{number}")["replicas"] == 2 for number in range(100))
    assert most[0] > 8


@pytest.mark.parametrize("seconds", [1.0, 5.0])
async def test_a_status_waits_while_more_pods_of_the_job_start(seconds: float) -> None:
    world = World()
    world.start()
    world.apply(jobs.manifest(replicas=20, high=20))
    await world.settle(60)
    assert world.writes()["patch elasticjobs"] <= 3
    await asyncio.sleep(seconds)
    assert world.status()["replicaStatuses"]["Worker"]["active"] == 20


async def test_a_request_that_the_api_server_is_too_busy_for_is_repeated_when_it_says() -> None:
    times = list[float]()

    def fault(call: Call, moment: str) -> None:
        if call.verb == "create" and call.kind == SERVICES and moment == "before":
            times.append(virtual.seconds())
            if len(times) == 1:
                raise Unavailable("too many requests", status=429, retry_after=9.0)

    world = World()
    world.start(fault)
    world.apply(jobs.manifest())
    await world.settle(60)
    assert len(world.pods()) == 2
    assert times[1] - times[0] >= 9.0
