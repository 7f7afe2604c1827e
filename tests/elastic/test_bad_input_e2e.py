"""Mistakes of a user and lack of resources end in one clear sentence and disturb no other worker."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.elastic.workers import free_port
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

HOURS = 3600.0


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.02")
    yield job
    job.kill()


def last_words(worker: Forked) -> str:
    return worker.text().splitlines()[-1]


def assert_undisturbed(job: Job, worker: Forked) -> None:
    """Assert that the worker has had one generation since its start and continues in it."""
    reached = worker.last.step if worker.last else 0
    worker.wait_for_step(reached + 10)
    assert worker.last
    assert worker.last.generation == 1
    assert worker.events("step_discarded") == []
    assert verdict(job.book, TOTAL) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--min-workers", "3", "--max-workers", "2"), "--max-workers is 2, less than --min-workers, 3"),
        (("--etcd", "etcd:2379"), "etcd:2379"),
        (("--etcd", "http://no-such-host.invalid:2379", "--host", ""), "no-such-host.invalid"),
        (("--epochs", "0"), "--epochs is 0, the least is 1"),
    ],
)
def test_invalid_settings_are_named_at_once(job: Job, flags: tuple[str, ...], named: str) -> None:
    worker = job.start("a", *flags)
    assert worker.wait() == exit_codes.USAGE
    assert named in last_words(worker)
    assert "Traceback" not in worker.text()


def test_an_unreachable_etcd_is_named_within_seconds(job: Job) -> None:
    port = free_port()
    worker = job.start("a", "--etcd", f"http://127.0.0.1:{port}")
    worker.wait_for(lambda worker: worker.events("etcd_unreachable"), 60)
    assert str(port) in worker.events("etcd_unreachable")[0]["error"]


@pytest.mark.parametrize(
    ("flags", "options", "named"),
    [
        (("--batch-size", "8"), {}, ("batch-size", "8")),
        (("--seed", "1"), {}, ("seed",)),
        (("--max-steps", "100000"), {}, ("max-steps", "100000", "0")),
        ((), {"hidden": 5}, ("1.weight", "5", "4")),
    ],
    ids=["batch size", "seed", "number of steps", "shape of the model"],
)
def test_a_worker_with_other_traits_is_refused_by_name_and_the_running_one_is_not_disturbed(
    job: Job, flags: tuple[str, ...], options: dict[str, Any], named: tuple[str, ...]
) -> None:
    a = job.start("a")
    a.wait_for_step(5)
    other = job.start("other", *flags, **options)
    assert other.wait() == exit_codes.USAGE
    for word in (*named, a.name):
        assert word in last_words(other), last_words(other)
    assert_undisturbed(job, a)


def test_a_worker_that_waits_for_etcd_leaves_when_it_is_asked_to(job: Job) -> None:
    worker = job.start("a", "--etcd", f"http://127.0.0.1:{free_port()}")
    worker.wait_for(lambda worker: worker.events("etcd_unreachable"))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == exit_codes.LEFT


def test_a_nan_loss_ends_all_workers_and_keeps_the_last_checkpoint(job: Job) -> None:
    workers = [job.start(name, "--min-workers", "2", nan_at=45) for name in "ab"]
    assert [worker.wait() for worker in workers] == [exit_codes.USAGE] * 2
    for worker in workers:
        assert "the loss of step 45 is nan" in worker.text()
        assert "checkpoint" in last_words(worker)
    # That of step 40, or an earlier one if a slow disk was still busy with it.
    last = max(int(event["step"]) for worker in workers for event in worker.events("checkpoint_saved"))
    assert last <= 40
    kept = sorted(path.name for path in job.checkpoints.iterdir())
    assert f"step-{last:012d}" in kept
    again = job.start("again")
    again.wait_for_step(50)
    assert again.events("checkpoint_loaded")[0]["step"] == str(last)


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "volume"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tidewater-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_training_continues_when_the_checkpoint_volume_is_full_and_failures_are_counted(
    job: Job, small_volume: Path
) -> None:
    filler = small_volume / "filler"
    port = free_port()
    a = job.start("a", "--checkpoints", str(small_volume / "job"), "--metrics-port", str(port))
    a.wait_for(lambda worker: worker.events("checkpoint_saved"))
    with filler.open("wb") as file:
        while True:
            try:
                os.write(file.fileno(), bytes(4096))
            except OSError:
                break
    a.wait_for(lambda worker: len(worker.events("checkpoint_failed")) >= 2)
    assert_undisturbed(job, a)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["tidewater_checkpoint_failures_total"]) >= 2
    filler.unlink()
    saved = len(a.events("checkpoint_saved"))
    a.wait_for(lambda worker: len(worker.events("checkpoint_saved")) > saved)
    a.signal(signal.SIGKILL)
    again = job.start("again", "--checkpoints", str(small_volume / "job"))
    again.wait_for(lambda worker: worker.events("checkpoint_loaded"))
    job.kill()


def test_workers_train_together_with_clocks_that_are_hours_apart(job: Job) -> None:
    a = job.start("early", clock_skew_seconds=-5 * HOURS)
    b = job.start("late", clock_skew_seconds=7 * HOURS)
    c = job.start("right")
    job.wait_for_all()
    c.signal(signal.SIGKILL)
    c.wait()
    job.wait_for_all()
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT
    job.wait_for_all()
    assert b.last
    assert b.last.size == 1
    assert verdict(job.book, TOTAL) == []
