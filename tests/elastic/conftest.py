"""Fixtures shared by the trainer's tests."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import toolchain
from tests import programs
from tests.aws import account
from tests.elastic.schedules.forked import ZYGOTE
from tests.elastic.workers import Program, Worker, free_port, run_etcd
from tests.farm import Farm
from tests.suite.digits import digits
from tidewater.elastic.observe.log import Log
from tidewater.elastic.storage import s3 as storage

__all__ = ["digits"]

IMAGES = ("-m", "trainer.train")


@pytest.fixture
def quiet() -> Log:
    """Return a log that discards its output."""
    return Log("test", stream=io.StringIO())


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a real etcd."""
    yield from run_etcd(toolchain.binary("etcd"), tmp_path_factory.mktemp("etcd"), free_port())


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Yield a farm of forked workers; they end with the farm."""
    with Farm(ZYGOTE, tmp_path_factory.mktemp("farm"), programs.ENVIRON) as farm:
        yield farm


@pytest.fixture
def start(
    etcd: str, farm: Farm, digits: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Worker]]:
    """Start workers of one job; kill those that still run at the end of the test, where no thread may have failed.

    An error in one of the runtime's threads would pass unnoticed: they don't end the process.

    They are forked from a process that has imported everything. With ``forked=False`` a worker is started as a program,
    and starts its processes with its command line.
    """
    started: list[Worker] = []
    common = ["--job", request.node.name, "--etcd", etcd, "--host", "127.0.0.1", "--report-every", "1"]
    common += ["--data", str(digits), "--checkpoints", str(tmp_path / "checkpoints")]

    def start_worker(name: str, *arguments: str, python: tuple[str, ...] = IMAGES, forked: bool = True) -> Worker:
        log, given = tmp_path / f"{name}-{time.monotonic_ns()}.log", [*common, *arguments]
        if forked:
            started.append(programs.Forked(farm, name, [*python, "--worker", name, *given], log))
        else:
            started.append(Program(name, given, log, python))
        started[-1].others = started
        return started[-1]

    yield start_worker
    for worker in started:
        worker.signal(signal.SIGKILL)
        worker.wait()
    assert [text[-4000:] for text in map(Worker.text, started) if "Exception in thread" in text] == []


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Yield the endpoint of an S3 by moto."""
    with account.served(account.moto()) as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a client of an S3 with one empty bucket, ``there``; boto3 finds it through the environment."""
    import boto3

    account.use(monkeypatch, s3_endpoint, AWS_DEFAULT_REGION="us-east-1")
    storage.client.cache_clear()
    client = boto3.client("s3")
    for bucket in client.list_buckets()["Buckets"]:
        for each in client.list_objects_v2(Bucket=bucket["Name"]).get("Contents", ()):
            client.delete_object(Bucket=bucket["Name"], Key=each["Key"])
        for each in client.list_multipart_uploads(Bucket=bucket["Name"]).get("Uploads", ()):
            client.abort_multipart_upload(Bucket=bucket["Name"], Key=each["Key"], UploadId=each["UploadId"])
    client.create_bucket(Bucket="there")
    yield client
    storage.client.cache_clear()
