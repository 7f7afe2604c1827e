"""One job with many pods costs the API server no more than its pods, and a write of the status now and then."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.controller.fakes import jobs
from tests.controller.fakes.world import World
from tidewater.controller import loop
from tidewater.controller.act import AT_A_TIME
from tidewater.controller.cluster.client import Ref
from tidewater.controller.decide.actions import Decision
from tidewater.controller.decide.decision import decide
from tidewater.elasticjob import names
from tidewater.kube.kinds import PODS

MANY = 120
THOUSAND = 1000
MOST_DECISIONS = 30
"""While pods start within ten seconds: news of so many is put together for a second, of a small job for 0.1 s."""


async def large(pods: int = MANY) -> World:
    world = World(rooms=10 * MANY)
    world.start()
    await world.settle(1)
    world.apply(jobs.manifest(replicas=pods, high=2 * pods, backoffLimit=10 * pods))
    await world.settle()
    return world


async def test_a_resize_by_half_writes_the_status_as_often_as_one_by_a_single_pod() -> None:
    found = dict[int, Counter[str]]()
    for pods in (2, MANY):
        world = await large(pods)
        before = world.writes()
        world.scale(pods * 3 // 2)
        await world.settle()
        world.scale(pods)
        await world.settle()
        found[pods] = world.writes() - before
        assert world.status()["replicas"] == pods
        assert found[pods]["create pods"] == found[pods]["delete pods"] == pods // 2
    other = [{key: n for key, n in each.items() if not key.endswith(" pods")} for each in found.values()]
    assert other[0] == other[1]


async def test_workers_that_end_one_after_another_are_written_down_together() -> None:
    """Ten writes a second at most, whatever the number of pods: it was one for each pod."""
    world = await large()
    before = world.writes()["patch elasticjobs"]
    for index in range(1, MANY):
        world.exit(f"imagenet-worker-{index}", 0)
        await asyncio.sleep(0.02)
    await world.settle(1)
    assert world.status()["replicaStatuses"]["Worker"]["completedIndexes"] == f"1-{MANY - 1}"
    seconds = MANY * 0.02 + 1
    assert world.writes()["patch elasticjobs"] - before <= 10 * seconds


async def test_of_a_job_with_many_pods_that_are_all_refused_only_a_few_are_tried_each_time() -> None:
    world = World(rooms=MANY)
    world.start()
    world.api.refuse = lambda kind, manifest: "denied the request" if kind == PODS else None
    world.apply(jobs.manifest(replicas=MANY, high=MANY))
    await world.settle(60)
    tries = Counter(call.name for call in world.api.calls if call.verb == "create" and call.kind == PODS)
    assert len(tries) == AT_A_TIME
    world.api.refuse = lambda kind, manifest: None
    await world.settle(120)
    assert set(world.pods().values()) == {"Running"}
    assert len(world.pods()) == MANY


async def test_status_and_events_of_many_failures_stay_small_and_say_which_pods_they_are_about() -> None:
    world = await large()
    assert world.events(names.Reason.SUCCESSFUL_CREATE_POD) == [f"Created pods: imagenet-worker-[0-{MANY - 1}]"]
    for index in range(MANY):
        world.exit(f"imagenet-worker-{index}", 130)
    await world.settle(5)
    assert len(world.status()["counted"]) == MANY
    # A thousand pods have 36 characters of their uid each: 60 kB of the 1.5 MiB that etcd takes in one request.
    assert len(json.dumps(world.status())) < MANY * 60 + 3000


async def test_a_pod_of_a_thousand_costs_fewer_calls_than_one_of_a_small_job_and_news_is_decided_on_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decisions = Counter[str]()

    def counted(*given: Any) -> Decision:
        decisions["all"] += 1
        return decide(*given)

    monkeypatch.setattr(loop, "decide", counted)
    small = World()
    small.start()
    for number in range(20):
        small.apply(jobs.manifest(f"small-{number}", replicas=2, high=2))
    await small.settle()
    assert len(small.pods()) == 40

    decisions.clear()
    large = World(rooms=0)
    large.start()
    large.apply(jobs.manifest(replicas=THOUSAND, high=2 * THOUSAND))
    await started(large, range(THOUSAND))
    assert large.status()["replicaStatuses"]["Worker"]["active"] == THOUSAND
    assert large.writes()["create pods"] == THOUSAND
    assert large.writes().total() / THOUSAND < small.writes().total() / 40
    assert decisions["all"] < MOST_DECISIONS

    before = large.writes()
    decisions.clear()
    large.scale(THOUSAND * 3 // 2)
    await started(large, range(THOUSAND, THOUSAND * 3 // 2))
    assert large.status()["replicaStatuses"]["Worker"]["active"] == THOUSAND * 3 // 2
    found = large.writes() - before
    assert found["create pods"] == THOUSAND // 2
    assert found.total() < THOUSAND // 2 + MOST_DECISIONS
    assert decisions["all"] < MOST_DECISIONS


async def started(world: World, pods: Sequence[int]) -> None:
    """Let these pods start within ten seconds, a few at a time."""
    await world.settle(5)
    for number, index in enumerate(pods):
        ref = Ref(PODS, jobs.NAMESPACE, f"imagenet-worker-{index}")
        world.api.patch(ref, {"status": {"phase": "Running", "conditions": []}}, "status")
        if number % (len(pods) // 100) == 0:
            await asyncio.sleep(0.1)
    await world.settle()
