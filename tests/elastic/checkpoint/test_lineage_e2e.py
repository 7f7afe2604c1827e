"""Real workers continue from what others continued, although etcd lost its data and old workers saved more steps."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.checkpoint.conftest import at, small
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.farm import Farm
from tidewater.contract import keys
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.checkpoint.manifest import step_of
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.observe.log import Log

pytestmark = pytest.mark.e2e

FAR = 10_000


def saved(worker: Forked) -> int:
    """Return the last step that the worker has saved; 0 before the first."""
    return max((int(event["step"]) for event in worker.events("checkpoint_saved")), default=0)


def run_until_saved(job: Job, name: str, step: int) -> tuple[Forked, int]:
    """Start a worker, and kill it when it has saved that step. Return it and the last step that is on disk.

    A worker may be killed between saving a step and logging that.
    """
    worker = job.start(name)
    worker.wait_for(lambda worker: saved(worker) >= step)
    worker.signal(signal.SIGKILL)
    worker.wait()
    steps = [step_of(each.name) or 0 for each in job.checkpoints.iterdir()]
    return worker, max(step for step in steps if step != FAR)


def loaded(worker: Forked) -> int:
    """Return the step of the checkpoint from which the worker continues."""
    return int(worker.events("checkpoint_loaded")[0]["step"])


def test_a_cold_start_continues_the_last_lineage_and_not_the_checkpoint_with_most_steps(
    farm: Farm, tmp_path: Path, etcd: str, quiet: Log
) -> None:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.01", "--lease-seconds", "2")
    store = EtcdStore((etcd,))
    try:
        first, reached = run_until_saved(job, "first", 20)
        generation = keys.generation(first.events("started")[0]["job"])
        checkpoints = Checkpoints(places(str(job.checkpoints)), keep=9, log=quiet)
        old = checkpoints.newest("")
        assert old is not None

        store.delete(generation)
        second, after = run_until_saved(job, "second", reached + 20)
        assert loaded(second) == reached
        late = at(FAR, old.now.generation + 100, lineage=old.now.lineage)
        assert checkpoints.save(late, small(FAR), wait=True)

        third, reached = run_until_saved(job, "third", after + 20)
        assert loaded(third) == after

        store.delete(generation)
        fourth, _ = run_until_saved(job, "fourth", reached + 20)
        assert loaded(fourth) == reached
        assert f"step-{FAR:012d}" not in [each.name for each in job.checkpoints.iterdir()]
    finally:
        job.kill()
