"""One of several masters leads: the oldest, until its lease ends."""

from __future__ import annotations

import pytest
from elasticdl.master.program import Leadership
from elasticdl.master.store import Interrupted, Key

from tidewater.elastic.etcd.client import EtcdStore

PATIENCE_SECONDS = 60


def candidate(url: str, job: str, process: str, name: str) -> Leadership:
    return Leadership(EtcdStore((url,)), Key(job, "1", process), name, lease_seconds=60)


def test_a_master_that_is_started_again_under_its_name_leads_at_once(etcd: str, request: pytest.FixtureRequest) -> None:
    job = request.node.name
    with candidate(etcd, job, "before", "master") as before:
        before.wait()
        with candidate(etcd, job, "after", "master") as after:
            after.wait()  # the first one's lease is kept alive all the time
            assert after.lead


def test_waiting_can_be_interrupted(etcd: str, request: pytest.FixtureRequest) -> None:
    job = request.node.name
    with candidate(etcd, job, "a", "master-a") as first, candidate(etcd, job, "b", "master-b") as second:
        first.wait()
        second.interrupt()
        with pytest.raises(Interrupted):
            second.wait()
