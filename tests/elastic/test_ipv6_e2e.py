"""Real workers train, lose one and admit another where there is only IPv6."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import toolchain
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.network import Network
from tests.elastic.schedules.script import TOTAL
from tests.elastic.workers import free_port, run_etcd
from tests.farm import Farm

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6"),
]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of an etcd on the IPv6 loopback."""
    yield from run_etcd(toolchain.binary("etcd"), tmp_path, free_port(), host="[::1]")


def test_workers_meet_over_the_ipv6_loopback(farm: Farm, tmp_path: Path, etcd: str) -> None:
    job = Job(farm, tmp_path / "job", etcd, *COMMON)
    try:
        a, b = job.start("a", host="::1"), job.start("b", host="[::1]")
        job.wait_for_all()
        b.signal(signal.SIGKILL)
        job.start("c", host="")  # the route to etcd
        job.wait_for_all()
        assert verdict(job.book, TOTAL) == []
        assert a.poll() is None
    finally:
        job.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_hosts_that_have_only_ipv6_addresses_train_together(farm: Farm, tmp_path: Path) -> None:
    with Network(workers=2, ipv6=True) as network:
        job = Job(farm, tmp_path / "job", network.start_etcd(toolchain.binary("etcd"), tmp_path), *COMMON)
        try:
            for host in network.hosts:
                worker = job.start("w", netns=host.netns, host=host.address)
            job.wait_for_all()
            worker.signal(signal.SIGKILL)
            job.start("w", netns=network.hosts[1].netns, host="")
            job.wait_for_all()
            assert verdict(job.book, TOTAL) == []
        finally:
            job.kill()
