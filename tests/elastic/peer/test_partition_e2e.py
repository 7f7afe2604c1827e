"""Network partitions between simulated hosts: only one group commits steps, and after healing all train together."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import toolchain
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import Final, verdict
from tests.elastic.schedules.network import ETCD, Network
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

HEARTBEAT_SECONDS = 1.0
LEASE_SECONDS = 3
BOUND_SECONDS = HEARTBEAT_SECONDS + 9.0
"""Survivors go on so soon after a cut: a heartbeat's time-out, and all that follows, which takes less than three
seconds; a slow machine gets the rest. Without the heartbeat they would wait for the group's time-out of 30 s."""
_FLAGS = (
    *("--heartbeat-seconds", str(HEARTBEAT_SECONDS), "--lease-seconds", str(LEASE_SECONDS)),
    *("--peer-timeout-seconds", "1", "--min-step-seconds", "0.02"),
)


class Hosts:
    """Three workers on three hosts that train together."""

    def __init__(self, farm: Farm, network: Network, etcd: str, folder: Path) -> None:
        self.network = network
        self.job = Job(farm, folder / "job", etcd, *COMMON, *_FLAGS)
        for number in range(3):
            self.start(number)
        self.job.wait_for_all()

    def start(self, number: int) -> None:
        host = self.network.hosts[number]
        self.job.start("w", netns=host.netns, host=host.address)

    def cut(self, *pairs: tuple[int, int]) -> float:
        """Cut connections, wait until a worker continues in a new generation, and return the pause in seconds."""
        before = max(final.generation for final in self.finals())
        cut_at = time.monotonic()
        self.network.cut(pairs)
        deadline = cut_at + 60
        while not any(final.generation > before for final in self.finals()):
            assert time.monotonic() < deadline, f"nobody goes on after the cut:\n{self.job.told()}"
            time.sleep(0.02)
        times = sorted(final.at for finals in self.job.book.finals.values() for final in finals.values())
        return max(later - one for one, later in itertools.pairwise(times) if later > cut_at)

    def of_rank(self, rank: int) -> int:
        """Return the host of the worker that currently has that rank."""
        self.job.book.refresh()
        return next(n for n, worker in enumerate(self.job.workers) if self.job.book.last[worker.name].rank == rank)

    def finals(self) -> list[Final]:
        self.job.book.refresh()
        return list(self.job.book.last.values())

    def after(self, seconds: float) -> None:
        """Let the groups continue, heal the network, and check that there has been only one history."""
        time.sleep(seconds)
        self.network.heal()
        self.job.wait_for_all(60)
        assert all(worker.poll() is None for worker in self.job.workers), self.job.told()
        problems = verdict(self.job.book, TOTAL)
        assert not problems, "\n".join([*problems, self.job.told()])


@pytest.fixture
def hosts(farm: Farm, tmp_path: Path) -> Iterator[Hosts]:
    with Network(workers=4) as network:
        hosts = Hosts(farm, network, network.start_etcd(toolchain.binary("etcd"), tmp_path), tmp_path)
        yield hosts
        hosts.job.kill()


@pytest.mark.parametrize("rank", [0, 2])
def test_training_continues_without_a_worker_cut_off_from_the_others_but_not_from_etcd(hosts: Hosts, rank: int) -> None:
    lonely = hosts.of_rank(rank)
    stood_still = hosts.cut(*((lonely, other) for other in {0, 1, 2} - {lonely}))
    assert stood_still <= BOUND_SECONDS
    hosts.after(LEASE_SECONDS + 2)


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_training_continues_without_a_worker_cut_off_from_etcd_and_the_others(hosts: Hosts, rank: int) -> None:
    lonely = hosts.of_rank(rank)
    stood_still = hosts.cut((lonely, ETCD), *((lonely, other) for other in {0, 1, 2} - {lonely}))
    assert stood_still <= BOUND_SECONDS
    hosts.after(LEASE_SECONDS + 2)


def test_training_continues_when_a_majority_is_cut_off_from_etcd(hosts: Hosts) -> None:
    stood_still = hosts.cut((1, ETCD), (2, ETCD))
    assert stood_still <= BOUND_SECONDS
    hosts.after(LEASE_SECONDS + 2)


def test_training_continues_after_all_workers_were_cut_off_from_each_other(hosts: Hosts) -> None:
    stood_still = hosts.cut((0, 1), (0, 2), (1, 2))
    assert stood_still <= BOUND_SECONDS
    hosts.after(LEASE_SECONDS + 2)


def test_a_newcomer_does_not_take_over_from_workers_cut_off_from_etcd(hosts: Hosts) -> None:
    """The newcomer finds no live member in etcd but a generation that may be alive; it must not start a second one."""
    everyone = [(number, 3) for number in range(3)] + [(number, ETCD) for number in range(3)]
    hosts.network.cut(everyone)
    time.sleep(LEASE_SECONDS + 1)
    hosts.start(3)
    hosts.after(10)
