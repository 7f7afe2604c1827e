"""The command line of the controller, and its replicas: one acts, the others wait."""

from __future__ import annotations

import asyncio
import io

import pytest

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import WRITES, Api, Fault
from tests.controller.fakes.world import World
from tidewater.contract.controller_program import Quota
from tidewater.controller.cluster.lease import LeaseName
from tidewater.controller.main import METRICS_PORT, Process, flags_of
from tidewater.controller.observe.log import Log
from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.options import Options
from tidewater.kube.kinds import LEASES, PODS

FLAGS = flags_of([], "system")


def test_without_flags_it_looks_after_all_namespaces_and_elects_in_its_own() -> None:
    flags = flags_of([], "tidewater-system")
    assert flags.options.namespaces == ()
    assert flags.lease == LeaseName("tidewater-system", "elasticjob-controller")
    assert flags.metrics_port == METRICS_PORT
    assert flags.log_level == "info"


def test_every_flag_is_used() -> None:
    text = (
        "--namespaces a,b --workers 3 --cluster-domain d --lease-namespace b --lease-name c --metrics-port 0"
        " --fixed-nodes --taint-bad-nodes --quotas a=1:4,b=2:2 --worker-size cpu=3500m,memory=8Gi"
    )
    flags = flags_of([*text.split(), "--log-level", "debug"], "x")
    assert flags.options == Options(
        ("a", "b"),
        3,
        "d",
        fixed_nodes=True,
        taints_nodes=True,
        quotas={"a": Quota(1, 4), "b": Quota(2, 2)},
        worker_size={"cpu": "3500m", "memory": "8Gi"},
    )
    assert not FLAGS.options.fixed_nodes
    assert not FLAGS.options.taints_nodes
    assert flags.lease == LeaseName("b", "c")
    assert (flags.metrics_port, flags.log_level) == (0, "debug")


WRONG = (
    "--workers=0 --workers=many --log-level=loud --jobs=1 --quotas=a --quotas=a=1 --quotas=a=2:1 --quotas=a=1:1,a=1:1"
    " --quotas=A=1:1 --worker-size=cpu --worker-size=cpu=many"
).split()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_flag_is_named(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags_of([wrong], "x")
    assert wrong.split("=")[0] in capsys.readouterr().err


def test_a_quota_of_a_namespace_that_is_not_served_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags_of(["--namespaces=a", "--quotas=a=1:1,b=1:1"], "x")
    assert "--quotas names b, which is not in --namespaces" in capsys.readouterr().err


class Replica:
    """One process of the controller, as `serve` runs it."""

    def __init__(self, api: Api, name: str, fault: Fault = lambda call, moment: None) -> None:
        self.name = name
        self.ahead = 0.0
        self.client = api.client(fault)
        self.output = io.StringIO()
        log = Log(name, stream=self.output)
        clock = lambda: virtual.seconds() + self.ahead  # noqa: E731
        self.process = Process(self.client, FLAGS, name, Metrics(), log, clock=clock)
        self.task = asyncio.create_task(self.process.run())

    def leads(self) -> bool:
        """Return whether its metrics say that it leads."""
        return b"elasticjob_leader 1.0" in self.process.pages["/metrics"]().body

    @property
    def ready(self) -> int:
        return self.process.pages["/readyz"]().status

    def writes(self) -> int:
        return sum(call.verb in WRITES and call.kind != LEASES for call in self.client.calls)

    async def stop(self) -> None:
        """End the process as SIGTERM does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def pair(world: World) -> tuple[Replica, Replica]:
    """Return two replicas, the leader first, after a job was started."""
    replicas = [Replica(world.api, name) for name in "ab"]
    world.apply(jobs.manifest())
    await world.settle()
    leader, other = sorted(replicas, key=lambda replica: not replica.leads())
    assert (leader.leads(), other.leads()) == (True, False)
    assert len(world.pods()) == 2
    return leader, other


async def test_of_two_replicas_one_acts_and_both_are_ready() -> None:
    leader, other = await pair(World())
    assert leader.writes() > 0
    assert other.writes() == 0
    assert not [call for call in other.client.calls if call.verb in ("list", "watch")]
    assert (leader.ready, other.ready) == (200, 200)


async def test_a_replica_that_reaches_no_api_server_is_not_ready() -> None:
    world = World()
    world.api.down = True
    replica = Replica(world.api, "a")
    await world.settle()
    assert replica.ready == 503
    world.api.down = False
    await world.settle()
    assert replica.ready == 200


async def test_after_the_leaders_death_the_other_replica_acts_within_fifteen_seconds() -> None:
    world = World()
    leader, other = await pair(world)
    before = world.uids()
    leader.client.dead = ConnectionError("the process is dead")
    world.scale(3)
    died = virtual.seconds()
    await world.until(lambda: len(world.pods()) == 3)
    assert virtual.seconds() - died <= 15
    assert other.leads()
    assert world.uids().items() > before.items()
    created = [call.name for call in world.api.calls if call.verb == "create" and call.kind == PODS]
    assert len(created) == 3


async def test_a_leader_that_is_stopped_hands_over_at_once() -> None:
    world = World()
    leader, other = await pair(world)
    await leader.stop()
    stopped = virtual.seconds()
    await world.until(other.leads)
    assert virtual.seconds() - stopped <= 2
    assert not leader.leads()


async def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes_up_and_waits_for_its_turn() -> None:
    world = World()
    leader, other = await pair(world)
    leader.ahead += 60.0  # it was stopped for a minute: its clock has gone on, and nothing else of it
    before = leader.writes()
    world.scale(3)
    await world.settle(60)
    assert leader.writes() == before or leader.leads()
    assert leader.leads() != other.leads()
    assert len(world.pods()) == 3
    assert "event=not_leading" in leader.output.getvalue()


async def test_without_an_api_server_the_leader_stops_acting_and_goes_on_when_it_is_back() -> None:
    world = World()
    leader, other = await pair(world)
    world.api.down = True
    world.api.restart()
    await world.settle(60)
    assert not leader.leads()
    assert not other.leads()
    world.scale(3)
    world.api.down = False
    await world.settle(60)
    assert leader.leads() != other.leads()
    assert len(world.pods()) == 3
