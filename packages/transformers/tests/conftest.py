"""Fixtures of the adapter's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from scripts import toolchain
from tests.elastic.workers import CHECKOUT, free_port, run_etcd
from tests.farm import Farm

ZYGOTE = "packages.transformers.tests.zygote"


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a real etcd."""
    yield from run_etcd(toolchain.binary("etcd"), tmp_path_factory.mktemp("etcd"), free_port())


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Yield a farm of forked workers that have imported the library; they end with the farm."""
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "packages" / "transformers" / "src")])
    with Farm(ZYGOTE, tmp_path_factory.mktemp("farm"), {"PYTHONPATH": path}) as farm:
        yield farm
