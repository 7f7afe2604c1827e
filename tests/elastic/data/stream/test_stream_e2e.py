"""Real workers that train on a stream: killed, joined, asked to leave, and resumed from a checkpoint."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e


def test_every_sample_of_a_stream_is_used_once_per_pass_whatever_happens_to_the_workers(
    farm: Farm, tmp_path: Path, etcd: str
) -> None:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.02", "--lease-seconds", "2")
    try:
        workers = [job.start(name, stream=True) for name in "ab"]
        job.wait_for_all()
        workers.append(job.start("c", stream=True))
        job.wait_for_all()
        workers[0].signal(signal.SIGKILL)
        workers[0].wait()
        job.wait_for_all()
        workers[1].signal(signal.SIGTERM)
        assert workers[1].wait() == exit_codes.LEFT
        job.wait_for_all()
        workers[2].wait_for(lambda worker: worker.events("checkpoint_saved"))
        workers[2].signal(signal.SIGKILL)
        workers[2].wait()
        for name in "de":
            job.start(name, stream=True)
        job.wait_for_all()
        job.book.refresh()
        assert job.book.restored[-1].step > 0
        problems = verdict(job.book.without_what_was_undone(), TOTAL)
        assert not problems, "\n".join([*problems, job.told()])
        for worker in job.workers:
            assert worker.poll() is None or worker.killed or worker.leaving, job.told()
    finally:
        job.kill()
