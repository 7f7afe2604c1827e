"""Plain training in the processes of a system, in turns with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.elastic.__main__ import prepare
from benchmarks.elastic.processes import free_port
from benchmarks.elastic.systems import ROOT, Site
from benchmarks.elastic.timeline import pairs

SLEEP_SECONDS = 0.05
WORKER = f"""
import time
from benchmarks.elastic.workers.record import Recorder
recorder = Recorder.from_environment()
for step in range(1, 7):
    time.sleep({SLEEP_SECONDS})
    recorder.committed(step, world=1 if step < 3 else 2, loss=0.0, samples=96)
"""


@pytest.mark.e2e
def test_each_step_of_two_workers_is_paired_with_one_of_plain_training_once_both_are_there(tmp_path: Path) -> None:
    site = Site(
        python=Path(sys.executable),
        etcd=Path(),
        data=prepare(tmp_path / "digits.npz"),
        code=ROOT,
        folder=tmp_path,
        nodes=2,
        checkpoint_every=1,
        beside=free_port(),
    )
    for folder in ("steps", "pairs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gate").write_bytes((100).to_bytes(8, "little"))
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER], env={**os.environ, **site.environment(node)})
        for node in range(2)
    ]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0]
    files = sorted((tmp_path / "pairs").iterdir())
    assert [file.name[0] for file in files] == ["0", "1"]
    found = pairs([file.read_text() for file in files])
    assert len(found) == 2
    assert all(pair.system >= SLEEP_SECONDS and pair.plain > 0 for pair in found)
