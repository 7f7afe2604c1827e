"""Real workers can't save the final checkpoint: whichever worker is lost, the last one finishes the job."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.checkpoint.conftest import LINE
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.farm import Farm
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.observe.log import Log

pytestmark = pytest.mark.e2e

STEPS = 2 * 8
"""Two epochs of 50 samples in batches of 7."""


def delayed(worker: Forked) -> bool:
    return any("no place has the checkpoint" in each["error"] for each in worker.events("finish_delayed"))


def test_the_job_finishes_once_its_last_checkpoint_is_whole_although_workers_die_and_leave_before(
    farm: Farm, tmp_path: Path, etcd: str, quiet: Log
) -> None:
    # Slow steps: the obstacle must be there before the last of the 16 steps.
    flags = ("--epochs", "2", "--checkpoint-minutes", "0", "--min-workers", "1", "--min-step-seconds", "0.5")
    job = Job(farm, tmp_path / "job", etcd, *COMMON, *flags, "--heartbeat-seconds", "1")
    workers = [job.start(name) for name in "abc"]
    try:
        for worker in workers:
            worker.wait_for_step(2)
        job.checkpoints.write_text("in the way")
        first = finisher(workers)
        first.signal(signal.SIGKILL)
        first.wait()
        left = [worker for worker in workers if worker is not first]
        second = finisher(left)
        second.signal(signal.SIGTERM)
        assert second.wait() == exit_codes.LEFT
        (last,) = [worker for worker in left if worker is not second]
        last.wait_for(delayed)
        assert last.poll() is None
        job.checkpoints.unlink()
        assert last.wait() == exit_codes.FINISHED
        found = Checkpoints(places(str(job.checkpoints)), keep=2, log=quiet).newest(LINE)
        assert found is not None
        assert found.step == STEPS
    finally:
        job.kill()


def finisher(workers: list[Forked]) -> Forked:
    """Return the worker that tries to save the final checkpoint."""
    workers[0].wait_for(lambda _: any(delayed(worker) for worker in workers))
    return next(worker for worker in workers if delayed(worker))
