"""A Trainer in real processes with a real etcd: what it counts, what it learns and what it saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packages.transformers.tests.script import EPOCH_STEPS
from tests.elastic.schedules.forked import Forked, Job
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

QUIET = ("--checkpoint-minutes", "0", "--lease-seconds", "3")


def events(worker: Forked) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (worker.folder / "events").read_text().splitlines()]


def test_two_workers_count_as_one(farm: Farm, etcd: str, tmp_path: Path) -> None:
    job = Job(farm, tmp_path / "job", etcd, *QUIET, "--min-workers", "2")
    workers = [job.start(name, script="text", arguments={}) for name in "ab"]
    assert [worker.wait() for worker in workers] == [exit_codes.FINISHED] * 2, job.told()
    seen = events(workers[0])
    assert [each["step"] for each in seen if each["kind"] == "step_end"] == list(range(1, 3 * EPOCH_STEPS + 1))
