"""Fixtures of the master's tests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts import toolchain
from tests.elastic.etcd.fake_client import FakeStore
from tests.elastic.workers import free_port, run_etcd
from tidewater.elastic.etcd.client import EtcdStore, Store


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a real etcd."""
    yield from run_etcd(toolchain.binary("etcd"), tmp_path_factory.mktemp("etcd"), free_port())


@pytest.fixture(params=["etcd", "fake"])
def client(request: pytest.FixtureRequest) -> Store:
    """Return a client of a real etcd, or one in memory that behaves like it."""
    if request.param == "fake":
        return FakeStore(time.monotonic, idle_seconds=30)
    return EtcdStore((request.getfixturevalue("etcd"),))
