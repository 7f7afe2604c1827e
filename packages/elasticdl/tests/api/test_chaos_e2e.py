"""Workers that are killed, or asked to leave, at seeded updates: shards, global batch and model are as promised."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.elasticdl import digits_script
from packages.elasticdl.tests.api.jobs import Job, Process
from packages.elasticdl.tests.api.test_script_e2e import SCRIPT, ends
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

EPOCHS = 6
MINIBATCH = 16


def has_reached(job: Job, step: int) -> bool:
    """Return whether the model has had this update."""
    return any(update.step >= step for update in job.updates())


def is_over(job: Job) -> bool:
    """Return whether the job has ended, and with it the workers that had the model.

    One that starts when the master has ended waits for it to come back; in a cluster the controller ends such a pod.
    """
    trained = [worker for worker in job.workers if worker.updates()]
    return job.master.poll() is not None and all(worker.poll() is not None for worker in trained)


def training(job: Job, lost: Sequence[Process]) -> list[Process]:
    """Return the workers that have the model."""
    return [worker for worker in job.workers if worker.poll() is None and worker.updates() and worker not in lost]


def disturbed(job: Job, draw: random.Random) -> None:
    """Start three workers at once, and replace one after the other at random updates.

    One worker always keeps the model, however long the others need to start: else the shards begin anew with it.
    """
    lost: list[Process] = []
    for _ in range(3):
        job.start()
    at = 0
    for _ in range(3):
        at += draw.randrange(5, 25)
        job.wait_for(lambda at=at: is_over(job) or (has_reached(job, at) and len(training(job, lost)) > 1))  # type: ignore[misc]
        active = training(job, lost)
        if len(active) < 2:
            break
        victim = draw.choice(active)
        victim.signal(draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        lost.append(victim)
        job.start()
    job.wait_for(lambda: is_over(job))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))])
def test_shards_global_batch_and_model_are_as_promised(
    seed: int, farm: Farm, tmp_path: Path, etcd: str, digits: Path
) -> None:
    draw = random.Random(seed)
    per_task, workers = draw.choice([1, 2, 4]), draw.choice([2, 3, 4])
    flags = {
        "num_workers": workers,
        "minibatch_size": MINIBATCH,
        "num_minibatches_per_task": per_task,
        "num_epochs": EPOCHS,
    }
    with Job(farm, tmp_path, etcd, [*SCRIPT, "--data", str(digits), "--pause", "0.02"], **flags) as job:
        disturbed(job, draw)
        assert job.master.wait() == exit_codes.FINISHED, job.told()
        finished = [worker for worker in job.workers if worker.poll() == 0 and worker.updates()]
        tasks, updates = job.tasks(), job.updates()
        done = [shard for worker in job.workers for shard in worker.shards()]
    records = len(digits_script.ImageFolder(digits / "train"))
    assert tasks == EPOCHS * -(-records // (MINIBATCH * per_task))
    assert len(done) == len(set(done))
    assert set(done) <= set(range(1, 1 + tasks))
    assert len({ends(worker) for worker in finished}) == 1
    told: dict[int, set[int]] = {}
    for update in updates:
        told.setdefault(update.step, set()).add(update.records)
    assert all(len(each) == 1 for each in told.values())
    short = [step for step, each in told.items() if each != {MINIBATCH * workers}]
    assert all(step > max(told) - 3 for step in short), told
