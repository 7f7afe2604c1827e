"""Workers that are numbered on and on: no number is given twice, and none is used up for nothing."""

from __future__ import annotations

from typing import Any

from tests.controller.fakes import jobs
from tests.controller.fakes.api import Call, Killed
from tests.controller.fakes.world import World
from tidewater.controller.cluster.client import Manifest
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Unavailable
from tidewater.kube.kinds import PODS, Kind

SPEC: dict[str, Any] = {"high": 5, "replicaSpecs": jobs.workers(4, podNames="Successive")}


def workers(*numbers: int) -> list[str]:
    return [f"imagenet-worker-{number}" for number in numbers]


def next_index(world: World) -> int:
    found: int = world.status()["replicaStatuses"][names.WORKER]["nextIndex"]
    return found


def tiers(world: World) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["labels"][names.LABEL_TIER] for pod in world.api.all(PODS)}


async def test_the_successor_of_a_deleted_worker_has_the_next_number_and_its_tier() -> None:
    world = await World.running(**SPEC)
    assert (list(world.pods()), next_index(world)) == (workers(0, 1, 2, 3), 4)
    for number in (0, 2):
        world.kill(f"imagenet-worker-{number}")
        await world.settle()
    assert (list(world.pods()), next_index(world)) == (workers(1, 3, 4, 5), 6)
    core = [name for name, tier in tiers(world).items() if tier == names.CORE]
    assert core == workers(4)
    before = len(world.api.calls)
    await world.settle(600)
    assert not [call for call in world.api.calls[before:] if call.verb in ("create", "patch")]


async def test_a_number_is_reserved_before_its_pod_is_made() -> None:
    world = await World.running(**SPEC)
    calls = [call for call in world.api.calls if call.kind in (JOBS, PODS) and call.verb in ("create", "patch")]
    assert [call.verb for call in calls[:5]] == ["patch", "create", "create", "create", "create"]
    assert calls[0].body is not None
    assert calls[0].body["status"]["replicaStatuses"][names.WORKER]["nextIndex"] == 4


async def test_a_pod_that_was_made_and_lost_while_no_controller_ran_keeps_its_number_for_itself() -> None:
    def killed(call: Call, moment: str) -> None:
        if call.verb == "create" and call.kind == PODS and call.name == "imagenet-worker-4" and moment == "after":
            raise Killed

    world = World()
    first = world.start(killed)
    world.apply(jobs.manifest(**SPEC))
    await world.settle()
    world.kill("imagenet-worker-0")
    await world.until(lambda: first.client.dead is not None)
    world.kill("imagenet-worker-4")
    await world.settle()
    await first.stop()
    assert list(world.pods()) == workers(1, 2, 3)
    world.start()
    await world.settle()
    assert list(world.pods()) == workers(1, 2, 3, 5)
    assert len(set(world.api.added(PODS))) == len(world.api.added(PODS)) == 6


async def test_a_quota_uses_up_no_numbers() -> None:
    world = World()

    def refuse(kind: Kind, manifest: Manifest) -> str | None:
        full = kind == PODS and len(world.api.names(PODS)) >= 3
        return "exceeded quota: pods" if full else None

    world.start()
    world.api.refuse = refuse
    world.apply(jobs.manifest(**SPEC))
    await world.settle(900)
    assert list(world.pods()) == workers(0, 1, 2)
    assert next_index(world) == 4
    assert "exceeded quota" in str(world.status()["conditions"])
    world.api.refuse = lambda kind, manifest: None
    await world.settle(600)
    assert list(world.pods()) == workers(0, 1, 2, 3)


async def test_a_job_that_was_made_anew_begins_with_0_when_the_names_of_the_former_are_free() -> None:
    world = World()
    world.apply(jobs.manifest(**SPEC))
    owner = {"kind": names.KIND, "name": "imagenet", "uid": "a former job", "controller": True}
    labels = dict(names.pod_labels("imagenet", names.WORKER, 1))
    meta = {"name": "imagenet-worker-1", "namespace": jobs.NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    world.api.create(PODS, {"metadata": meta, "spec": {}})
    world.start()
    await world.settle(60)
    assert world.orphans() == workers(1)
    world.kill("imagenet-worker-1")
    await world.settle(60)
    assert list(world.pods()) == workers(0, 1, 2, 3)
    assert next_index(world) == 4


async def test_a_creation_whose_answer_is_lost_may_have_used_its_number() -> None:
    lost: list[str] = []

    def fault(call: Call, moment: str) -> None:
        if call.verb == "create" and call.name == "imagenet-worker-2" and moment == "before" and not lost:
            lost.append(call.name)
            raise Unavailable("the connection was closed")

    world = World()
    world.start(fault)
    world.apply(jobs.manifest(**SPEC))
    await world.settle(120)
    assert list(world.pods()) == workers(0, 1, 3, 4)
