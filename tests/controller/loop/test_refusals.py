"""What the API server refuses, and what can't be read, is reported in its job and doesn't stop other jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import Call
from tests.controller.fakes.world import World
from tidewater.controller.cluster.client import Manifest
from tidewater.controller.loop import invalid_status
from tidewater.elasticjob import names
from tidewater.kube.errors import ClusterError, Unreachable, error_of
from tidewater.kube.kinds import PODS, Kind


async def test_a_refused_pod_is_told_and_does_not_stop_other_jobs() -> None:
    def refuse(kind: Kind, manifest: Manifest) -> str | None:
        bad = kind == PODS and manifest["metadata"]["name"].startswith("bad-")
        return "spec.containers[0].image: Required value" if bad else None

    world = World()
    world.start()
    world.api.refuse = refuse
    for name in ("bad", "good"):
        world.apply(jobs.manifest(name))
    await world.settle(300)
    assert list(world.pods()) == ["good-worker-0", "good-worker-1"]
    assert "Required value" in str(world.status("bad")["conditions"])
    assert any("Required value" in message for message in world.events(names.Reason.FAILED_CREATE_POD))
    attempts = [call for call in world.api.calls if call.verb == "create" and call.name == "bad-worker-0"]
    assert len(attempts) <= 30
    world.api.refuse = lambda kind, manifest: None
    await world.settle(120)
    assert len(world.pods()) == 4
    assert "Required value" not in str(world.status("bad")["conditions"])


@pytest.mark.parametrize(
    "error",
    [
        error_of(500, "InternalError", 'failed calling webhook "pods.example.com": connection refused'),
        error_of(429, "TooManyRequests", "the server has received too many requests"),
        Unreachable("POST /api/v1/namespaces/default/pods: ReadTimeout"),
    ],
    ids=["webhook", "too many requests", "no answer in time"],
)
async def test_a_pod_that_cannot_be_created_is_told_within_15_seconds(error: ClusterError) -> None:
    def unanswered(call: Call, moment: str) -> None:
        if moment == "before" and call.verb == "create" and call.kind == PODS:
            raise error

    world = World()
    replica = world.start(unanswered)
    world.apply(jobs.manifest())
    await world.settle(15)
    status = world.status()
    assert (status["waiting"], status["state"], status["replicas"]) == ("FailedCreatePod", "Created", 0)
    assert any(error.message in each["message"] for each in status["conditions"])
    assert any(error.message in message for message in world.events(names.Reason.FAILED_CREATE_POD))
    await replica.stop()
    world.start()
    await world.settle(90)
    assert world.status()["state"] == "Running"
    assert error.message not in str(world.status())


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ({"kind": names.KIND, "name": "imagenet", "uid": "earlier"}, "of an earlier job is being deleted"),
        ({"kind": "ReplicaSet", "name": "web", "uid": "web"}, "does not belong to this job"),
    ],
    ids=["an earlier job", "another owner"],
)
async def test_a_name_that_is_taken_keeps_no_other_worker_from_being_made(owner: Manifest, why: str) -> None:
    world = World()
    labels = {names.LABEL_JOB_NAME: "imagenet"}
    taken = {"name": "imagenet-worker-0", "namespace": jobs.NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    world.api.create(PODS, {"metadata": taken, "status": {"phase": "Running"}})
    world.start()
    world.apply(jobs.manifest(replicas=3))
    await world.settle()
    status = world.status()
    assert (list(world.pods()), status["replicas"]) == ([f"imagenet-worker-{index}" for index in range(3)], 2)
    assert (status["state"], status["waiting"]) == ("Running", "FailedCreatePod")
    assert any(why in each["message"] for each in status["conditions"])
    assert any(why in message for message in world.events(names.Reason.FAILED_CREATE_POD))
    world.kill("imagenet-worker-0")
    await world.settle(90)
    assert (world.status()["replicas"], world.status().get("waiting", "")) == (3, "")


async def test_a_type_that_is_refused_keeps_no_other_type_from_being_made() -> None:
    world = World()
    world.start()
    world.api.refuse = lambda kind, manifest: (
        "Required value" if kind == PODS and "-aa-" in manifest["metadata"]["name"] else None
    )
    world.apply(jobs.manifest(replicaSpecs={"Aa": {"template": jobs.template()}, **jobs.workers(2)}))
    await world.settle()
    assert list(world.pods()) == ["imagenet-worker-0", "imagenet-worker-1"]


def quota(world: World, pods: int) -> Callable[[Kind, Manifest], str | None]:
    """Return the refusal of every pod more than so many."""

    def refuse(kind: Kind, manifest: Manifest) -> str | None:
        there = world.api.names(PODS)
        more = kind == PODS and len(there) >= pods and manifest["metadata"]["name"] not in there
        return f"exceeded quota: pods, used: {pods}" if more else None

    return refuse


async def test_pods_under_a_quota_are_the_minimum_and_the_lowest_indexes_and_only_they_are_counted() -> None:
    world = World()
    world.start()
    world.api.refuse = quota(world, 2)
    world.apply(jobs.manifest(replicas=8, low=1, high=8))
    await world.settle(300)
    assert list(world.pods()) == ["imagenet-worker-0", "imagenet-worker-1"]
    assert world.status()["replicas"] == 2
    assert world.status()["replicaStatuses"]["Worker"]["pending"] == 0
    world.api.refuse = lambda kind, manifest: None
    await world.settle(120)
    assert len(world.pods()) == 8


async def test_a_core_worker_gets_the_place_of_a_surge_worker_in_the_quota() -> None:
    world = await World.running(replicas=4, low=1, high=4)
    world.kill("imagenet-worker-0")
    world.api.refuse = quota(world, 3)
    await world.settle(120)
    assert list(world.pods()) == ["imagenet-worker-0", "imagenet-worker-1", "imagenet-worker-2"]


async def test_a_job_that_cannot_be_read_says_what_to_mend_and_is_left_alone() -> None:
    world = World()
    world.start()
    broken = jobs.manifest("broken")
    del broken["spec"]["replicaSpecs"]["Worker"]["template"]
    world.apply(broken)
    world.apply(jobs.manifest("good"))
    await world.settle(600)
    (condition, *_) = world.status("broken")["conditions"]
    assert (condition["type"], condition["status"]) == ("Created", "False")
    assert condition["reason"] == names.Reason.INVALID
    assert "template" in condition["message"]
    assert world.events(names.Reason.INVALID) == [condition["message"]]
    assert len([call for call in world.api.calls if call.name == "broken" and call.verb == "patch"]) == 1
    assert list(world.pods()) == ["good-worker-0", "good-worker-1"]
    world.edit("broken", replicaSpecs={"Worker": {"template": jobs.template()}})
    await world.settle()
    assert len(world.pods()) == 4
    assert "Created" in world.conditions("broken")


async def test_a_job_whose_status_is_refused_says_so_in_an_event_and_does_not_stop_other_jobs() -> None:
    beyond = "replicaSpecs.Worker.replicas (7) must not be above maxReplicas (3)."
    world = World()
    world.start()
    for name in ("old", "good"):
        world.apply(jobs.manifest(name))
    world.api.refuse = lambda kind, manifest: beyond if manifest["metadata"]["name"] == "old" else None
    await world.settle(300)
    assert world.status("good")["state"] == "Running"
    assert world.events(names.Reason.INVALID) == [beyond]
    assert len([call for call in world.api.calls if call.name == "old" and call.verb == "patch"]) <= 30
    world.api.refuse = lambda kind, manifest: None
    await world.settle(120)
    assert world.status("old")["state"] == "Running"


def test_a_problem_that_is_told_already_is_not_told_again() -> None:
    manifest = jobs.manifest()
    manifest["metadata"]["generation"] = 3
    at = virtual.BEGINNING
    status = invalid_status(manifest, "spec.x: wrong", at)
    manifest["status"] = status
    assert invalid_status(manifest, "spec.x: wrong", at + timedelta(hours=1)) == status
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Created": "False",
        "Ready": "False",
        "Reconciling": "False",
        "Stalled": "True",
    }
    (changed, *_) = invalid_status(manifest, "spec.y: wrong", at + timedelta(hours=1))["conditions"]
    assert changed["lastTransitionTime"] == status["conditions"][0]["lastTransitionTime"]
    assert changed["lastUpdateTime"] != status["conditions"][0]["lastUpdateTime"]
