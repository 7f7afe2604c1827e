"""A loop of a script's own, in real processes with a real etcd, has the promises of ``tidewater.run``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

CALM = (*COMMON, "--epochs", "3", "--checkpoint-minutes", "0", "--min-workers", "2", "--micro-batch", "2")


@pytest.mark.parametrize("amp", ["off", "bf16"])
def test_without_faults_its_weights_are_those_of_run_to_the_bit(
    amp: str, farm: Farm, etcd: str, tmp_path: Path
) -> None:
    states = set()
    for kind in ("", "tensor", "function", "sums"):
        job = Job(farm, tmp_path / f"{kind or 'run'}-{amp}", etcd, *CALM, "--amp", amp)
        workers = [job.start(name, own_loop=kind, dropout=0.3) for name in "ab"]
        assert [worker.wait() for worker in workers] == [exit_codes.FINISHED] * 2, job.told()
        states |= {worker.events("finished")[0]["state"] for worker in workers}
        job.book.refresh()
        job.book.refresh()
        assert verdict(job.book, TOTAL) == []
    assert len(states) == 1
