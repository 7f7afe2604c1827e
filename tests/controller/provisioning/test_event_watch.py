"""When Karpenter's events are watched, and for which pods the explanation changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.controller.fakes import virtual
from tests.controller.fakes.api import Api, Call
from tests.controller.fakes.karpenter import (
    KEY,
    LAUNCHED,
    LIMIT,
    NO_CAPACITY,
    NO_OFFERING,
    NO_QUOTA,
    NO_SUBNETS,
    POOL_UNREADY,
    READY,
    REFUSED,
    START,
    UNTRIED,
    at,
    claim,
    event,
    failed,
    node_class,
    nominated,
    pool,
    short,
)
from tidewater.controller.cluster.client import NODE_CLAIMS, NODE_CLASSES, NODE_POOLS, Ref
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.provisioning.conditions import NOT_READY
from tidewater.controller.provisioning.event_watch import REMEMBERED, EventWatch
from tidewater.controller.provisioning.messages import LIMITS, Explanation
from tidewater.elasticjob.names import NODE_STARTING
from tidewater.kube.errors import ClusterError, NotFound, Refused
from tidewater.kube.kinds import EVENTS, Kind

KINDS = (EVENTS, NODE_CLAIMS, NODE_POOLS, NODE_CLASSES)
UID = f"uid-{KEY.name}"


class Desk:
    """A watch on a fake API server, and the pods with an explanation that may have changed."""

    def __init__(self, error: Callable[[Kind], ClusterError | None] = lambda kind: None) -> None:
        self.api = Api()
        self.changed: list[str] = []
        self.reported: list[str] = []
        self.tries = Counter[Kind]()

        def fault(call: Call, moment: str) -> None:
            self.tries[call.kind] += moment == "before"
            if moment == "before" and (found := error(call.kind)):
                raise found

        self.hearing = EventWatch(
            self.api.client(fault),
            (),
            lambda key, uid: self.changed.append(str(key)),
            lambda plural, error: self.reported.append(plural),
        )
        self.task = asyncio.create_task(self.hearing.run())

    def say(self, *events: dict[str, Any]) -> None:
        for each in events:
            self.api.create(EVENTS, each)

    def wait(self, waits: bool = True) -> None:
        self.hearing.waits(KEY, UID, waits)

    def put(self, kind: Kind, manifest: dict[str, Any]) -> None:
        """Create an object, or replace its status."""
        name = manifest["metadata"]["name"]
        if name in self.api.names(kind):
            self.api.patch(Ref(kind, None, name), {"status": manifest["status"]}, "status")
        else:
            self.api.create(kind, manifest)

    def explanation(self, seconds: float = 60) -> str:
        return self.hearing.explanation(UID, at(seconds)).reason

    def why(self, seconds: float = 60) -> str:
        return self.hearing.explanation(UID, at(seconds)).why

    def watches(self, kind: Kind) -> int:
        return sum(call.verb == "watch" and call.kind == kind for call in self.api.calls)


async def test_nothing_is_asked_while_no_pod_waits() -> None:
    desk = Desk()
    desk.say(failed(LIMIT))
    await asyncio.sleep(1000)
    assert desk.api.calls == []


async def test_while_pods_wait_one_watch_of_each_kind_hears_also_what_was_said_before() -> None:
    desk = Desk()
    desk.say(failed(LIMIT))
    for number in range(1000):
        desk.hearing.waits(Key("training", f"pod-{number}"), f"uid-{number}", True)
    desk.wait()
    await asyncio.sleep(10)
    assert (desk.explanation(), desk.changed) == (LIMITS, [str(KEY)])
    assert sorted(map(str, desk.api.calls)) == sorted(f"watch {kind.plural} " for kind in KINDS)


def test_a_shortage_reaches_the_pods_of_its_node_claim_whichever_event_comes_first() -> None:
    async def main(*events: dict[str, Any]) -> str:
        desk = Desk()
        desk.wait()
        await asyncio.sleep(1)
        for each in events:
            desk.say(each)
            await asyncio.sleep(1)
        return desk.explanation()

    events = (nominated("workers-x7k2p"), short(NO_QUOTA, 1), short(NO_CAPACITY, 2, claim="other-1"))
    assert virtual.run(main(*events)) == "VcpuLimitExceeded"
    assert virtual.run(main(*reversed(events))) == "VcpuLimitExceeded"


async def test_other_events_and_those_of_others_change_nothing() -> None:
    desk = Desk()
    desk.wait()
    desk.say(
        {**failed(LIMIT), "source": {"component": "default-scheduler"}},
        event("Unconsolidatable", "not empty", kind="NodeClaim", name="workers-a"),
        event("Evicted", "Evicted pod: Underutilized"),
    )
    await asyncio.sleep(5)
    assert (desk.explanation(), desk.changed) == ("", [])


async def test_a_pod_that_has_found_room_is_forgotten_and_the_watch_ends() -> None:
    desk = Desk()
    desk.wait()
    desk.say(failed(LIMIT))
    await asyncio.sleep(5)
    desk.wait(False)
    assert desk.explanation() == ""
    desk.say(event("Evicted", "anything", 1))  # the next event ends the watch
    await asyncio.sleep(1000)
    assert [desk.watches(kind) for kind in KINDS] == [1, 1, 1, 1]


async def test_a_watch_that_is_too_old_begins_with_the_events_that_exist() -> None:
    desk = Desk()
    desk.wait()
    desk.say(nominated("workers-a"))
    await asyncio.sleep(5)
    desk.api.down = True
    desk.api.restart()
    await asyncio.sleep(5)
    desk.say(failed(LIMIT, 30))
    desk.api.delete(Ref(EVENTS, KEY.namespace, f"{KEY.name}.Nominated.0"))
    desk.api.compact()
    desk.api.down = False
    await asyncio.sleep(30)
    assert desk.explanation() == LIMITS


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        pytest.param(Refused("forbidden", status=403), sorted(2 * [kind.plural for kind in KINDS]), id="no-right"),
        pytest.param(NotFound("the server could not find the requested resource", status=404), [], id="no-karpenter"),
    ],
)
async def test_what_may_not_be_watched_or_does_not_exist_is_tried_again_after_minutes(
    error: ClusterError, reported: list[str]
) -> None:
    desk = Desk(lambda kind: error)
    desk.wait()
    await asyncio.sleep(400)
    assert sorted(desk.reported) == reported
    assert desk.tries == dict.fromkeys(KINDS, 2)


async def test_a_node_claim_that_the_cloud_refuses_says_why_until_it_has_an_instance() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_CLAIMS, claim("workers-a", UNTRIED))
    desk.say(nominated("workers-a"))
    await asyncio.sleep(5)
    assert desk.explanation() == NODE_STARTING
    desk.put(NODE_CLAIMS, claim("workers-a", REFUSED))
    await asyncio.sleep(5)
    assert (desk.explanation(), desk.why()) == ("Unauthorized", REFUSED["message"])
    desk.put(NODE_CLAIMS, claim("workers-a", LAUNCHED))
    await asyncio.sleep(5)
    assert desk.explanation() == NODE_STARTING
    assert desk.changed == 3 * [str(KEY)]


async def test_the_next_node_claim_has_to_last_before_a_node_is_on_its_way_again() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_CLAIMS, claim("workers-a", REFUSED))
    desk.say(nominated("workers-a"))
    await asyncio.sleep(5)
    desk.api.delete(Ref(NODE_CLAIMS, None, "workers-a"))
    desk.put(NODE_CLAIMS, claim("workers-b", UNTRIED))
    desk.say(nominated("workers-b", 300))
    await asyncio.sleep(5)
    assert desk.explanation(301) == "Unauthorized"
    assert desk.explanation(320) == NODE_STARTING


async def test_a_node_claim_that_was_deleted_brings_no_node() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_CLAIMS, claim("workers-a", UNTRIED))
    desk.say(nominated("workers-a"))
    await asyncio.sleep(5)
    desk.api.delete(Ref(NODE_CLAIMS, None, "workers-a"))
    await asyncio.sleep(5)
    assert (desk.explanation(), desk.changed) == ("", 2 * [str(KEY)])


async def test_if_no_node_pool_is_ready_its_node_class_says_why() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_POOLS, pool(*POOL_UNREADY))
    await asyncio.sleep(5)
    assert desk.why() == ("NodePool workers isn't ready: NodeClassReady: SubnetsReady=False, ValidationSucceeded=False")
    desk.put(NODE_CLASSES, node_class(*NO_SUBNETS))
    await asyncio.sleep(5)
    assert (desk.explanation(), desk.why()) == (
        "SubnetsNotFound",
        "EC2NodeClass workers isn't ready: SubnetsReady: SubnetSelector did not match any Subnets",
    )
    desk.put(NODE_CLASSES, node_class(READY))
    desk.put(NODE_POOLS, pool(READY))
    await asyncio.sleep(5)
    assert desk.explanation() == ""
    assert set(desk.changed) == {str(KEY)}


async def test_a_node_pool_that_is_not_ready_is_named_beside_why_the_others_do_not_fit() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_POOLS, pool(READY, name="others"))
    desk.put(NODE_POOLS, pool(*POOL_UNREADY))
    await asyncio.sleep(5)
    assert desk.explanation() == ""
    desk.say(failed(NO_OFFERING))
    await asyncio.sleep(5)
    assert desk.explanation() == "FailedScheduling"
    assert desk.why().startswith("NodePool workers isn't ready: NodeClassReady: ")
    assert "no instance type has the required offering" in desk.why()


async def test_node_pools_that_bring_no_nodes_for_pods_do_not_count() -> None:
    desk = Desk()
    desk.wait()
    desk.put(NODE_POOLS, pool(READY, name="static", replicas=3))
    await asyncio.sleep(5)
    assert desk.explanation() == ""
    desk.put(NODE_POOLS, pool(*POOL_UNREADY))
    await asyncio.sleep(5)
    assert desk.explanation() == NOT_READY
    desk.api.delete(Ref(NODE_POOLS, None, "workers"))
    await asyncio.sleep(5)
    assert desk.explanation() == ""


async def test_only_the_last_pods_are_remembered() -> None:
    desk = Desk()
    desk.hearing.waits(Key("training", "other"), "uid", True)
    for number in range(REMEMBERED + 1):
        desk.say(event("FailedScheduling", LIMIT, name=f"pod-{number}"))
    await asyncio.sleep(5)
    assert desk.hearing.explanation("uid-pod-0", START) == Explanation()
    assert desk.hearing.explanation(f"uid-pod-{REMEMBERED}", START).reason == LIMITS
