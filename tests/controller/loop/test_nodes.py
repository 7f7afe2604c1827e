"""The controller as a whole where Karpenter brings the nodes, and takes them away."""

from __future__ import annotations

import asyncio

import pytest

from tests.controller.fakes import jobs, karpenter, virtual
from tests.controller.fakes.api import WRITES, Call, Fault, KilledAtWrite
from tests.controller.fakes.world import NODE, World
from tidewater.contract.exit_codes import DEVICE_FAILED
from tidewater.controller.act import stamp
from tidewater.controller.cluster.client import NODE_CLAIMS, NODE_CLASSES, NODE_POOLS, Ref
from tidewater.kube.errors import Conflict, Refused
from tidewater.kube.kinds import EVENTS, NODES


async def test_jobs_that_wait_for_room_cost_one_watch_of_each_of_karpenters_kinds_and_then_no_request() -> None:
    world = World(rooms=10)
    world.start()
    for number in range(50):
        world.apply(jobs.manifest(f"job-{number}"))
    await world.settle(120)
    for kind in (EVENTS, NODE_CLAIMS, NODE_POOLS, NODE_CLASSES):
        calls = [call.verb for call in world.api.calls if call.kind == kind and call.verb not in WRITES]
        assert calls == ["watch"], kind
    before = len(world.api.calls)
    await world.settle(3600)
    assert [str(call) for call in world.api.calls[before:]] == []


async def test_a_job_says_why_karpenter_brings_no_node_until_its_worker_has_room() -> None:
    world = World(rooms=1)
    world.start()
    world.apply(jobs.manifest())
    await world.settle()
    assert world.status()["waiting"] == "Unschedulable"
    said = {
        "metadata": {"name": "said", "namespace": jobs.NAMESPACE},
        "involvedObject": {
            "kind": "Pod",
            "namespace": jobs.NAMESPACE,
            "name": "imagenet-worker-1",
            "uid": world.uids()["imagenet-worker-1"],
        },
        "source": {"component": "karpenter"},
        "reason": "FailedScheduling",
        "message": "Failed to schedule pod, no instance type has enough resources",
        "lastTimestamp": stamp(virtual.now()),
    }
    world.api.create(EVENTS, said)
    await world.settle()
    (running,) = [each for each in world.status()["conditions"] if each["type"] == "Running"]
    assert running["message"].endswith(" Karpenter: no instance type has enough resources.")
    assert (world.status()["state"], world.status()["waiting"]) == ("Running", "FailedScheduling")
    world.rooms = 2
    world.add_node("node-1")
    await world.settle()
    assert "waiting" not in world.status()


async def test_a_job_says_why_karpenter_can_bring_no_node_at_all_until_it_can() -> None:
    world = World(rooms=1)
    world.start()
    world.api.create(NODE_POOLS, karpenter.pool(*karpenter.POOL_UNREADY))
    world.api.create(NODE_CLASSES, karpenter.node_class(*karpenter.NO_SUBNETS))
    world.apply(jobs.manifest())
    await world.settle()
    (running,) = [each for each in world.status()["conditions"] if each["type"] == "Running"]
    assert running["message"].endswith("SubnetsReady: SubnetSelector did not match any Subnets.")
    assert world.status()["waiting"] == "SubnetsNotFound"
    ready = {"status": {"conditions": [karpenter.READY]}}
    for kind in (NODE_CLASSES, NODE_POOLS):
        world.api.patch(Ref(kind, None, "workers"), ready, "status")
    await world.settle()
    assert world.status()["waiting"] == "Unschedulable"


async def test_the_workers_of_a_node_leave_as_soon_as_karpenter_deletes_it() -> None:
    world = await World.running()
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    node = {"metadata": {"deletionTimestamp": stamp(virtual.now())}, "spec": {"taints": [taint]}}
    world.api.patch(Ref(NODES, None, NODE), node)
    await asyncio.sleep(0.1)
    assert {str(call) for call in world.api.calls if call.verb == "delete"} == {
        "delete pods imagenet-worker-0",
        "delete pods imagenet-worker-1",
    }


OWN = {"key": "mine", "effect": "NoSchedule"}


async def failing(fault: Fault = lambda call, moment: None, times: int = 3) -> World:
    """Return a cluster with a job that lost a worker so many times by an error of a device of the only node."""
    world = World(taints_nodes=True)
    world.api.patch(Ref(NODES, None, NODE), {"spec": {"taints": [OWN]}})
    world.start(fault)
    world.apply(jobs.manifest(backoffLimit=100))
    await world.settle()
    for _ in range(times):
        world.exit("imagenet-worker-1", DEVICE_FAILED)
        await world.settle(400)
    return world


def taints(world: World) -> list[str]:
    return [each["key"] for each in world.api.get(NODES, "", NODE)["spec"]["taints"]]


async def test_a_node_on_which_devices_fail_is_tainted_at_the_third_time_and_not_again_when_a_person_removes_it() -> (
    None
):
    world = await failing(times=2)
    assert taints(world) == ["mine"]
    world.exit("imagenet-worker-1", DEVICE_FAILED)
    await world.settle()
    assert taints(world) == ["mine", "tidewater.dev/device-failing"]
    assert len(world.events("DeviceFailing")) == len(world.events("TaintedNode")) == 1
    world.api.patch(Ref(NODES, None, NODE), {"spec": {"taints": [OWN]}})
    await world.settle(3600)
    assert taints(world) == ["mine"]
    world.exit("imagenet-worker-1", DEVICE_FAILED)
    await world.settle()
    assert taints(world) == ["mine", "tidewater.dev/device-failing"]


async def test_a_refused_taint_holds_nothing_else_up() -> None:
    def refuse(call: Call, moment: str) -> None:
        if (call.verb, call.kind) == ("patch", NODES):
            raise Refused("nodes is forbidden", status=403)

    world = await failing(refuse)
    assert (taints(world), world.status()["nodes"][NODE]["deviceFailures"]) == (["mine"], 3)
    assert set(world.pods().values()) == {"Running"}
    assert "nodes is forbidden" in world.events("FailedTaintNode")
    before = len(world.api.calls)
    await world.settle(600)
    assert len(world.api.calls) - before < 60


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(8))
async def test_a_controller_that_is_killed_at_any_write_or_meets_a_conflict_taints_it_all_the_same(
    number: int, moment: str
) -> None:
    killed, conflicts = KilledAtWrite(number, moment), iter([Conflict("the node has been modified", status=409)])

    def kill(call: Call, when: str) -> None:
        if (call.verb, call.kind, when) == ("patch", NODES, "before") and (error := next(conflicts, None)):
            raise error
        killed(call, when)

    world = await failing(times=2)
    for each in world.replicas:
        await each.stop()
    world.exit("imagenet-worker-1", DEVICE_FAILED)
    first = world.start(kill)
    await world.settle(5)
    await first.stop()
    world.start()
    await world.settle(400)
    assert taints(world) == ["mine", "tidewater.dev/device-failing"]
    status = world.status()["nodes"][NODE]
    assert (status["deviceFailures"], status["tainted"]) == (3, True)
