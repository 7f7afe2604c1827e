"""Kubernetes events: few, late, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import Api, Call
from tidewater.controller.cluster.client import Manifest, Ref
from tidewater.controller.observe.events import RATE, SIMILAR, WAITING, About, Recorder, about
from tidewater.kube.errors import Refused, Unavailable
from tidewater.kube.kinds import EVENTS

JOB = About("default", "imagenet", "uid-of-imagenet")


class Desk:
    """A recorder that sends to a fake API server."""

    def __init__(self, fault: Callable[[Call, str], None] = lambda call, moment: None) -> None:
        self.api = Api()
        self.dropped = 0
        self.recorder = Recorder(self.api.client(fault), "controller-0", now=virtual.now, dropped=self._drop)
        self.task = asyncio.create_task(self.recorder.run())

    def _drop(self) -> None:
        self.dropped += 1

    def events(self) -> list[Manifest]:
        return self.api.all(EVENTS)


async def test_an_event_says_what_happened_to_which_job() -> None:
    desk = Desk()
    desk.recorder.record(about(jobs.job()), "Normal", "SuccessfulCreatePod", "Created pod: imagenet-worker-0")
    await asyncio.sleep(1)
    (event,) = desk.events()
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"]["name"] == "imagenet"
    assert event["involvedObject"]["uid"] == "uid-of-imagenet"
    assert (event["type"], event["reason"]) == ("Normal", "SuccessfulCreatePod")
    assert event["message"] == "Created pod: imagenet-worker-0"
    assert event["count"] == 1


async def test_an_event_that_happens_again_is_counted() -> None:
    desk = Desk()
    for _ in range(3):
        desk.recorder.record(JOB, "Warning", "FailedCreatePod", "no quota")
        await asyncio.sleep(60)
    desk.recorder.record(JOB, "Warning", "FailedCreatePod", "no quota")
    desk.recorder.record(JOB, "Warning", "FailedCreatePod", "no quota")
    await asyncio.sleep(1)
    (event,) = desk.events()
    assert event["count"] == 5
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:03:00Z"


async def test_many_different_events_of_one_reason_become_one() -> None:
    desk = Desk()
    for number in range(SIMILAR + 50):
        desk.recorder.record(JOB, "Normal", "SuccessfulCreatePod", f"Created pod: {number}")
    await asyncio.sleep(30)
    assert len(desk.events()) == SIMILAR + 1
    assert desk.events()[-1]["count"] == 50


async def test_a_burst_is_sent_slowly_and_what_is_too_much_is_dropped() -> None:
    desk = Desk()
    for number in range(WAITING + 10):
        desk.recorder.record(About("default", f"j{number}", "u"), "Normal", "SuccessfulCreatePod", "Created")
    assert desk.dropped == 10
    await asyncio.sleep(5)
    assert len(desk.events()) <= 5 * RATE + 2
    await asyncio.sleep(WAITING / RATE)
    assert len(desk.events()) == WAITING


async def test_events_survive_an_outage_of_the_api_server() -> None:
    desk = Desk()
    desk.api.down = True
    desk.recorder.record(JOB, "Normal", "ElasticJobSucceeded", "done")
    await asyncio.sleep(60)
    desk.api.down = False
    await asyncio.sleep(5)
    assert [event["message"] for event in desk.events()] == ["done"]


async def test_an_event_that_is_refused_is_dropped_and_the_others_go_on() -> None:
    def fault(call: Call, moment: str) -> None:
        if call.body and call.body.get("reason") == "Bad":
            raise Refused("namespace is being terminated")

    desk = Desk(fault)
    desk.recorder.record(JOB, "Normal", "Bad", "x")
    desk.recorder.record(JOB, "Normal", "Good", "y")
    await asyncio.sleep(1)
    assert [event["reason"] for event in desk.events()] == ["Good"]
    assert desk.dropped == 1


async def test_an_event_that_the_api_server_has_forgotten_is_created_anew() -> None:
    desk = Desk()
    for _ in range(2):
        desk.recorder.record(JOB, "Normal", "ElasticJobRunning", "runs")
        await asyncio.sleep(1)
        (event,) = desk.events()
        desk.api.delete(Ref(EVENTS, "default", event["metadata"]["name"]))
    assert desk.dropped == 0


async def test_a_lost_answer_does_not_stop_the_recorder() -> None:
    lost = [0]

    def fault(call: Call, moment: str) -> None:
        if moment == "after" and lost[0] < 1:
            lost[0] += 1
            raise Unavailable("closed")

    desk = Desk(fault)
    desk.recorder.record(JOB, "Normal", "ElasticJobRunning", "runs")
    await asyncio.sleep(10)
    assert desk.events()
