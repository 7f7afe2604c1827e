"""Two masters of one job, and a master that is started after the end; `test_schedules` kills masters at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.elasticdl.tests.processes.jobs import Job, job_args
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e


def test_a_second_master_waits_and_goes_on_when_the_first_is_killed(
    farm: Farm, etcd: str, digits_records: Path, tmp_path: Path
) -> None:
    args = job_args(digits_records, num_epochs=4, log_level="DEBUG")
    with Job(farm, tmp_path / "job", etcd, args) as job:
        job.start(workers=2)
        first = job.master
        job.start_master("second")
        job.wait_for(lambda: "is counted" in next(iter(job.workers.values())).text())
        assert first is not None
        assert job.log().count("listens on") == 1
        first.kill()
        assert job.finish() == exit_codes.FINISHED, job.told()
        assert job.done()[:2] == (24, 4 * 1448)
        assert not job.failed_workers(), job.told()


def test_a_master_that_is_started_again_after_the_end_says_so_and_ends(
    farm: Farm, etcd: str, digits_records: Path, tmp_path: Path
) -> None:
    with Job(farm, tmp_path / "job", etcd, job_args(digits_records)) as job:
        job.start(workers=1)
        assert job.finish() == exit_codes.FINISHED, job.told()
        ended = job.done()
        job.start_master()
        assert job.finish() == exit_codes.FINISHED, job.told()
        assert job.done() == ended
        assert job.log().count("Job done") == 2
