"""A Trainer in real processes with a real etcd: samples, counters, checkpoints and rows after kills, joins, leaves."""

from __future__ import annotations

import csv
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.elastic.schedules.arena import Arena
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.plan import schedule
from tests.elastic.schedules.script import BATCH_SIZE, TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

STEPS = -(-TOTAL // BATCH_SIZE)
"""Of an epoch."""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with Farm("packages.lightning.tests.worker", tmp_path_factory.mktemp("farm")) as farm:
        yield farm


def job(farm: Farm, folder: Path, etcd: str, *flags: str) -> Job:
    return Job(farm, folder, etcd, "--batch-size", str(BATCH_SIZE), "--lease-seconds", "3", *flags)


def rows(job: Job) -> list[dict[str, str]]:
    (found,) = (job.folder / "lightning").rglob("metrics.csv")
    with found.open() as file:
        return list(csv.DictReader(file))


def newest(job: Job) -> dict[str, Any]:
    found = max((job.folder / "lightning").rglob("*.ckpt"), key=lambda path: int(path.stem.split("step=")[1]))
    loaded: dict[str, Any] = torch.load(found, weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def arena(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    arena = Arena(farm, tmp_path_factory.mktemp("arena"), etcd, group="reconfigured")
    yield arena
    arena.job.kill()


@pytest.mark.parametrize("seed", [29, 203])
def test_a_schedule_loses_no_sample_and_all_workers_have_the_same_counters(arena: Arena, seed: int) -> None:
    arena.play(schedule(seed))  # compares the states, which have the counters, the schedulers and the callbacks


def test_it_ends_where_an_undisturbed_run_does(farm: Farm, etcd: str, tmp_path: Path) -> None:
    """Also where a worker that is left alone makes two passes in a step."""
    epochs = 20
    flags = ("--epochs", str(epochs), "--checkpoint-every", "10")
    calm = job(farm, tmp_path / "calm", etcd, *flags)
    alone = calm.start("a")
    shaken = job(farm, tmp_path / "shaken", etcd, *flags, "--min-step-seconds", "0.02")
    a, b = shaken.start("a"), shaken.start("b")
    b.wait_for_step(20)
    b.signal(signal.SIGKILL)
    c = shaken.start("c")
    c.wait_for_step(45)
    a.signal(signal.SIGKILL)
    c.wait_for_step(70)
    c.signal(signal.SIGKILL)  # the last one: from the checkpoint
    assert c.wait() == -signal.SIGKILL
    d, e = shaken.start("d"), shaken.start("e")
    for worker in (d, e):
        worker.wait_for_step(100)
    d.signal(signal.SIGTERM)
    assert d.wait() == exit_codes.LEFT, shaken.told()
    for each, worker in ((shaken, e), (calm, alone)):
        assert worker.wait() == exit_codes.FINISHED, each.told()
        each.book.refresh()
        each.book.refresh()
        assert verdict(each.book.without_what_was_undone(), TOTAL) == [], each.told()
        assert f"counted {epochs * STEPS} {epochs}" in worker.text()
    check_rows(shaken, epochs * STEPS)
    files = list((shaken.folder / "lightning").rglob("*.ckpt"))
    assert epochs - 1 <= len(files) <= epochs, "one is missing if a, which had rank 0, was lost at the end of an epoch"
    ended, reference = newest(shaken), newest(calm)
    assert (ended["global_step"], ended["epoch"]) == (epochs * STEPS, epochs - 1)
    assert ended["lr_schedulers"] == reference["lr_schedulers"]
    for name, value in reference["state_dict"].items():
        if name != "net.0.passes":  # it counts those of all workers
            torch.testing.assert_close(ended["state_dict"][name], value, rtol=1e-5, atol=1e-6)


def check_rows(job: Job, steps: int) -> None:
    """Check that a step has one row. At most those that a lost worker had not written yet are missing."""
    written = [int(row["step"]) for row in rows(job) if row["loss"]]
    assert written == sorted(set(written))
    assert len(written) > steps - 10
    assert max(Counter(int(row["step"]) for row in rows(job) if row["val_loss"]).values()) == 1
