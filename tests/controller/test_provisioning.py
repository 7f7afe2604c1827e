"""What is made of Karpenter's events, and when they are watched."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.cluster.client import EVENTS, Ref
from controller.cluster.errors import ClusterError, Refused
from controller.cluster.mirror import Key
from controller.decide.observed import NODE_STARTING
from controller.provisioning import (
    LIMITS,
    REMEMBERED,
    SETTLE,
    SHORTAGE,
    STALE,
    Hearing,
    Record,
    Said,
    Told,
    heard,
    latest,
    shortage,
    told,
)
from tests.controller.fakes import virtual
from tests.controller.fakes.api import Api, Call

START = virtual.BEGINNING
KEY = Key("training", "digits-worker-1")

# Karpenter v1.14.0's words.
NO_OFFERING = (
    "Failed to schedule pod, incompatible requirements, no instance type has the required offering,"
    ' requirements=karpenter.sh/capacity-type In [spot], resources={"pods":"3"}'
)
LIMIT = "Failed to schedule pod, node limits have been exhausted for nodepool (NodePool=workers)"
NO_CAPACITY = (
    "NodeClaim workers-x7k2p event: insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We"
    " currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a)."
)
NO_QUOTA = (
    "NodeClaim workers-x7k2p event: insufficient capacity, with fleet error(s), VcpuLimitExceeded: You have requested"
    " more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket"
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def event(reason: str, message: str, seconds: float = 0, kind: str = "Pod", name: str = KEY.name) -> dict[str, Any]:
    time = at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = KEY.namespace if kind == "Pod" else ""
    return {
        "metadata": {"name": f"{name}.{reason}.{seconds}", "namespace": namespace or "default"},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "source": {"component": "karpenter"},
    }


def failed(message: str, seconds: float = 0) -> dict[str, Any]:
    return event("FailedScheduling", message, seconds)


def nominated(claim: str, seconds: float = 0) -> dict[str, Any]:
    return event("Nominated", f"Pod should schedule on: nodeclaim/{claim}", seconds)


def short(message: str, seconds: float = 0, claim: str = "workers-x7k2p") -> dict[str, Any]:
    return event("InsufficientCapacityError", message, seconds, "NodeClaim", claim)


def after(*events: dict[str, Any], shortages: Said | None = None) -> Record:
    """Return what is known of the pod after events about it, and a shortage for its NodeClaim."""
    record = Record(key=KEY)
    for each in events:
        record = heard(record, each, shortages)
    return record


def test_a_pod_of_which_karpenter_says_nothing_has_no_cause() -> None:
    assert told(Record(key=KEY), START) == Told()


def test_an_instance_type_that_does_not_exist_is_told_in_karpenters_words() -> None:
    found = told(after(failed(NO_OFFERING)), at(60))
    assert (found.reason, found.why) == ("FailedScheduling", NO_OFFERING.removeprefix("Failed to schedule pod, "))


def test_a_limit_of_the_node_pool_is_told_apart() -> None:
    assert told(after(failed(LIMIT)), at(60)).reason == LIMITS


@pytest.mark.parametrize(
    ("message", "code"),
    [
        pytest.param(NO_CAPACITY, "InsufficientInstanceCapacity", id="capacity"),
        pytest.param(NO_QUOTA, "VcpuLimitExceeded", id="quota"),
        pytest.param(
            "NodeClaim workers-x7k2p event: all requested instance types were unavailable during launch",
            "InsufficientCapacityError",
            id="no-code",
        ),
    ],
)
def test_a_shortage_is_named_by_ec2s_first_error_code(message: str, code: str) -> None:
    found = shortage(short(message)).told
    assert found.reason == code
    assert found.why == message.removeprefix("NodeClaim workers-x7k2p event: ")


def test_a_node_is_on_its_way_from_when_a_node_claim_was_made() -> None:
    assert told(after(nominated("workers-a")), START) == Told(NODE_STARTING)
    assert told(after(failed(LIMIT), nominated("workers-a", 60)), at(60) + SETTLE) == Told(NODE_STARTING)


def test_after_a_failed_attempt_the_next_one_has_to_last_before_it_is_told() -> None:
    lacks = shortage(short(NO_QUOTA, 1))
    record = after(nominated("workers-x7k2p"), nominated("workers-b", 200), shortages=lacks)
    soon, later = told(record, at(202)), told(record, at(200) + SETTLE)
    assert (soon.reason, soon.until) == ("VcpuLimitExceeded", at(200) + SETTLE)
    assert later == Told(NODE_STARTING)


def test_a_shortage_says_more_than_that_there_is_no_offering_while_karpenter_does_not_try_it() -> None:
    lacks = shortage(short(NO_QUOTA, 1))
    recent = after(nominated("workers-x7k2p"), failed(NO_OFFERING, 100), shortages=lacks)
    assert told(recent, at(101)).reason == "VcpuLimitExceeded"
    long_ago = after(nominated("workers-x7k2p"), failed(LIMIT, 2 + SHORTAGE.total_seconds()), shortages=lacks)
    assert told(long_ago, at(3) + SHORTAGE).reason == LIMITS


def test_what_karpenter_no_longer_repeats_is_not_told() -> None:
    assert told(after(failed(LIMIT)), START + STALE).reason == LIMITS
    assert told(after(failed(LIMIT)), START + STALE + timedelta(seconds=1)) == Told()


def test_events_may_come_in_any_order() -> None:
    events = [nominated("workers-a"), failed(LIMIT, 30), nominated("workers-b", 60), failed(NO_OFFERING, 90)]
    assert after(*events) == after(*reversed(events))


def test_the_same_cause_keeps_its_words() -> None:
    first, second = (Said(at(seconds), Told("VcpuLimitExceeded", words)) for seconds, words in ((0, "a"), (200, "b")))
    assert latest(first, second) == latest(second, first) == Said(at(200), Told("VcpuLimitExceeded", "a"))
    other = Said(at(300), Told("InsufficientInstanceCapacity", "c"))
    assert latest(second, other) == other


class Desk:
    """A hearing of a fake API server, and the pods of which something else may be told."""

    def __init__(self, api: Api | None = None, forbidden: bool = False) -> None:
        self.api = api or Api()
        self.changed: list[str] = []
        self.reported: list[ClusterError | None] = []

        def fault(call: Call, moment: str) -> None:
            if forbidden and moment == "before":
                raise Refused("events is forbidden", status=403)

        self.hearing = Hearing(
            self.api.client(fault),
            None,
            lambda key, uid: self.changed.append(str(key)),
            lambda plural, error: self.reported.append(error),
        )
        self.task = asyncio.create_task(self.hearing.run())

    def say(self, *events: dict[str, Any]) -> None:
        for each in events:
            self.api.create(EVENTS, each)

    def told(self, seconds: float = 60) -> str:
        return self.hearing.told(f"uid-{KEY.name}", at(seconds)).reason

    @property
    def watches(self) -> int:
        return sum(call.verb == "watch" for call in self.api.calls)


def test_nothing_is_asked_while_no_pod_waits() -> None:
    async def main() -> None:
        desk = Desk()
        desk.say(failed(LIMIT))
        await asyncio.sleep(1000)
        assert desk.api.calls == []

    virtual.run(main())


def test_while_a_pod_waits_one_watch_hears_also_what_was_said_before() -> None:
    async def main() -> None:
        desk = Desk()
        desk.say(failed(LIMIT))
        for number in range(1000):
            desk.hearing.waits(f"uid-{number}", True)
        desk.hearing.waits(f"uid-{KEY.name}", True)
        await asyncio.sleep(10)
        assert (desk.told(), desk.changed, desk.watches) == (LIMITS, [str(KEY)], 1)
        assert {call.verb for call in desk.api.calls} == {"watch"}

    virtual.run(main())


def test_a_shortage_reaches_the_pods_of_its_node_claim_whichever_event_comes_first() -> None:
    async def main(*events: dict[str, Any]) -> str:
        desk = Desk()
        desk.hearing.waits(f"uid-{KEY.name}", True)
        await asyncio.sleep(1)
        for each in events:
            desk.say(each)
            await asyncio.sleep(1)
        return desk.told()

    events = (nominated("workers-x7k2p"), short(NO_QUOTA, 1), short(NO_CAPACITY, 2, claim="other-1"))
    assert virtual.run(main(*events)) == "VcpuLimitExceeded"
    assert virtual.run(main(*reversed(events))) == "VcpuLimitExceeded"


def test_other_events_and_those_of_others_change_nothing() -> None:
    async def main() -> None:
        desk = Desk()
        desk.hearing.waits(f"uid-{KEY.name}", True)
        desk.say(
            {**failed(LIMIT), "source": {"component": "default-scheduler"}},
            event("Unconsolidatable", "not empty", kind="NodeClaim", name="workers-a"),
            event("Evicted", "Evicted pod: Underutilized"),
        )
        await asyncio.sleep(5)
        assert (desk.told(), desk.changed) == ("", [])

    virtual.run(main())


def test_a_pod_that_has_found_room_is_forgotten_and_the_watch_ends() -> None:
    async def main() -> None:
        desk = Desk()
        desk.hearing.waits(f"uid-{KEY.name}", True)
        desk.say(failed(LIMIT))
        await asyncio.sleep(5)
        desk.hearing.waits(f"uid-{KEY.name}", False)
        assert desk.told() == ""
        desk.say(event("Evicted", "anything", 1))  # the next event ends the watch
        await asyncio.sleep(1000)
        assert desk.watches == 1

    virtual.run(main())


def test_a_watch_that_is_too_old_begins_with_the_events_that_exist() -> None:
    async def main() -> None:
        desk = Desk()
        desk.hearing.waits(f"uid-{KEY.name}", True)
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
        assert desk.told() == LIMITS

    virtual.run(main())


def test_without_the_right_to_watch_events_it_is_tried_again_after_minutes() -> None:
    async def main() -> None:
        desk = Desk(forbidden=True)
        desk.hearing.waits(f"uid-{KEY.name}", True)
        await asyncio.sleep(400)
        assert [type(each) for each in desk.reported] == [Refused, Refused]

    virtual.run(main())


def test_only_the_last_pods_are_remembered() -> None:
    async def main() -> None:
        desk = Desk()
        desk.hearing.waits("uid", True)
        for number in range(REMEMBERED + 1):
            desk.say(event("FailedScheduling", LIMIT, name=f"pod-{number}"))
        await asyncio.sleep(5)
        assert desk.hearing.told("uid-pod-0", START) == Told()
        assert desk.hearing.told(f"uid-pod-{REMEMBERED}", START).reason == LIMITS

    virtual.run(main())
