"""A server that is killed without any checkpoint: it gets its model from a worker, and the job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.elasticdl.tests.chaos import points
from packages.elasticdl.tests.processes.jobs import Job, job_args
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

NEAR_CHANCE = 0.5
"""A model that has lost its dense parameters would be right for one digit in ten."""


@pytest.mark.parametrize(
    "point",
    ["ps: gradients have come", "ps: a snapshot is taken"],
    ids=["while workers train", "at the end, when no worker has a task"],
)
def test_the_job_ends_with_the_model_that_the_workers_have(
    farm: Farm, etcd: str, digits_records: Path, tmp_path: Path, point: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    args = job_args(digits_records, num_epochs=4, output=str(tmp_path / "model"), log_loss_steps=5)
    with Job(farm, tmp_path / "job", etcd, args, points=marks) as job:
        job.start(workers=1)
        job.wait_for(lambda: "Loss:" in next(iter(job.workers.values())).text())
        points.arm(marks, point)
        assert job.finish() == exit_codes.FINISHED, job.told()
        assert not points.disarm(marks, point), "nobody was killed"
        assert job.done()[:2] == (24, 4 * 1448)
        assert "came back without a model" in job.told()
        assert job.metrics()[-1].values["accuracy"] > NEAR_CHANCE, job.told()
