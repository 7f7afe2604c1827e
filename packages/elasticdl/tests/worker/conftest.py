"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked

from packages.elasticdl.tests.processes.forked import ENVIRONMENT, ZYGOTE
from tests.elastic.conftest import etcd, s3, s3_endpoint
from tests.farm import Farm

__all__ = ["etcd", "s3", "s3_endpoint"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads that wait for each other are far slower than one where other processes use the cores, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Yield a farm of forked masters, parameter servers and workers; they end with the farm."""
    with Farm(ZYGOTE, tmp_path_factory.mktemp("farm"), ENVIRONMENT) as farm:
        yield farm


@pytest.fixture(scope="session")
def digits_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits of scikit-learn as RecordIO, in `train` and `test`."""
    out = tmp_path_factory.mktemp("records") / "digits"
    write("digits", str(out), Options(records_per_shard=500))
    return out


@pytest.fixture(scope="session")
def clicks_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated clicks as RecordIO, in `train` and `test`."""
    out = tmp_path_factory.mktemp("records") / "clicks"
    write("generated-clicks", str(out), Options(records_per_shard=4000, asked=Asked(records=12_000)))
    return out
