"""The fence lets writes through while this process is the leader for certain, and reads always."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.controller.fakes.api import Api
from tidewater.controller.cluster.client import Ref, Source
from tidewater.controller.cluster.fence import Fence, Fenced, NotLeader, uptime
from tidewater.kube.kinds import PODS

POD = {"metadata": {"name": "p", "namespace": "default"}, "spec": {}}
REF = Ref(PODS, "default", "p")


def test_a_fence_is_open_until_its_moment() -> None:
    time = [100.0]
    fence = Fence(lambda: time[0])
    assert not fence.open
    fence.open_until(107.0)
    assert (fence.open, fence.left) == (True, 7.0)
    time[0] = 107.0
    assert (fence.open, fence.left) == (False, 0.0)
    fence.open_until(200.0)
    fence.close()
    with pytest.raises(NotLeader):
        fence.check()


async def test_a_closed_fence_stops_every_write_and_no_read() -> None:
    api = Api()
    created = api.create(PODS, POD)
    cluster = Fenced(api.client(), Fence())
    writes: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: cluster.create(PODS, POD),
        lambda: cluster.replace(PODS, created),
        lambda: cluster.patch(REF, {"spec": {}}),
        lambda: cluster.delete(REF, uid=created["metadata"]["uid"]),
    )
    for write in writes:
        with pytest.raises(NotLeader):
            await write()
    assert await cluster.get(REF) == created
    assert (await cluster.list(Source(PODS))).items == [created]
    async for event in cluster.watch(Source(PODS), "0"):
        assert event.object == created
        break


def test_the_clock_never_goes_back() -> None:
    assert uptime() <= uptime()
