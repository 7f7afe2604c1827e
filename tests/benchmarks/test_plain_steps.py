"""Plain training runs alternately with a system in the same processes."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.elastic.bench import prepare
from benchmarks.elastic.systems import ROOT, Site
from benchmarks.elastic.timeline import pairs
from benchmarks.elastic.workers import names
from tests.elastic.workers import PATIENCE_SECONDS, free_port
from tests.processes import Process

SLEEP_SECONDS = 0.05
HELD_AT_STEP = 7
PAIRED_LINES = 3
"""Of steps 3, with which both are there, to 5: each is written after the next one."""
WORKER = f"""
import itertools, time
from benchmarks.elastic.workers.record import Recorder
recorder = Recorder.from_environment()
for step in itertools.count(1):
    time.sleep({SLEEP_SECONDS})
    recorder.committed(step, world=1 if step < 3 else 2, loss=0.0, samples=96)
"""


@pytest.mark.e2e
def test_each_step_of_two_workers_is_paired_with_a_plain_training_step_once_both_workers_run(tmp_path: Path) -> None:
    site = Site(
        python=Path(sys.executable),
        etcd=Path(),
        data=prepare(tmp_path / "digits.npz"),
        code=ROOT,
        folder=tmp_path,
        nodes=2,
        checkpoint_every=1,
        plain_port=free_port(),
    )
    for folder in ("steps", "pairs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gate").write_bytes(HELD_AT_STEP.to_bytes(names.GATE_BYTES, "little"))
    with ExitStack() as ends:
        workers = [
            Process(f"worker-{node}", [sys.executable, "-c", WORKER], site.environment(node), tmp_path)
            for node in range(2)
        ]
        for worker in workers:
            ends.callback(worker.end)
        records = wait_for_records(tmp_path / "pairs", workers)
    found = pairs(records)
    assert len(found) == 2
    assert all(pair.system >= SLEEP_SECONDS and pair.plain > 0 for pair in found)


def wait_for_records(folder: Path, workers: list[Process]) -> list[str]:
    """Return what each worker has recorded when it waits at the gate."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        records = {file.name[0]: file.read_text() for file in sorted(folder.iterdir())}
        if [record.count("\n") for record in records.values()] == [PAIRED_LINES] * len(workers):
            assert list(records) == ["0", "1"]
            return list(records.values())
        logs = [worker.last_lines() for worker in workers]
        assert all(worker.exit_code is None for worker in workers), logs
        assert time.monotonic() < deadline, (records, logs)
        time.sleep(0.05)
