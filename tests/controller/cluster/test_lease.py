"""Of several replicas one acts, and it stops before another one begins."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.controller.fakes import virtual
from tests.controller.fakes.api import Api, Call
from tidewater.controller.cluster.client import Manifest, Ref
from tidewater.controller.cluster.fence import Fence, Fenced, NotLeader
from tidewater.controller.cluster.lease import Election, LeaseName, Seen, Step, Terms, decide
from tidewater.kube.errors import ClusterError, Unavailable
from tidewater.kube.kinds import LEASES, PODS

PLACE = LeaseName("system", "controller")
TERMS = Terms()


def lease(holder: str, duration: int | None = 10) -> Manifest:
    return {
        "metadata": {"name": PLACE.name, "namespace": PLACE.namespace, "resourceVersion": "1"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration},
    }


@pytest.mark.parametrize(
    ("seen", "now", "step"),
    [
        pytest.param(None, 0.0, Step.CREATE, id="there is no lease"),
        pytest.param(Seen(lease("me"), 0.0), 100.0, Step.RENEW, id="it is mine"),
        pytest.param(Seen(lease("other"), 5.0), 14.9, Step.WAIT, id="another holds it"),
        pytest.param(Seen(lease("other"), 5.0), 15.0, Step.TAKE, id="another has not renewed it in time"),
        pytest.param(Seen(lease("other", 60), 5.0), 20.0, Step.WAIT, id="as long as its holder wrote"),
        pytest.param(Seen(lease(""), 5.0), 5.0, Step.TAKE, id="it was released"),
        pytest.param(Seen(lease("other", None), 5.0), 14.0, Step.WAIT, id="its holder wrote no duration"),
        pytest.param(Seen({**lease("x"), "spec": None}, 5.0), 5.0, Step.TAKE, id="it is empty"),
    ],
)
def test_what_a_process_does_about_the_lease(seen: Seen | None, now: float, step: Step) -> None:
    assert decide(seen, "me", now) is step


class Replica:
    """A process that takes part, and the times at which it could act."""

    def __init__(self, api: Api, name: str, fault: Callable[[Call, str], None] = lambda call, moment: None) -> None:
        self.name = name
        self.fence = Fence(virtual.seconds)
        self.errors: list[Exception] = []
        self.election = Election(
            api.client(fault), PLACE, name, fence=self.fence, terms=TERMS, report=self.errors.append
        )
        self.terms = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self.election.acquire()
            self.terms += 1
            try:
                await self.election.hold()
            finally:
                await self.election.release()


async def pair() -> tuple[Api, Replica, Replica]:
    """Return an API server and its two replicas, the leader first."""
    api = Api()
    first, second = Replica(api, "a"), Replica(api, "b")
    leader = await leader_of(first, second)
    return api, leader, second if leader is first else first


async def leader_of(*replicas: Replica) -> Replica:
    """Wait for one to lead."""
    while not any(replica.fence.open for replica in replicas):
        await asyncio.sleep(0.1)
    (found,) = [replica for replica in replicas if replica.fence.open]
    return found


async def test_one_of_two_leads_and_keeps_leading() -> None:
    _, leader, other = await pair()
    for _ in range(600):
        await asyncio.sleep(0.5)
        assert (leader.fence.open, other.fence.open) == (True, False)
    assert leader.terms == 1
    assert (leader.errors[1:], other.errors[1:]) == ([], [])


async def test_in_steady_state_each_replica_sends_one_request_per_interval() -> None:
    api, *_ = await pair()
    before = len(api.calls)
    await asyncio.sleep(100)
    most = 100 / TERMS.renew_seconds + 100 / (0.8 * TERMS.poll_seconds)
    assert len(api.calls) - before <= most + 2


async def test_a_dead_leader_is_replaced_within_fifteen_seconds() -> None:
    async def nothing() -> None:
        """A killed process releases nothing."""

    _, leader, other = await pair()
    await asyncio.sleep(30)
    leader.task.cancel()
    leader.election.release = nothing  # type: ignore[method-assign]
    began = virtual.seconds()
    await asyncio.sleep(0)
    await leader_of(other)
    assert virtual.seconds() - began < 13


async def test_a_leader_that_stops_is_replaced_at_the_next_look() -> None:
    api, leader, other = await pair()
    leader.task.cancel()
    began = virtual.seconds()
    await leader_of(other)
    assert virtual.seconds() - began <= TERMS.poll_seconds + 0.2
    assert api.get(LEASES, PLACE.namespace, PLACE.name)["spec"]["holderIdentity"] == other.name


async def test_a_leader_that_cannot_renew_stops_before_another_begins() -> None:
    cut = set[str]()

    def partition(name: str) -> Callable[[Call, str], None]:
        def fault(call: Call, moment: str) -> None:
            if name in cut:
                raise Unavailable("no route to host")

        return fault

    api = Api()
    replicas = [Replica(api, name, partition(name)) for name in "ab"]
    for _ in range(20):
        leader = await leader_of(*replicas)
        cut.add(leader.name)
        while leader.fence.open:
            await asyncio.sleep(0.05)
        stopped = virtual.seconds()
        (other,) = [replica for replica in replicas if replica is not leader]
        await leader_of(other)
        assert virtual.seconds() - stopped >= TERMS.duration_seconds - TERMS.fence_seconds - TERMS.renew_seconds
        cut.clear()
        await asyncio.sleep(5)


@pytest.mark.parametrize("seed", range(5))
async def test_never_do_two_replicas_act_whatever_requests_fail(seed: int) -> None:
    dice = random.Random(seed)

    def fault(call: Call, moment: str) -> None:
        if dice.random() < 0.3:
            raise Unavailable("timed out")

    api = Api()
    replicas = [Replica(api, name, fault) for name in "abc"]
    led = 0
    for _ in range(4000):
        await asyncio.sleep(0.1)
        open_now = sum(replica.fence.open for replica in replicas)
        assert open_now <= 1
        led += open_now
    assert led > 2000


async def test_a_frozen_leader_wakes_up_and_does_not_write() -> None:
    api = Api()
    frozen = [0.0]
    fence = Fence(lambda: virtual.seconds() + frozen[0])
    election = Election(api.client(), PLACE, "a", fence=fence, terms=TERMS)
    cluster = Fenced(api.client(), fence)
    await election.acquire()
    holding = asyncio.create_task(election.hold())
    await asyncio.sleep(30)
    await cluster.create(PODS, {"metadata": {"name": "p", "namespace": "default"}})
    frozen[0] = 60.0  # the process was stopped for a minute, and continues in the middle of whatever it did
    with pytest.raises(NotLeader):
        await cluster.create(PODS, {"metadata": {"name": "q", "namespace": "default"}})
    await holding
    assert api.names(PODS) == ["p"]


async def test_a_renewal_whose_answer_was_lost_is_still_a_renewal() -> None:
    lost = [False]

    def fault(call: Call, moment: str) -> None:
        if call.verb == "update" and moment == "after" and not lost[0]:
            lost[0] = True
            raise Unavailable("the connection was closed")

    api = Api()
    replica = Replica(api, "a", fault)
    await asyncio.sleep(60)
    assert lost[0]
    assert replica.fence.open
    assert replica.terms == 1


async def test_a_leader_whose_lease_was_taken_by_hand_stops() -> None:
    api = Api()
    replica = Replica(api, "a")
    await leader_of(replica)
    api.patch(Ref(LEASES, PLACE.namespace, PLACE.name), {"spec": {"holderIdentity": "somebody"}})
    await asyncio.sleep(TERMS.renew_seconds + 1)
    assert not replica.fence.open


async def test_a_lease_tells_people_who_leads_and_how_often_that_changed() -> None:
    api, leader, other = await pair()
    leader.task.cancel()
    await asyncio.sleep(10)
    spec = api.get(LEASES, PLACE.namespace, PLACE.name)["spec"]
    assert spec["holderIdentity"] == other.name
    assert spec["leaseTransitions"] == 1
    assert spec["leaseDurationSeconds"] == TERMS.duration_seconds
    assert spec["renewTime"] >= spec["acquireTime"]


async def test_errors_of_the_api_server_are_reported() -> None:
    api = Api()
    api.down = True
    replica = Replica(api, "a")
    await asyncio.sleep(10)
    assert replica.errors
    assert all(isinstance(error, ClusterError) for error in replica.errors)
    api.down = False
    await leader_of(replica)
