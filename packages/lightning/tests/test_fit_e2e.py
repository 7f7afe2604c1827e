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

from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
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


def test_with_kills_a_join_and_a_leave_it_ends_where_an_undisturbed_run_does(
    farm: Farm, etcd: str, tmp_path: Path
) -> None:
    epochs = 40
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
    d = shaken.start("d")
    d.wait_for_step(80)
    c.signal(signal.SIGTERM)
    assert c.wait() == exit_codes.LEFT, shaken.told()
    assert d.wait() == exit_codes.FINISHED, shaken.told()
    assert alone.wait() == exit_codes.FINISHED, calm.told()
    for each, worker in ((calm, alone), (shaken, d)):
        each.book.refresh()
        each.book.refresh()
        assert verdict(each.book, TOTAL) == [], each.told()
        assert f"counted {epochs * STEPS} {epochs}" in worker.text()
    written = [int(row["step"]) for row in rows(shaken) if row["loss"]]
    assert len(written) == len(set(written))  # one row for each step
    assert len(written) > epochs * STEPS - 10  # at most those that a lost worker had not written yet are missing
    validated = Counter(int(row["step"]) for row in rows(shaken) if row["val_loss"])
    assert max(validated.values()) == 1
    ended, reference = newest(shaken), newest(calm)
    assert (ended["global_step"], ended["epoch"]) == (epochs * STEPS, epochs - 1)
    assert ended["lr_schedulers"] == reference["lr_schedulers"]
    for name, value in reference["state_dict"].items():
        if name == "net.0.passes":  # it counts those of all workers
            continue
        torch.testing.assert_close(ended["state_dict"][name], value, rtol=1e-5, atol=1e-6)
