"""The guarantees of the handler for torchrun's agents, tested in threads with an etcd in memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import registry
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from torch.distributed.launcher.api import LaunchConfig, launch_agent

from tests.elastic.etcd.fake_client import FakeStore
from tests.processes import eventually
from tidewater.contract import keys
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.torchrun import creator
from tidewater.elastic.torchrun.handler import EtcdRendezvous
from tidewater.elastic.torchrun.options import Options
from tidewater.elastic.torchrun.rounds import Limits

Make = Callable[..., EtcdRendezvous]


class World:
    """Handlers of one run, each in the thread of an agent."""

    def __init__(self) -> None:
        self.store = FakeStore(time.monotonic)
        self._pool = ThreadPoolExecutor(8)
        self._made: list[EtcdRendezvous] = []

    def handler(self, *, nodes: tuple[int, int] = (1, 2), host: str = "127.0.0.1", **config: object) -> EtcdRendezvous:
        """Return a handler. A round that is not full takes half a minute to start, so that no node starts without one
        that is only slow."""
        given = {"last_call_seconds": "30", "connect_seconds": "30", "lease_seconds": "30", **config}
        options = Options.parse("etcd", given)
        limits = Limits(*nodes, options.last_call_seconds, options.patience_seconds)
        self._made.append(EtcdRendezvous(self.store, "run", limits, options, host=host))
        return self._made[-1]

    def next(self, handler: EtcdRendezvous) -> Future[RendezvousInfo]:
        return self._pool.submit(handler.next_rendezvous)

    def run(self, work: Callable[[], object]) -> Future[object]:
        return self._pool.submit(work)

    def together(self, *handlers: EtcdRendezvous) -> list[RendezvousInfo]:
        """Bring all handlers into one round; return their results in the order of their ranks."""
        infos = [future.result(60) for future in [self.next(handler) for handler in handlers]]
        return sorted(infos, key=lambda info: info.rank)

    def stop(self) -> None:
        for handler in self._made:
            handler.shutdown()
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.stop()


def test_nodes_get_distinct_ranks_and_share_one_store(world: World) -> None:
    first, second = world.together(world.handler(), world.handler())
    assert [(each.rank, each.world_size) for each in (first, second)] == [(0, 2), (1, 2)]
    first.store.set("hello", "from rank 0")
    assert second.store.get("hello") == b"from rank 0"
    assert first.bootstrap_store_info == second.bootstrap_store_info


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_nodes_meet_over_ipv6(world: World) -> None:
    first, second = world.together(world.handler(host="::1"), world.handler(host="[::1]"))
    second.store.set("hello", "from rank 1")
    assert first.store.get("hello") == b"from rank 1"
    assert first.bootstrap_store_info
    assert first.bootstrap_store_info.master_addr == "::1"


def test_the_secret_of_a_run_is_in_etcd_and_nodes_meet_after_etcd_has_lost_it(world: World) -> None:
    a, b = world.handler(), world.handler()
    world.together(a, b)
    key = keys.rendezvous_secret("run")
    assert world.store.read(key).entries
    world.store.delete(key)
    again = world.next(a)
    eventually(lambda: b.num_nodes_waiting() > 0)
    assert {again.result(60).rank for again in (again, world.next(b))} == {0, 1}
    assert world.store.read(key).entries


def test_a_single_node_starts_when_the_last_call_ends(world: World) -> None:
    (info,) = world.together(world.handler(last_call_seconds="0.2"))
    assert info.world_size == 1


def test_a_late_node_is_announced_to_the_members_and_joins_in_their_next_round(world: World) -> None:
    a = world.handler(last_call_seconds="0.2")
    (before,) = world.together(a)
    before.store.set("stale", "1")
    late = world.handler()
    coming = world.next(late)
    eventually(lambda: a.num_nodes_waiting() == 1)
    again = world.next(a).result(60)
    assert (again.rank, again.world_size, coming.result(60).rank) == (0, 2, 1)
    assert not again.store.check(["stale"])


def test_above_the_maximum_a_node_waits_until_there_is_room(world: World) -> None:
    a = world.handler(nodes=(1, 1))
    world.together(a)
    surplus = world.handler(nodes=(1, 1))
    coming = world.next(surplus)
    time.sleep(0.5)
    assert (a.num_nodes_waiting(), coming.done()) == (0, False)
    a._withdraw()  # called when its agent gets SIGTERM
    assert coming.result(60).world_size == 1


def test_when_a_node_withdraws_the_others_restart_and_form_a_round_without_it(world: World) -> None:
    a, b = world.handler(), world.handler()
    world.together(a, b)
    assert (a.num_nodes_waiting(), b.num_nodes_waiting()) == (0, 0)
    b._withdraw()
    eventually(lambda: a.num_nodes_waiting() > 0)
    assert world.next(a).result(60).world_size == 1


def test_when_the_workers_of_a_node_fail_the_others_join_a_new_round(world: World) -> None:
    a, b = world.handler(), world.handler()
    world.together(a, b)
    again = world.next(a)
    eventually(lambda: b.num_nodes_waiting() > 0)
    assert {again.result(60).rank for again in (again, world.next(b))} == {0, 1}


def test_a_member_that_finishes_closes_the_run_for_all(world: World) -> None:
    a, b = world.handler(), world.handler()
    world.together(a, b)
    assert a.shutdown()
    eventually(b.is_closed)
    assert b.num_nodes_waiting() == 0
    with pytest.raises(RendezvousClosedError, match="'run' is finished"):
        world.next(world.handler()).result(60)


@pytest.mark.parametrize(("program", "closes"), [("true", True), ("false", False)])
def test_torchruns_agent_closes_the_run_only_when_its_workers_succeed(
    world: World, monkeypatch: pytest.MonkeyPatch, program: str, closes: bool
) -> None:
    handler, logs = world.handler(nodes=(1, 1)), DefaultLogsSpecs(log_dir=None)
    monkeypatch.setattr(registry, "get_rendezvous_handler", lambda _: handler)
    config = LaunchConfig(1, 1, 1, rdzv_backend="etcd-v3", run_id="run", max_restarts=0, logs_specs=logs)
    config.monitor_interval = 0.02
    agent = world.run(lambda: launch_agent(config, program, []))
    assert (agent.exception(60) is None) == closes
    assert bool(world.store.read(keys.rendezvous_closed("run")).entries) == closes


def test_a_waiting_node_that_ends_does_not_close_the_run(world: World) -> None:
    a = world.handler(nodes=(1, 1))
    world.together(a)
    surplus = world.handler(nodes=(1, 1), join_seconds="3")
    with pytest.raises(RendezvousTimeoutError, match="1 nodes are ready, 1 are busy, --nnodes=1:1"):
        world.next(surplus).result(60)
    surplus.shutdown()
    assert not a.is_closed()


def test_too_few_nodes_and_an_unreachable_etcd_are_different_errors(world: World) -> None:
    with pytest.raises(RendezvousTimeoutError, match="1 nodes are ready, 0 are busy, --nnodes=2:2"):
        world.next(world.handler(nodes=(2, 2), join_seconds="3")).result(60)
    world.store.away = True
    with pytest.raises(RendezvousConnectionError, match=r"etcd is away.*--rdzv-endpoint"):
        world.next(world.handler(connect_seconds="1")).result(60)
    world.store.away = False


def test_while_etcd_is_unreachable_the_workers_are_not_restarted(world: World) -> None:
    a, b = world.handler(), world.handler()
    world.together(a, b)
    world.store.away = True
    time.sleep(0.5)
    assert (a.num_nodes_waiting(), b.num_nodes_waiting()) == (0, 0)
    world.store.away = False


def test_records_of_another_version_are_an_error_that_names_the_version(world: World) -> None:
    world.store.put(keys.rendezvous_round("run"), b'{"version": 99}')
    with pytest.raises(RendezvousStateError, match="version 99"):
        world.next(world.handler()).result(60)


def test_torchrun_arguments_create_a_handler_and_mistakes_are_refused() -> None:
    given = {"endpoint": "etcd-0:2379", "min_nodes": 1, "max_nodes": 2, "timeout": 900}
    made = creator()(RendezvousParameters("etcd-v3", run_id="run", **given))  # type: ignore[arg-type]
    assert (made.get_backend(), made.get_run_id(), made.use_agent_store) == ("etcd-v3", "run", True)
    with pytest.raises(ConfigError, match="without a slash"):
        creator()(RendezvousParameters("etcd-v3", run_id="a/b", **given))  # type: ignore[arg-type]
