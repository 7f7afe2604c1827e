"""A script's worker and a master that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.api.master import ScriptMaster
from elasticdl.worker.ending import Ending, Stopped
from elasticdl.worker.master import Identity

from packages.elasticdl.tests.master.jobs import write_job
from packages.elasticdl.tests.master.test_service import PATIENCE_SECONDS, served


def test_the_end_of_a_loop_is_not_reported_to_a_master_that_has_ended_with_the_job(tmp_path: Path) -> None:
    ending = Ending()
    with (
        served(write_job(tmp_path)) as one,
        ScriptMaster(one.address, Identity("worker-0", "p"), ending, print, patience_seconds=0) as master,
    ):
        one.service.stop()
        with pytest.raises(Stopped):
            ending.wait(PATIENCE_SECONDS)
        one.server.stop(0).wait()
        master.ended(everyone=True)
