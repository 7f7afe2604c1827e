"""What is watched while a job waits for room, and what is made of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.controller.fakes.api import Api, Call
from tidewater.controller.cluster.client import Ref
from tidewater.controller.cluster.mirror import FORBIDDEN_SECONDS
from tidewater.controller.room.packing import Room
from tidewater.controller.room.watch import RoomWatch
from tidewater.kube.errors import Refused
from tidewater.kube.kinds import NODES, PODS, PRIORITY_CLASSES


class Desk:
    """An API server with a node, and what is known of its room."""

    def __init__(self, fault: Any = lambda call, moment: None) -> None:
        self.api = Api()
        ready = [{"type": "Ready", "status": "True"}]
        node = {"metadata": {"name": "n"}, "status": {"conditions": ready, "allocatable": {"cpu": "4", "pods": "9"}}}
        self.api.create(NODES, node)
        self.changes = 0
        self.watch = RoomWatch(self.api.client(fault), self._changed)
        self.task = asyncio.create_task(self.watch.run())

    def _changed(self) -> None:
        self.changes += 1

    async def want(self, wanted: bool = True) -> None:
        self.watch.want(wanted)
        await asyncio.sleep(1)

    def start(self, name: str, node: str | None = "n", **metadata: Any) -> None:
        spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], **({"nodeName": node} if node else {})}
        self.api.create(PODS, {"metadata": {"name": name, "namespace": "other", **metadata}, "spec": spec})

    def held(self) -> list[str]:
        room = self.watch.room()
        assert room is not None
        return [each.node for each in room.held]


async def test_nothing_is_asked_while_no_job_waits() -> None:
    desk = Desk()
    await asyncio.sleep(60)
    assert desk.api.calls == []
    await desk.want()
    await desk.want(False)
    calls = len(desk.api.calls)
    await asyncio.sleep(600)
    assert len(desk.api.calls) == calls


async def test_the_room_is_not_known_before_all_was_listed() -> None:
    desk = Desk()
    desk.watch.want(True)
    assert (room := desk.watch.room()) is not None
    assert not room.known
    await desk.want()
    assert desk.changes
    assert (room := desk.watch.room()) is not None
    assert room.known
    assert list(room.nodes) == ["n"]


async def test_pods_of_all_namespaces_take_room_from_when_they_have_a_node_until_they_end() -> None:
    desk = Desk()
    desk.start("a")
    await desk.want()
    assert desk.held() == ["n"]
    before = desk.changes
    desk.start("b", node=None)
    await asyncio.sleep(1)
    assert (desk.held(), desk.changes) == (["n"], before)
    desk.api.patch(Ref(PODS, "other", "b"), {"spec": {"nodeName": "n"}})
    await asyncio.sleep(1)
    assert desk.held() == ["n", "n"]
    for name in "ab":
        desk.api.patch(Ref(PODS, "other", name), {"status": {"phase": "Succeeded"}}, "status")
    await asyncio.sleep(1)
    assert desk.held() == []
    assert desk.changes == before + 3


async def test_a_daemons_pod_comes_with_the_node() -> None:
    desk = Desk()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    desk.start("daemon", ownerReferences=[owner])
    desk.start("other")
    await desk.want()
    assert (room := desk.watch.room()) is not None
    assert [each.fixed for each in room.held] == [True, False]


async def test_the_default_priority_is_that_of_the_default_class() -> None:
    desk = Desk()
    await desk.want()
    assert (room := desk.watch.room()) is not None
    assert room.classes == {"": 0}
    desk.api.create(PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    desk.api.create(PRIORITY_CLASSES, {"metadata": {"name": "meek"}, "value": 9, "preemptionPolicy": "Never"})
    await asyncio.sleep(1)
    assert (room := desk.watch.room()) is not None
    assert room.classes == {"usual": 7, "": 7}


async def test_without_the_rights_the_room_is_not_known_and_jobs_go_on_as_without_it() -> None:
    def refuse(call: Call, moment: str) -> None:
        if call.kind == PODS:
            raise Refused("forbidden", status=403)

    desk = Desk(refuse)
    await desk.want()
    assert desk.watch.room() is None
    assert desk.changes


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_after_one_refusal_the_room_is_known_again_a_few_minutes_later(verb: str) -> None:
    refusals = iter([Refused("forbidden", status=403)])

    def refuse(call: Call, moment: str) -> None:
        if (call.verb, call.kind) == (verb, PODS) and (error := next(refusals, None)):
            raise error

    desk = Desk(refuse)
    desk.start("a")
    await desk.want()
    assert desk.watch.room() is None
    before = desk.changes
    await asyncio.sleep(FORBIDDEN_SECONDS + 1)
    assert desk.held() == ["n"]
    assert desk.changes > before


async def test_while_it_is_refused_again_the_room_is_never_taken_for_one_that_is_only_not_listed_yet() -> None:
    """A job would have to give its pods up for a moment."""

    def refuse(call: Call, moment: str) -> None:
        found.append(desk.watch.room())
        if call.kind == PODS:
            raise Refused("forbidden", status=403)

    found: list[Room | None] = []
    desk = Desk(refuse)
    await desk.want()
    found.clear()
    await asyncio.sleep(FORBIDDEN_SECONDS * 3)
    assert len(found) > 3
    assert set(found) == {None}


async def test_what_was_watched_before_is_listed_anew() -> None:
    desk = Desk()
    desk.start("a")
    await desk.want()
    await desk.want(False)
    desk.api.delete(Ref(PODS, "other", "a"), grace=0)
    await desk.want()
    assert desk.held() == []
