"""Training continues during any failure of etcd, and membership changes work again as soon as etcd does."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import toolchain
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.cluster import Cluster
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm

pytestmark = pytest.mark.e2e

LEASE_SECONDS = 3
PAUSE_SECONDS = 10.0
"""Training stands still for no longer, even where etcd's own lapse has dropped the workers' leases.

That is a fraction of a second. The bound excludes the waits that a defect would cause, such as the 12 s of a take-over
(four leases) or a group's time-out, and no pause of the machine.
"""
PATIENCE_SECONDS = 60.0
_FLAGS = ("--min-step-seconds", "0.02", "--lease-seconds", str(LEASE_SECONDS))


class Team:
    """Two workers that train, and an etcd in which tests cause failures."""

    def __init__(self, farm: Farm, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.job = Job(farm, folder / "job", cluster.endpoints, *COMMON, *_FLAGS)
        for name in "ab":
            self.job.start(name)
        self.job.wait_for_all()
        self.began = time.monotonic()

    def train_for(self, seconds: float) -> None:
        """Wait, and assert that all workers train meanwhile. A slow machine gets more time for a few steps."""
        self.job.book.refresh()
        before = self.job.book.reached
        time.sleep(seconds)
        self.job.book.refresh()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.job.book.reached <= before + 5:
            assert time.monotonic() < deadline, self.job.told()
            time.sleep(0.05)
            self.job.book.refresh()

    def check(self) -> None:
        """Assert that no worker ended or paused, that one can join and leave, and no sample is lost or repeated."""
        self.job.wait_for_all()
        assert all(worker.poll() is None for worker in self.job.workers), self.job.told()
        times = sorted(final.at for finals in self.job.book.finals.values() for final in finals.values())
        longest = max(later - one for one, later in itertools.pairwise(times) if later > self.began)
        assert longest <= PAUSE_SECONDS, f"training stood still for {longest:.1f} s:\n{self.job.told()}"
        self.job.start("newcomer")
        self.job.wait_for_all()
        leaver = self.job.workers[0]
        leaver.signal(signal.SIGTERM)
        leaver.wait()
        self.job.wait_for_all()
        problems = verdict(self.job.book, TOTAL)
        assert not problems, "\n".join([*problems, self.job.told()])


@pytest.fixture
def three(farm: Farm, tmp_path: Path) -> Iterator[Team]:
    with Cluster(toolchain.binary("etcd"), tmp_path) as cluster:
        team = Team(farm, cluster, tmp_path)
        yield team
        team.job.kill()


@pytest.fixture
def single(farm: Farm, tmp_path: Path) -> Iterator[Team]:
    with Cluster(toolchain.binary("etcd"), tmp_path, members=1) as cluster:
        team = Team(farm, cluster, tmp_path)
        yield team
        team.job.kill()


def test_training_continues_when_one_of_three_etcd_members_is_killed(three: Team) -> None:
    leader = three.cluster.leader()
    three.cluster.kill((leader + 1) % 3)
    three.train_for(LEASE_SECONDS + 2)
    three.check()


def test_training_continues_when_the_etcd_leader_is_killed_and_returns(three: Team) -> None:
    leader = three.cluster.leader()
    three.cluster.kill(leader)
    three.train_for(LEASE_SECONDS + 2)
    three.cluster.start(leader)
    three.cluster.wait_for(three.cluster.numbers)
    three.check()


def test_training_continues_when_the_etcd_leader_freezes(three: Team) -> None:
    leader = three.cluster.leader()
    three.cluster.freeze(leader)
    three.train_for(LEASE_SECONDS + 2)
    three.check()
    three.cluster.thaw(leader)


def test_training_continues_during_a_rolling_restart_of_etcd(three: Team) -> None:
    for number in three.cluster.numbers:
        three.cluster.kill(number)
        three.train_for(1)
        three.cluster.start(number)
        three.cluster.wait_for(three.cluster.numbers)
    three.check()


def test_training_continues_when_a_single_etcd_is_restarted(single: Team) -> None:
    single.cluster.kill(0)
    single.train_for(1)
    single.cluster.start(0)
    single.cluster.wait_for([0])
    single.check()


@pytest.mark.parametrize("seconds", [pytest.param(2, marks=pytest.mark.soak), 2 * LEASE_SECONDS + 2])
def test_training_continues_while_all_of_etcd_is_unreachable(three: Team, seconds: float) -> None:
    three.cluster.kill(*three.cluster.numbers)
    three.train_for(seconds)
    for number in three.cluster.numbers:
        three.cluster.start(number)
    three.cluster.wait_for(three.cluster.numbers)
    three.check()


def test_training_continues_when_etcd_dropped_all_leases_in_a_freeze(single: Team) -> None:
    single.cluster.freeze(0)
    single.train_for(2 * LEASE_SECONDS + 2)
    single.cluster.thaw(0)
    single.check()


def test_a_worker_lost_while_etcd_is_unreachable_is_left_out_when_etcd_returns(single: Team) -> None:
    single.cluster.kill(0)
    single.job.workers[1].signal(signal.SIGKILL)
    single.job.workers[1].wait()
    time.sleep(2)
    assert single.job.workers[0].poll() is None
    single.cluster.start(0)
    single.cluster.wait_for([0])
    single.job.wait_for_all()
    problems = verdict(single.job.book, TOTAL)
    assert not problems, "\n".join([*problems, single.job.told()])
