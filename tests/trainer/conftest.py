"""Fixtures shared by the trainer's tests."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import toolchain
from tests.trainer.schedules.farm import Farm
from tests.trainer.workers import Worker, free_port, run_etcd
from trainer.observe.log import Log


@pytest.fixture
def quiet() -> Log:
    """A log that nobody reads."""
    return Log("test", stream=io.StringIO())


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real etcd."""
    yield from run_etcd(toolchain.binary("etcd"), tmp_path_factory.mktemp("etcd"), free_port())


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Forks workers that train next to nothing; they end with it."""
    with Farm(tmp_path_factory.mktemp("farm")) as farm:
        yield farm


@pytest.fixture
def start(etcd: str, digits: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Worker]]:
    """Starts workers of one job; what still runs at the end of the test is killed."""
    started = []

    def start_worker(name: str, *arguments: str, python: tuple[str, ...] = ("-m", "examples.images.train")) -> Worker:
        job = request.node.name
        common = [
            "--job",
            job,
            "--etcd",
            etcd,
            "--host",
            "127.0.0.1",
            "--data",
            str(digits),
            "--checkpoints",
            str(tmp_path / "checkpoints"),
            "--report-every",
            "1",
        ]
        started.append(Worker(name, [*common, *arguments], tmp_path, python))
        return started[-1]

    yield start_worker
    for worker in started:
        worker.process.kill()
        worker.process.wait()
