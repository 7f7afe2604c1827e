"""A Spot Instance gets its notice, and ends when its time is over; an On-Demand instance doesn't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from localcloud.aws.events.interruptions import Interruptions, NotInterruptible, Seen, check

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import received, run, send_events


@dataclass
class Clock:
    """Collects what is to be done later."""

    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def schedule(self, seconds: float, work: Callable[[], None]) -> None:
        self.later.append((seconds, work))

    def run(self) -> None:
        due, self.later = self.later, []
        for _, work in due:
            work()


@dataclass
class World:
    """An account with a queue that gets every event, and its interruptions."""

    client: Clients
    queue: str
    clock: Clock = field(default_factory=Clock)
    noticed: list[str] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.interruptions = Interruptions(
            ACCOUNT, REGION, self.noticed.append, lambda: self.ends.append(True), self.clock.schedule
        )

    def run(self, *, spot: bool = True) -> str:
        market = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
        return run(self.client("ec2"), **market)

    def instance(self, identity: str) -> Any:
        found = self.client("ec2").describe_instances(InstanceIds=[identity])
        return found["Reservations"][0]["Instances"][0]

    def events(self) -> list[tuple[str, str]]:
        """Return the kinds of the events since the last call, with their instances."""
        return [
            (event["detail-type"], event["detail"].get("instance-id") or event["resources"][0])
            for event in received(self.client, self.queue)
        ]


@pytest.fixture(scope="module")
def queue(operator: Clients) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
    document = {"Version": "2012-10-17", "Statement": [{**statement, "Resource": "*"}]}
    pattern = {"detail-type": [{"anything-but": "EC2 Instance State-change Notification"}]}
    return send_events(operator, "all", pattern, document)


@pytest.fixture
def world(operator: Clients, queue: str) -> World:
    made = World(operator, queue)
    made.events()  # those of the test before
    return made


def test_the_instance_runs_until_its_time_is_over_and_ends_then(world: World) -> None:
    identity = world.run()
    told = world.interruptions.notice([identity])
    assert world.events() == [("EC2 Spot Instance Interruption Warning", identity)]
    assert [seconds for seconds, _ in world.clock.later] == [120.0]
    assert (list(told), world.noticed, world.ends) == ([identity], [identity], [])
    assert world.instance(identity)["State"]["Name"] == "running"
    world.clock.run()
    ended = world.instance(identity)
    assert ended["State"]["Name"] == "terminated"
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert world.ends == [True]


def test_two_instances_get_their_notices_at_once(world: World) -> None:
    both = [world.run(), world.run()]
    world.interruptions.notice(both, 30)
    assert [instance for _, instance in world.events()] == both
    world.clock.run()
    assert {world.instance(each)["State"]["Name"] for each in both} == {"terminated"}


def test_an_instance_that_somebody_ended_before_stays_as_it_is(world: World) -> None:
    identity = world.run()
    world.interruptions.notice([identity])
    world.client("ec2").terminate_instances(InstanceIds=[identity])
    world.clock.run()
    assert world.instance(identity)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert world.ends == []


def test_termination_protection_does_not_keep_ec2_from_taking_a_spot_instance(world: World) -> None:
    identity = world.run()
    world.client("ec2").modify_instance_attribute(InstanceId=identity, DisableApiTermination={"Value": True})
    world.interruptions.notice([identity])
    world.clock.run()
    assert world.instance(identity)["State"]["Name"] == "terminated"


def test_every_instance_ends_even_if_one_is_gone_when_its_notice_is_passed_on(world: World) -> None:
    def fail(identity: str) -> None:
        raise KeyError(identity)

    interruptions = Interruptions(ACCOUNT, REGION, fail, schedule=world.clock.schedule)
    identities = [world.run(), world.run()]
    with pytest.raises(KeyError):
        interruptions.notice(identities)
    world.clock.run()
    assert {world.instance(each)["State"]["Name"] for each in identities} == {"terminated"}


def test_none_is_interrupted_if_one_of_them_cannot_be(world: World) -> None:
    spot, on_demand = world.run(), world.run(spot=False)
    with pytest.raises(NotInterruptible, match=f"instance {on_demand} is On-Demand"):
        world.interruptions.notice([spot, on_demand])
    assert (world.events(), world.clock.later) == ([], [])


def test_a_rebalance_recommendation_ends_nothing(world: World) -> None:
    identity = world.run()
    world.interruptions.rebalance([identity])
    assert world.events() == [("EC2 Instance Rebalance Recommendation", identity)]
    assert world.clock.later == []


def test_an_on_demand_instance_can_be_retired(world: World) -> None:
    identity = world.run(spot=False)
    world.interruptions.retire([identity])
    assert world.events() == [("AWS Health Event", identity)]


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        pytest.param(None, "there is no instance i-1", id="unknown"),
        pytest.param(Seen("stopped", "spot"), "i-1 is stopped", id="stopped"),
        pytest.param(Seen("running", None), "is On-Demand.*--retire", id="on-demand"),
        pytest.param(
            Seen("running", "spot", datetime(2026, 1, 1, 10, 2, tzinfo=UTC)), "it ends at 10:02:00 UTC", id="twice"
        ),
    ],
)
def test_who_gets_no_notice_and_why(seen: Seen | None, text: str) -> None:
    with pytest.raises(NotInterruptible, match=text):
        check("i-1", seen)
