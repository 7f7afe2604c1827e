"""A script's worker and a master that has ended."""

from __future__ import annotations

import time
from pathlib import Path

from elasticdl.api.master import Master
from elasticdl.worker.master import Identity

from packages.elasticdl.tests.master.jobs import write_job
from packages.elasticdl.tests.master.test_service import PATIENCE_SECONDS, served


def test_the_end_of_a_loop_is_not_reported_to_a_master_that_has_ended_with_the_job(tmp_path: Path) -> None:
    with (
        served(write_job(tmp_path)) as one,
        Master(one.address, Identity("worker-0", "p"), patience_seconds=0, say=print) as master,
    ):
        one.service.stop()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not master.job_has_ended and time.monotonic() < deadline:
            time.sleep(0.01)
        one.server.stop(0).wait()
        master.ended(everyone=True)
