"""The benchmark really measures: a turn with servers, one in one process, and a worker that is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.data.writing.convert import Options, write
from elasticdl.data.writing.sources import Asked

from benchmarks.elasticdl import turn
from benchmarks.elasticdl.plan import REPLACE
from benchmarks.elasticdl.systems import BY_NAME, COMPUTING, NOTICED, PACED, PAUSE_SECONDS, REPLACED, REPLACEMENT
from scripts import toolchain
from tests.elastic.workers import free_port, run_etcd

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from run_etcd(toolchain.binary("etcd"), tmp_path_factory.mktemp("etcd"), free_port())


def clicks(out: Path, records: int) -> Path:
    write("generated-clicks", str(out), Options(test_share=0.0, asked=Asked(records=records)))
    return out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fifth of a benchmark's data: enough lines for a rate."""
    return clicks(tmp_path_factory.mktemp("clicks") / "data", turn.RECORDS // 5)


def test_a_paced_job_with_servers_is_no_faster_than_its_pauses_allow(etcd: str, data: Path, tmp_path: Path) -> None:
    values = turn.make("paced", BY_NAME["1 server, 2 workers, async"], data, etcd, tmp_path)
    assert 0 < values[PACED] <= 2 * turn.MINIBATCH / PAUSE_SECONDS


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("plain PyTorch, one process", marks=pytest.mark.soak),
        pytest.param("Local, one process", marks=pytest.mark.soak),
        "all-reduce, 1 worker",
    ],
)
def test_each_way_to_train_gives_a_rate(etcd: str, data: Path, tmp_path: Path, name: str) -> None:
    assert turn.make("computing", BY_NAME[name], data, etcd, tmp_path)[COMPUTING] > 0


def test_a_worker_is_replaced(etcd: str, tmp_path: Path) -> None:
    values = turn.make(REPLACE, REPLACEMENT, clicks(tmp_path / "data", turn.RECORDS), etcd, tmp_path)
    assert 0 <= values[NOTICED] < values[REPLACED]
