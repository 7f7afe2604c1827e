"""Real workers name the one that is slow, and the one that the others wait for; so does the controller."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import STUCK, TOTAL
from tests.elastic.workers import free_port
from tests.farm import Farm
from tests.processes import eventually
from tidewater.controller.progress.silence import judged
from tidewater.controller.progress.watch import Process, metrics

pytestmark = pytest.mark.e2e


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    # A time-out would end the wait for the worker that hangs.
    flags = ("--silent-seconds", "1", "--group-timeout-seconds", "600", "--checkpoint-every", "100000")
    job = Job(farm, tmp_path / "job", etcd, *COMMON, *flags)
    yield job
    job.kill()


def started(job: Job, **options: Any) -> tuple[list[Forked], dict[str, int]]:
    """Start three workers, the last one with these options. Return them, and their ports of metrics by their names."""
    workers, ports = [], {}
    for name in "abc":
        port = free_port()
        more: dict[str, Any] = options if name == "c" else {}
        workers.append(job.start(name, "--metrics-port", str(port), "--min-workers", "3", **more))
        ports[workers[-1].name] = port
    job.wait_for_all()
    return workers, ports


def value(port: int, metric: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{metric} "))


def waits(worker: Forked) -> float:
    return median(float(step["wait_seconds"]) for step in worker.steps())


def test_a_worker_that_reads_slowly_is_named_and_waits_least(job: Job) -> None:
    (a, b, c), ports = started(job, sample_seconds=0.03)

    def named() -> bool:
        lines = [line for each in (a, b, c) for line in each.events("straggler")]
        return any(line["peer"] == c.name and line["host"] == "127.0.0.1" for line in lines)

    a.wait_for(lambda _: named())
    a.wait_for(lambda _: value(ports[c.name], "tidewater_straggler_seconds") > 0)
    assert value(ports[a.name], "tidewater_straggler_seconds") == 0
    assert waits(c) < min(waits(a), waits(b))
    assert value(ports[a.name], "tidewater_wait_seconds_total") > value(ports[c.name], "tidewater_wait_seconds_total")
    assert verdict(job.book, TOTAL) == []


def test_a_worker_with_a_frozen_input_is_named_by_the_log_and_by_the_controller_until_it_goes_on(job: Job) -> None:
    workers, ports = started(job, stuck=True)
    stuck = workers[-1]
    (stuck.folder / STUCK).touch()

    def named(worker: Forked) -> bool:
        return any(line["waits_for"] == stuck.name for line in worker.events("silent"))

    first = min(workers, key=lambda each: int(each.steps()[-1]["rank"]))
    for worker in (stuck, first):
        worker.wait_for(named)

    def asked() -> dict[str, list[str]]:
        async def ask() -> list[str]:
            return await asyncio.gather(*(metrics(Process(name, "127.0.0.1", ports[name])) for name in ports))

        return {name: [text] for name, text in zip(ports, asyncio.run(ask()), strict=True)}

    def waited_for() -> tuple[str, ...] | None:
        found = judged(asked(), None, datetime.now(UTC))
        return None if found is None else found.workers

    eventually(lambda: waited_for() == (stuck.name,))
    (stuck.folder / STUCK).unlink()
    job.wait_for_all()
    eventually(lambda: waited_for() is None)
    assert verdict(job.book, TOTAL) == []
